"""The package's version; ``pyproject.toml`` and every request's ``User-Agent`` take it from here."""

from typing import Final

VERSION: Final = "0.1.0"
