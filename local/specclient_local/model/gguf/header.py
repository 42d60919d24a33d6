"""The header of a GGUF file: its metadata and its table of tensors, read as untrusted input.

Every count and length is compared with the bytes that are left in the file before anything is made of it. The
reader of the ``gguf`` package follows the counts that a header states, and makes several arrays of every
element of the metadata, about a million for a vocabulary of 128,000 tokens. So this module reads the header,
and the package has the tables of types and the formulas that turn blocks into numbers.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from specclient.errors import CheckpointError, ConfigurationError
from specclient_local.model.checkpoint_files import check_regular, label, shown

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
MAX_ELEMENTS = 2**22
"""Most elements of an array of the metadata; the largest vocabularies have 300,000 tokens and more merges."""
_MAX_TENSORS, _MAX_FIELDS, _MAX_DIMENSIONS, _MAX_NAME = 2**16, 2**12, 4, 2**10

_NUMBERED = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_MAX_FILES = 1000

_STRING, _ARRAY = 8, 9
_SCALARS: Mapping[int, np.dtype[Any]] = {
    0: np.dtype("<u1"), 1: np.dtype("<i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"), 4: np.dtype("<u4"),
    5: np.dtype("<i4"), 6: np.dtype("<f4"), 7: np.dtype("?"), 10: np.dtype("<u8"), 11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}  # fmt: skip

QUANTIZATIONS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K")
"""Types of tensors that are read."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """An entry of the table of tensors.

    Attributes:
        shape: as torch and numpy have it: the dimension that is contiguous in the file is the last.
        kind: the type's name, such as ``Q4_K``; its number if it has none.
        begin: first byte in the file; None if the size is unknown, as for an unknown type.
        size: bytes in the file.
        file: the file that has it, if a model is in several; None for the header's own.
    """

    shape: tuple[int, ...]
    kind: str
    begin: int | None = None
    size: int = 0
    file: Path | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GgufHeader:
    """The content of a header.

    Attributes:
        path: the file.
        values: the metadata: numbers, booleans, texts, arrays of numbers, and lists of texts.
        tensors: the tensors by name.
    """

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, GgufTensor] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """Return a value of the metadata.

        Raises:
            CheckpointError: it is missing.
        """
        if name not in self.values:
            raise CheckpointError(f"{self.path}: {name} is missing from its metadata; download it again.")
        return self.values[name]


def gguf_package() -> ModuleType:
    """Return the ``gguf`` package.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        import gguf  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "the model is a GGUF file, but gguf is not installed: pip install 'specclient[gguf]'"
        ) from error
    package: ModuleType = gguf
    return package


def read_header(path: Path) -> GgufHeader:
    """Read and check the header of a model. The last two headers are kept until their files change.

    A model in several files is named by the first one. Its metadata are those of the model, and the tables of
    tensors of all files are joined.

    Raises:
        CheckpointError: a file is missing, no regular file, truncated, or its header is invalid.
        ConfigurationError: the ``gguf`` package is not installed.
    """
    first = _read_header(*_version(path))
    count = first.values.get("split.count", 0)
    if count in (0, 1):
        return first
    return _joined(first, tuple(_version(each) for each in _files(path, count)))


def _version(path: Path) -> tuple[Path, int, int]:
    """Return a file with its size and its time of change."""
    check_regular(path)
    try:
        status = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); name a GGUF file.") from error
    return path, status.st_size, status.st_mtime_ns


def gguf_files(path: Path) -> list[Path]:
    """Return the files of a model by the name of one, whether they exist or not; nothing is read."""
    named = _NUMBERED.fullmatch(path.name)
    count = 1 if named is None else min(int(named[3]), _MAX_FILES)
    if named is None or not 1 <= int(named[2]) <= count:
        return [path]
    names = (f"{named[1]}-{number:05d}-of-{named[3]}{path.suffix}" for number in range(1, count + 1))
    return [path.with_name(name) for name in names]


