"""The version; its own module, as the OpenAI client's."""

from typing import Final

VERSION: Final = "0.1.0"
