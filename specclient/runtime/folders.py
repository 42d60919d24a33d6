"""Turn the platform's conventions into the folders of a user's files, and texts into whole files there."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

_APP: Final = "specclient"
#: Below a home folder, where nothing else is said (XDG Base Directory Specification, version 0.8).
_PLAIN: Final = {"config": ".config", "data": ".local/share"}


def user_folder(kind: Literal["config", "data"]) -> Path:
    """Return the user's folder of a kind; it may not exist yet.

    ``platformdirs`` knows every platform's. It is not asked for what every Linux program is told by its
    home folder alone: the answer would take 0.3 MB in each process that makes a client.
    """
    home = os.environ.get("HOME", "")
    said = os.environ.get(f"XDG_{kind.upper()}_HOME")
    if sys.platform == "linux" and Path(home).is_absolute() and not said and "ANDROID_DATA" not in os.environ:
        return Path(home, _PLAIN[kind], _APP)
    import platformdirs  # noqa: PLC0415 - see above

    return Path(platformdirs.user_config_dir(_APP) if kind == "config" else platformdirs.user_data_dir(_APP))


def write_atomically(target: Path, text: str) -> None:
    """Write a file beside its place and move it there, so that nobody ever sees half of it.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    import tempfile  # noqa: PLC0415 - few programs write any

    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
