"""The user's folders for configuration and data, and atomic writes into them."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import platformdirs

_APP: Final = "specclient"


def user_folder(kind: Literal["config", "data"]) -> Path:
    """Return the user's configuration or data folder of this platform; it may not exist yet.

    Raises:
        RuntimeError: the user has no home directory.
    """
    return Path(platformdirs.user_config_dir(_APP) if kind == "config" else platformdirs.user_data_dir(_APP))


def write_atomically(target: Path, text: str) -> None:
    """Write a text file so that readers see the old content or the new, never a part of it.

    The text goes to a temporary file in the same folder, which then replaces the target.

    Raises:
        OSError: the file cannot be written; the old one is unchanged.
    """
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
