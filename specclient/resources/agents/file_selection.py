"""Turn local files and folders chosen for a hosted agent into checked snapshots, each with where it goes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any

WORKSPACE = "/workspace"
#: Places that the hosted environment keeps for itself
#: (https://developers.openai.com/api/docs/guides/agents-api/environments/files).
_RESERVED = frozenset({".codex", ".managed-agents"})
_RESERVED_PREFIX = ".managed-agents-"
_OUTPUTS = f"{WORKSPACE}/outputs"


@dataclass(frozen=True, slots=True)
class FileSnapshot(os.PathLike[str]):
    """A regular file as it was when it was chosen.

    Attributes:
        path: absolute.
        identity: device, inode and size in bytes: of another file, or of one that has grown, they differ.
    """

    path: Path
    identity: tuple[int, int, int]

    def __fspath__(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        """Return the file's content.

        Raises:
            ValueError: for a file that is not the one that was chosen.
            OSError: for one that cannot be read.
        """
        if _identity(self.path.lstat()) != self.identity:
            raise ValueError(_changed(self.path))
        with self.path.open("rb") as opened:
            if _identity(os.fstat(opened.fileno())) != self.identity:  # a link put in its place meanwhile
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
    """Return the absolute path that a file is to have in the environment, after checking it.

    Raises:
        ValueError: for a path that is not below ``/workspace``, is not plain, or is the environment's own.
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
        raise ValueError(f"an agent's file cannot go to {value!r}; the environment keeps it for itself")
    return value


def snapshot_of(source: str | os.PathLike[str]) -> FileSnapshot:
    """Return a local file as it is now; one that is a snapshot already stays what it was when chosen.

    Raises:
        ValueError: for anything but a regular file, or a snapshot whose file has changed.
    """
    path = Path(source).absolute()
    if path.is_symlink():
        raise ValueError(f"{path} is a symlink; select the file it leads to")
    if not path.is_file():
        raise ValueError(f"{path} is no regular file; select files that exist, one by one")
    found = path.lstat()
    if not S_ISREG(found.st_mode):
        raise ValueError(_changed(path))
    if isinstance(source, FileSnapshot) and source.identity != _identity(found):
        raise ValueError(_changed(path))
    return FileSnapshot(path, _identity(found))


def select_files(
    files: Mapping[str, str | os.PathLike[str]], headers: Iterable[str]
) -> list[tuple[str, FileSnapshot]]:
    """Return the files of a mapping from destinations to local paths, each as it is now.

    Args:
        headers: the names of those that each upload would be sent with.

    Raises:
        ValueError: for a destination or a file that cannot be used, for one destination inside another, and
            for an idempotency key that several uploads would share.
    """
    if len(files) > 1 and any(name.lower() == "idempotency-key" for name in headers):
        raise ValueError(
            f"one Idempotency-Key cannot be that of {len(files)} uploads; leave it out, or prepare one file"
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
    """Return the files of a folder that patterns name, by the path each is to have in the environment.

    Args:
        destination: of the folder, below ``/workspace`` or it itself.
        include: glob patterns relative to ``root``: ``["src/**/*.py"]``.

    Raises:
        ValueError: for a folder, pattern or file that cannot be used, and where no file is named.
    """
    folder = Path(root).absolute()
    if isinstance(include, str) or not include:
        raise ValueError(f"include is {include!r}; it must be a list of patterns, such as ['src/**/*.py']")
    if folder.is_symlink() or not folder.is_dir():
        raise ValueError(f"{folder} is no folder, or a symlink; give the folder itself")
    folder = folder.resolve()  # links above the chosen folder (/tmp on macOS) are the system's business
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
    """Raise for a file that is a symlink or lies in one."""
    for path in (source, *source.parents):
        if path == folder:
            return
        if path.is_symlink():
            raise ValueError(f"{path} is a symlink; name the files themselves, or leave it out of include")


def _within(source: Path, folder: Path) -> FileSnapshot:
    resolved = source.resolve()
    if not resolved.is_relative_to(folder):
        raise ValueError(f"{source} leads out of {folder}; select what lies inside it")
    return FileSnapshot(resolved, _identity(resolved.lstat()))


def upload_path(file: Any) -> Any:
    """Return the path that a call's file is given as, by itself or beside a name; None where it is open."""
    content = file[1] if isinstance(file, tuple) else file
    return content if isinstance(content, os.PathLike) else None


def read_upload(file: Any) -> Any:
    """Return a file of a call with the path in it read: its name, its content, and what stood behind them.

    Raises:
        ValueError: for a path that is no regular file, or one that changes while it is read.
        OSError: for one that cannot be read.
    """
    snapshot = snapshot_of(upload_path(file))
    if isinstance(file, tuple):
        return (file[0], snapshot.read(), *file[2:])
    return (snapshot.path.name, snapshot.read())
