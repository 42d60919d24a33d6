"""The file of a fetched price catalogue, and the text that identifies the catalogue in use."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from specclient.runtime.folders import user_folder

__all__ = ["PACKAGE", "catalogue_path", "edition"]

#: The package that the catalogue comes with.
PACKAGE = "genai-prices"
_OFF = "off"


def catalogue_path(env: Mapping[str, str]) -> Path | None:
    """Return the path of a fetched catalogue, None if ``SPECCLIENT_PRICES`` is ``off``."""
    setting = env.get("SPECCLIENT_PRICES")
    if setting:
        return None if setting.strip().lower() == _OFF else Path(setting).expanduser()
    return user_folder("data") / "prices.json"


def edition(env: Mapping[str, str]) -> str:
    """Return a text that differs between any two catalogues, without loading the catalogue."""
    path = catalogue_path(env)
    with suppress(OSError):
        if path is not None:
            status = path.stat()
            return f"{version(PACKAGE)} {path} {status.st_mtime_ns} {status.st_size}"
    return version(PACKAGE)
