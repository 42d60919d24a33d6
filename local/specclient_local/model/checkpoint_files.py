"""Reading of a checkpoint's files as untrusted input: bounded in size and depth, and regular files only.

Every problem is a :class:`~specclient.errors.CheckpointError` of one line that names the file.
"""

from __future__ import annotations

import json
import os
import reprlib
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specclient.errors import CheckpointError, OpenAIError

__all__ = [
    "LEAST_FACTOR",
    "MAX_JSON_BYTES",
    "MAX_JSON_DEPTH",
    "check_files",
    "check_regular",
    "checkpoint_errors",
    "finite_number",
    "is_gguf",
    "label",
    "one_line",
    "read_json",
    "read_json_list",
    "shard_files",
    "shown",
    "whole_number",
]

#: Largest JSON file, in bytes; a tokenizer of 256,000 tokens takes 35 MB.
MAX_JSON_BYTES = 256 * 2**20
#: Most levels of arrays and objects in a JSON file; published ones have up to 8.
MAX_JSON_DEPTH = 64
#: Patterns of the files that are read from a checkpoint's folder, by this package or by its libraries.
_FILES = ("*.json", "*.jinja", "*.safetensors", "*.model", "*.txt", "additional_chat_templates/*.jinja")
_MAX_TEXT = 200  # maximum characters of a file's value or message in an error
_UNEXPECTED = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, AssertionError,
)  # fmt: skip

LEAST_FACTOR, _MAX_FACTOR = 1e-6, 1e15
"""Bounds of the numbers that formulas use; within them, RoPE's frequencies stay finite."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: the file is missing, no regular file, too large, unreadable, nested too deeply, or
            does not contain an object.
    """
    raw = _parsed(path)
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} contains a {type(raw).__name__}; an object is expected.")
    return raw


def read_json_list(path: Path) -> list[Any]:
    """Read a JSON array.

    Raises:
        CheckpointError: as :func:`read_json`, or it does not contain an array.
    """
    raw = _parsed(path)
    if not isinstance(raw, list):
        raise CheckpointError(f"{path} contains a {type(raw).__name__}; an array is expected.")
    return raw


def _parsed(path: Path) -> Any:
    try:
        data = _read(path)
        raw = json.loads(data.decode("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing; name a folder with config.json, tokenizer.json and *.safetensors."
        ) from None
    except RecursionError:
        raise _too_deep(path) from None
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{path} is not readable JSON ({one_line(error)}); download the checkpoint again."
        ) from error
    if _depth_exceeds(raw, MAX_JSON_DEPTH):
        raise _too_deep(path)
    return raw


def is_gguf(path: Path) -> bool:
    """Return whether a checkpoint is a GGUF file instead of a folder, by its name."""
    return path.suffix.lower() == ".gguf" and not path.is_dir()


def check_regular(path: Path) -> None:
    """Check that a file is a regular one. A FIFO would be waited for, and a device may have no end.

    Raises:
        CheckpointError: it is a folder, FIFO, socket or device. A missing file is not an error.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise _not_regular(path, mode)


def check_files(folder: Path) -> None:
    """Check the files of a checkpoint's folder before libraries open them.

    Raises:
        CheckpointError: one is no regular file; see :func:`check_regular`.
    """
    for pattern in _FILES:
        for path in folder.glob(pattern):
            check_regular(path)


def shard_files(index: Path) -> dict[str, Path]:
    """Return the file of each tensor that an index of shards lists.

    Raises:
        CheckpointError: the file is no index, or names a file outside its folder.
    """
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
        raise CheckpointError(f"{index} is not an index of shards (no weight_map); download it again.")
    for file in set(names.values()):
        if file in ("", ".", "..") or Path(file).name != file or not file.isprintable():
            raise CheckpointError(
                f"{index}: weight_map names {shown(file)}; it must be a file of the same folder."
            )
        check_regular(index.parent / file)
    return {name: index.parent / file for name, file in names.items()}


@contextmanager
def checkpoint_errors(path: Path) -> Iterator[None]:
    """Turn the errors that a file's unexpected content causes into CheckpointError.

    Args:
        path: the file or folder, for the message.
    """
    try:
        yield
    except OpenAIError:
        raise
    except KeyError as error:
        raise CheckpointError(
            f"{path}: {shown(error.args[0] if error.args else None)} is missing; the file is not a complete "
            "config.json."
        ) from None
    except _UNEXPECTED as error:
        raise CheckpointError(
            f"{path}: a value has the wrong type or size ({type(error).__name__}: {one_line(error)})."
        ) from error


def whole_number(raw: Mapping[str, Any], name: str, path: Path, least: int, most: int) -> int:
    """Return a whole number of a ``config.json``.

    Args:
        raw: content of the file.
        name: the field.
        path: the file, for error messages.
        least, most: the allowed range.

    Raises:
        KeyError: the field is missing.
        CheckpointError: its value is no whole number or outside of the range.
    """
    value = raw[name]
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not least <= value <= most:
        raise CheckpointError(
            f"{path}: {name} is {shown(value)}; it must be a whole number from {least} to {most}."
        )
    return int(value)


def finite_number(
    table: Mapping[str, Any], name: str, default: float, path: Path, *, least: float = LEAST_FACTOR
) -> float:
    """Return a finite number of a ``config.json`` in the range that formulas can take.

    Args:
        table: content of the file, or a table in it.
        name: the field.
        default: returned if the field is missing or null.
        path: the file, for error messages.
        least: the smallest allowed number.

    Raises:
        CheckpointError: the value is no number or outside of the range.
    """
    value = table.get(name)
    if value is None:
        value = default
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= _MAX_FACTOR:
        raise CheckpointError(
            f"{path}: {name} is {shown(value)}; it must be a number from {least:g} to {_MAX_FACTOR:g}."
        )
    return float(value)


def shown(value: Any) -> str:
    """Return a value from a file for an error message: on one line, and shortened."""
    return _cut(_REPR.repr(value))


def label(value: Any) -> str:
    """Return a name from a file, or several, for an error message: without quotes if they are plain."""
    names = value if isinstance(value, list | tuple) else [value]
    plain = all(isinstance(name, str) and name.isprintable() for name in names)
    return _cut(", ".join(names)) if plain else shown(value)


def one_line(error: BaseException) -> str:
    """Return the first line of an exception's message, shortened."""
    lines = str(error).strip().splitlines()
    # repr() escapes control characters, which a file may use to rewrite the terminal.
    return _cut(lines[0] if lines and lines[0].isprintable() else repr(lines[0] if lines else ""))


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 100


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def _read(path: Path) -> bytes:
    """Read a regular file of bounded size. Opening a FIFO without O_NONBLOCK would wait for a writer."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(path, status.st_mode)
        if status.st_size > MAX_JSON_BYTES:
            raise CheckpointError(
                f"{path} has {status.st_size} bytes; at most {MAX_JSON_BYTES} are read. Download the "
                "checkpoint again."
            )
        return file.read(MAX_JSON_BYTES)


def _not_regular(path: Path, mode: int) -> CheckpointError:
    kinds = {stat.S_IFIFO: "FIFO", stat.S_IFDIR: "folder", stat.S_IFSOCK: "socket"}
    kind = kinds.get(stat.S_IFMT(mode), "device")
    return CheckpointError(f"{path} is a {kind}, not a regular file; download the checkpoint again.")


def _depth_exceeds(value: Any, limit: int) -> bool:
    """Return whether arrays and objects are nested deeper than the limit, without recursion."""
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _too_deep(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is nested more than {MAX_JSON_DEPTH} levels deep; download the checkpoint again."
    )
