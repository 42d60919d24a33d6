"""Writing of configuration files."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_atomically(target: Path, text: str) -> None:
    """Write a file atomically: to a temporary file in the same folder, which then replaces it.

    Only the owner can read a new file.
    """
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def replace_file(target: Path, text: str) -> None:
    """Write a file atomically and keep the permissions of an existing one."""
    mode = target.stat().st_mode if target.exists() else None
    write_atomically(target, text)
    if mode is not None:
        target.chmod(mode)
