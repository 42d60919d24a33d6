"""Cache of compiled libraries: a library is loaded only if it is whole and nobody else can have written it.

Beside each library is a file with its SHA-256 digest. A truncated library would end the process with SIGBUS
when it is loaded, and a changed one would run code of another user.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["DIGEST_SUFFIX", "cache_folder", "cached_library"]

_LOG = logging.getLogger("specclient")

#: Suffix of the file with a library's digest.
DIGEST_SUFFIX = ".sha256"
#: Largest library and digest file that are read, in bytes; a library has some 100 KiB.
_MAX_LIBRARY_BYTES = 64 * 2**20
_MAX_DIGEST_BYTES = 4096
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path | None:
    """Return the user's cache folder; None if it cannot be written or executed from, or is not private.

    Libraries are loaded into the process, so nobody else may be able to write to the folder.
    """
    from platformdirs import user_cache_path  # noqa: PLC0415 - where an engine is loaded alone

    folder = user_cache_path("specclient", appauthor=False) / "native"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status, flags = folder.stat(), os.statvfs(folder).f_flag
    except OSError:
        return None
    private = status.st_uid == os.getuid() and not status.st_mode & _WRITABLE_BY_OTHERS
    runs = not flags & getattr(os, "ST_NOEXEC", 0)  # only Linux reports it
    return folder if private and runs and os.access(folder, os.W_OK) else None


def cached_library(folder: Path, name: str, build: Callable[[Path], None]) -> ctypes.CDLL:
    """Load a library from a folder; build it first if it is missing, damaged or not trustworthy.

    Args:
        folder: writable for this user only.
        name: the library's file name.
        build: writes the library to a path.

    Raises:
        OSError: the folder cannot be written, or the library cannot be loaded.
        Exception: whatever ``build`` raises.
    """
    path = folder / name
    if (reason := _rejection(path)) is None:
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:  # built for another system that shares the folder
            reason = str(error)
    if path.exists():
        _LOG.info("the compiled library %s is compiled again: %s", path, reason)
    _install(path, build)
    if (reason := _rejection(path)) is not None:
        raise OSError(f"{path} was just compiled, but {reason}")
    return ctypes.CDLL(str(path))


def _rejection(path: Path) -> str | None:
    """Return why a library must not be loaded; None if it is whole and this user's own."""
    try:
        library = _read_private(path, _MAX_LIBRARY_BYTES)
        recorded = _read_private(_digest_path(path), _MAX_DIGEST_BYTES)
    except FileNotFoundError as error:
        return f"{error.filename} is missing"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    if hashlib.sha256(library).hexdigest().encode() != recorded.strip():
        return "its content does not match its digest"
    return None


def _read_private(path: Path, limit: int) -> bytes:
    """Read a regular file that only this user can have written.

    Raises:
        OSError: the file is missing, a link or a special file, another user's, writable for others, or longer
            than ``limit`` bytes.
    """
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file", str(path))
        if status.st_uid != os.getuid():
            raise OSError(0, f"owned by user {status.st_uid}", str(path))
        if status.st_mode & _WRITABLE_BY_OTHERS:
            raise OSError(0, f"writable for others (mode {stat.S_IMODE(status.st_mode):o})", str(path))
        if status.st_size > limit:
            raise OSError(0, f"{status.st_size} bytes long", str(path))
        return file.read(limit)


def _install(path: Path, build: Callable[[Path], None]) -> None:
    """Build a library and move it and its digest into place, each in one step.

    If the process ends between the two steps, or another process installs its own build at the same time,
    library and digest may not match; then the next process builds them again.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        library, digest = Path(scratch) / path.name, _digest_path(Path(scratch) / path.name)
        build(library)
        library.chmod(0o700)  # the umask may let the group write
        digest.write_text(hashlib.sha256(library.read_bytes()).hexdigest() + "\n", encoding="ascii")
        digest.chmod(0o600)
        for file in (library, digest):
            _flush_to_disk(file)
        library.replace(path)
        digest.replace(_digest_path(path))


def _flush_to_disk(file: Path) -> None:
    """Wait until a file's content is on the disk: a power failure must not leave a name without content."""
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest_path(path: Path) -> Path:
    return path.with_name(path.name + DIGEST_SUFFIX)
