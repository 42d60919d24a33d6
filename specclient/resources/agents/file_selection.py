"""Selects and checks local files and folders for a hosted agent, and detects later changes to them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any

WORKSPACE = "/workspace"
#: Paths that the hosted environment reserves
#: (https://developers.openai.com/api/docs/guides/agents-api/environments/files).
_RESERVED = frozenset({".codex", ".managed-agents"})
_RESERVED_PREFIX = ".managed-agents-"
_OUTPUTS = f"{WORKSPACE}/outputs"


@dataclass(frozen=True, slots=True)
class FileSnapshot(os.PathLike[str]):
    """A regular file, with the properties it had when it was selected.

    Attributes:
        path: the absolute path.
        identity: device, inode and size in bytes; they differ if the file was replaced or its size changed.
    """

    path: Path
    identity: tuple[int, int, int]

    def __fspath__(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        """Return the file's content.

        Raises:
            ValueError: the file has changed since it was selected.
            OSError: the file cannot be read.
        """
        if _identity(self.path.lstat()) != self.identity:
            raise ValueError(_changed(self.path))
        with self.path.open("rb") as opened:
            if _identity(os.fstat(opened.fileno())) != self.identity:  # replaced by a link meanwhile
                raise ValueError(_changed(self.path))
            content = opened.read(self.identity[2] + 1)
        if len(content) != self.identity[2]:
            raise ValueError(_changed(self.path))
        return content


def _changed(path: Path) -> str:
    return f"{path} changed after it was selected; select it again once nothing writes to it"


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return (found.st_dev, found.st_ino, found.st_size)


def destination_of(value: str) -> str:
    """Check the absolute path of a file in the environment, and return it.

    Raises:
        ValueError: the path is not below ``/workspace``, not normalized, or reserved by the environment.
    """
    inside = value.removeprefix(f"{WORKSPACE}/")
    if inside == value or "\x00" in value or "\\" in value:
        raise ValueError(
            f"an agent's file cannot go to {value!r}; give an absolute POSIX path below {WORKSPACE}/"
        )
    parts = inside.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"an agent's file cannot go to {value!r}; leave out empty parts, '.' and '..'")
    if parts[0] in _RESERVED or parts[0].startswith(_RESERVED_PREFIX) or value == _OUTPUTS:
        raise ValueError(f"an agent's file cannot go to {value!r}; the environment reserves it")
    return value


def snapshot_of(source: str | os.PathLike[str]) -> FileSnapshot:
    """Return a snapshot of a local file; a given snapshot is checked against its file.

    Raises:
        ValueError: the file is not a regular file, or has changed since the given snapshot.
    """
    path = Path(source).absolute()
    if path.is_symlink():
        raise ValueError(f"{path} is a symlink; select its target")
    if not path.is_file():
        raise ValueError(f"{path} is not a regular file; select files that exist, one by one")
    found = path.lstat()
    if not S_ISREG(found.st_mode):
        raise ValueError(_changed(path))
    if isinstance(source, FileSnapshot) and source.identity != _identity(found):
        raise ValueError(_changed(path))
    return FileSnapshot(path, _identity(found))


def select_files(
    files: Mapping[str, str | os.PathLike[str]], headers: Iterable[str]
) -> list[tuple[str, FileSnapshot]]:
    """Return destinations and file snapshots for a mapping from destinations to local paths.

    Args:
        headers: the names of the request headers of each upload.

    Raises:
        ValueError: a destination or a file is invalid, a destination is inside another one, or several
            uploads would share an idempotency key.
    """
    if len(files) > 1 and any(name.lower() == "idempotency-key" for name in headers):
        raise ValueError(
            f"one Idempotency-Key cannot be used for {len(files)} uploads; leave it out, or prepare one file"
        )
    destinations = {destination_of(destination) for destination in files}
    for destination in destinations:
        for parent in map(str, PurePosixPath(destination).parents):
            if parent in destinations:
                raise ValueError(f"{parent!r} cannot be a file and the folder of {destination!r}; rename one")
    return [(destination, snapshot_of(source)) for destination, source in files.items()]


def select_directory(
    root: str | os.PathLike[str], destination: str, include: Sequence[str]
) -> dict[str, os.PathLike[str]]:
    """Return the files of a folder that match patterns, by their paths in the environment.

    Args:
        root: the local folder.
        destination: the folder's path in the environment: ``/workspace`` or below.
        include: glob patterns relative to ``root``: ``["src/**/*.py"]``.

    Raises:
        ValueError: the folder, a pattern or a file is invalid, or no file matches.
    """
    folder = Path(root).absolute()
    if isinstance(include, str) or not include:
        raise ValueError(f"include is {include!r}; it must be a list of patterns, such as ['src/**/*.py']")
    if folder.is_symlink() or not folder.is_dir():
        raise ValueError(f"{folder} is not a folder, or is a symlink; give the folder itself")
    folder = folder.resolve()  # links above the folder are allowed, such as /tmp on macOS
    destination_of(f"{destination}/a")
    for pattern in include:
        parts = PurePosixPath(pattern)
        if not pattern or parts.is_absolute() or ".." in parts.parts:
            raise ValueError(
                f"include has {pattern!r}; a pattern must be relative to {folder} and stay in it"
            )
    found: dict[str, os.PathLike[str]] = {}
    for pattern in include:
        for source in sorted(folder.glob(pattern)):
            _refuse_links(source, folder)
            if not source.is_dir():
                inner = source.relative_to(folder).as_posix()
                found[str(PurePosixPath(destination) / inner)] = _within(source, folder)
    if not found:
        raise ValueError(f"no file in {folder} matches {list(include)}; name some that exist")
    return found


def _refuse_links(source: Path, folder: Path) -> None:
    """Raise ValueError if a file, or a folder between it and ``folder``, is a symlink."""
    for path in (source, *source.parents):
        if path == folder:
            return
        if path.is_symlink():
            raise ValueError(f"{path} is a symlink; name the files themselves, or leave it out of include")


def _within(source: Path, folder: Path) -> FileSnapshot:
    resolved = source.resolve()
    if not resolved.is_relative_to(folder):
        raise ValueError(f"{source} is outside {folder}; select files inside it")
    return FileSnapshot(resolved, _identity(resolved.lstat()))


def upload_path(file: Any) -> Any:
    """Return the path of a file argument, plain or in a tuple; None for content and open files."""
    content = file[1] if isinstance(file, tuple) else file
    return content if isinstance(content, os.PathLike) else None


def read_upload(file: Any) -> Any:
    """Return a file argument as a tuple with the content in place of the path: name, content, other items.

    Raises:
        ValueError: the path is not a regular file, or the file changes while it is read.
        OSError: the file cannot be read.
    """
    snapshot = snapshot_of(upload_path(file))
    if isinstance(file, tuple):
        return (file[0], snapshot.read(), *file[2:])
    return (snapshot.path.name, snapshot.read())