def _files(path: Path, count: object) -> list[Path]:
    """Return the files of a model that is in several, given the first one."""
    named = _NUMBERED.fullmatch(path.name)
    if not isinstance(count, int) or not 1 < count <= _MAX_FILES or named is None or int(named[3]) != count:
        raise CheckpointError(
            f"{path} states that it is one of {shown(count)} files of a model; their names must end in "
            f"-00001-of-0000N.gguf, with N from 2 to {_MAX_FILES}."
        )
    names = [f"{named[1]}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
    if path.name != names[0]:
        raise CheckpointError(f"{path} is not the first file of its model; name {path.with_name(names[0])}.")
    return [path.with_name(name) for name in names]


@lru_cache(maxsize=2)
def _joined(first: GgufHeader, files: tuple[tuple[Path, int, int], ...]) -> GgufHeader:
    """Return a header with the tensors of all files of a model."""
    tensors: dict[str, GgufTensor] = {}
    for number, version in enumerate(files):
        header = first if number == 0 else _HeaderParser.of(version[0])
        own = (header.values.get("split.no"), header.values.get("split.count"))
        if own != (number, len(files)) or tensors.keys() & header.tensors.keys():
            raise CheckpointError(
                f"{version[0]} is not file {number + 1} of {len(files)} of its model; download it again."
            )
        tensors |= {name: replace(entry, file=version[0]) for name, entry in header.tensors.items()}
    stated = first.values.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise CheckpointError(
            f"{first.path}: its files have {len(tensors)} tensors, but it states {shown(stated)}; download "
            "them again."
        )
    return replace(first, tensors=tensors)


@lru_cache(maxsize=2)
def _read_header(path: Path, size: int, _changed: int) -> GgufHeader:
    del size
    return _HeaderParser.of(path)


class _HeaderParser:
    """Parses a header from its first byte on.

    Args:
        path: the file, for error messages.
        data: its bytes.
        package: the ``gguf`` package.
    """

    def __init__(self, path: Path, data: mmap.mmap, package: ModuleType) -> None:
        self._path, self._data, self._at = path, data, 0
        self._sizes: Mapping[Any, tuple[int, int]] = package.GGML_QUANT_SIZES
        self._kinds: Any = package.GGMLQuantizationType

    @classmethod
    def of(cls, path: Path) -> GgufHeader:
        """Return the header of a file."""
        package = gguf_package()
        with path.open("rb") as file:
            if (size := os.fstat(file.fileno()).st_size) < len(_MAGIC):
                raise CheckpointError(f"{path} has {size} bytes and is no GGUF file; download it again.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return cls(path, data, package).header()

    def header(self) -> GgufHeader:
        """Return the header."""
        if self._take(len(_MAGIC)) != _MAGIC:
            raise CheckpointError(f"{self._path} is no GGUF file; name one, or a folder with config.json.")
        version = self._number("<I")
        if version not in _VERSIONS:
            raise self._invalid(f"version {version}; supported are 2 and 3, little-endian")
        tensors = self._count("tensors", "<Q", _MAX_TENSORS, 24)
        fields = self._count("fields", "<Q", _MAX_FIELDS, 13)
        values: dict[str, Any] = {}
        for _ in range(fields):
            name = self._text(_MAX_NAME)
            if name in values:
                raise self._invalid(f"{label(name)} twice")
            values[name] = self._value(name)
        found = dict(self._entry() for _ in range(tensors))
        if len(found) < tensors:
            raise self._invalid("a tensor twice")
        return GgufHeader(
            self._path, values, self._placed(found, values.get("general.alignment", _ALIGNMENT))
        )

    def _value(self, name: str) -> Any:
        kind = self._number("<I")
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            (value,) = self._numbers(name, kind, 1).tolist()
            return value
        kind = self._number("<I")
        if kind == _STRING:
            count = self._count(f"elements of {label(name)}", "<Q", MAX_ELEMENTS, 8)
            return [self._text() for _ in range(count)]
        count = self._count(f"elements of {label(name)}", "<Q", MAX_ELEMENTS, 1)
        return self._numbers(name, kind, count)

    def _numbers(self, name: str, kind: int, count: int) -> np.ndarray[Any, np.dtype[Any]]:
        dtype = _SCALARS.get(kind)
        if dtype is None:
            raise self._invalid(f"a value of the unknown type {kind} in {label(name)}")
        return np.frombuffer(self._take(count * dtype.itemsize), dtype)

    def _entry(self) -> tuple[str, tuple[tuple[int, ...], int, int]]:
        """Return a tensor's name, and its shape, type and offset."""
        name = self._text(_MAX_NAME)
        count = self._count(f"dimensions of {label(name)}", "<I", _MAX_DIMENSIONS, 8)
        dimensions = [self._number("<Q") for _ in range(count)]
        return name, (tuple(reversed(dimensions)), self._number("<I"), self._number("<Q"))

    def _placed(
        self, entries: Mapping[str, tuple[tuple[int, ...], int, int]], alignment: object
    ) -> dict[str, GgufTensor]:
        """Return the tensors with their places in the file, which begin after the aligned header."""
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._invalid(f"general.alignment {shown(alignment)}; it must be a power of two")
        base = -(-self._at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, (shape, number, offset) in entries.items():
            try:
                kind = self._kinds(number)
            except ValueError:
                tensors[name] = GgufTensor(shape, str(number))
                continue
            block, size = self._sizes[kind]
            if not shape or shape[-1] % block:
                raise self._invalid(f"tensor {label(name)} of shape {list(shape)} in blocks of {block}")
            size = math.prod(shape) // block * size
            if offset % alignment or base + offset + size > len(self._data):
                raise self._invalid(
                    f"tensor {label(name)} at bytes {base + offset} to {base + offset + size}, but ends at "
                    f"{len(self._data)}"
                )
            tensors[name] = GgufTensor(shape, kind.name, base + offset, size)
        return tensors

    def _count(self, what: str, form: str, most: int, least_bytes: int) -> int:
        """Return a count of things of at least ``least_bytes`` each."""
        count = self._number(form)
        if count > min(most, (len(self._data) - self._at) // least_bytes):
            raise self._invalid(f"{count} {what}, more than it has room for or than the {most} allowed")
        return count

    def _number(self, form: str) -> int:
        value: int = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return value

    def _text(self, most: int | None = None) -> str:
        size = self._number("<Q")
        if most is not None and size > most:
            raise self._invalid(f"a name of {size} bytes")
        try:
            return self._take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise self._invalid("a text that is not UTF-8") from None

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise CheckpointError(f"{self._path}: the header is truncated; download it again.")
        self._at += size
        return self._data[self._at - size : self._at]

    def _invalid(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._path} states {what}; download it again.")
