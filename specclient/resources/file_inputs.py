"""Reads files that a call's arguments give as paths, before the request is sent."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from specclient.runtime.forks import import_lock


def file_from_path(path: str | os.PathLike[str]) -> tuple[str, bytes]:
    """Return a file as an argument of a call: its name and its content.

    Raises:
        OSError: the file cannot be read.
    """
    return Path(path).name, Path(path).read_bytes()


def read_files(given: Mapping[str, Any], files: Collection[str]) -> dict[str, Any]:
    """Return a call's arguments with the files at paths read.

    Args:
        given: the arguments by name.
        files: the names of the arguments that hold files. A path becomes a file name and bytes; other values
            are unchanged.

    Raises:
        OSError: a file cannot be read.
    """
    wanted = {path: Path(path).read_bytes() for path in _paths(given, files)}
    return _with_contents(given, files, wanted)


async def aread_files(given: Mapping[str, Any], files: Collection[str]) -> dict[str, Any]:
    """Return the result of :func:`read_files`, without blocking the event loop."""
    with import_lock:
        import anyio  # noqa: PLC0415 - only for files

    wanted = {path: await anyio.Path(path).read_bytes() for path in _paths(given, files)}
    return _with_contents(given, files, wanted)


def _paths(given: Mapping[str, Any], files: Collection[str]) -> list[Any]:
    return [path for name in files if name in given for path in map(_path_in, _each(given[name])) if path]


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _path_in(file: Any) -> Any:
    """Return the path of a file that is given as a path or as (name, path, …); else None."""
    content = file[1] if isinstance(file, tuple) and len(file) > 1 else file
    return content if isinstance(content, os.PathLike) else None


def _with_contents(
    given: Mapping[str, Any], files: Collection[str], contents: Mapping[Any, bytes]
) -> dict[str, Any]:
    def loaded(file: Any) -> Any:
        path = _path_in(file)
        if path is None:
            return file
        if isinstance(file, tuple):
            return (file[0], contents[path], *file[2:])
        return (Path(path).name, contents[path])

    found = dict(given)
    for name in files:
        if name in given:
            value = given[name]
            found[name] = list(map(loaded, value)) if isinstance(value, list) else loaded(value)
    return found
