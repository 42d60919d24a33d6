"""Names for the types of arguments, as the `openai` package's ``_types`` has them; for annotations."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeAlias, TypeVar, overload

import pydantic
from typing_extensions import TypeVar as TypeVarWithDefault

from specclient.types.params import Omit

T_co = TypeVar("T_co", covariant=True)
ModelT = TypeVar("ModelT", bound=pydantic.BaseModel)
#: What a method returns; not bound, as ``cast_to`` takes any type that pydantic validates.
ResponseT = TypeVar("ResponseT")
#: The type of parsed text.
ResponseFormatT = TypeVarWithDefault("ResponseFormatT", default=None)
TextFormatT = TypeVarWithDefault("TextFormatT", default=None)

Query: TypeAlias = Mapping[str, object]
Body: TypeAlias = object
AnyMapping: TypeAlias = Mapping[str, object]
Headers: TypeAlias = Mapping[str, str | Omit]
NoneType = type(None)

FileContent: TypeAlias = IO[bytes] | bytes | PathLike[str]
Base64FileInput: TypeAlias = IO[bytes] | PathLike[str]
BinaryTypes: TypeAlias = bytes | bytearray | IO[bytes] | Iterable[bytes]
AsyncBinaryTypes: TypeAlias = bytes | bytearray | IO[bytes] | AsyncIterable[bytes]
#: A file, alone or with its name, its content type, and headers of its part of the form.
FileTypes: TypeAlias = (
    FileContent
    | tuple[str | None, FileContent]
    | tuple[str | None, FileContent, str | None]
    | tuple[str | None, FileContent, str | None, Mapping[str, str]]
)
RequestFiles: TypeAlias = Mapping[str, FileTypes] | Sequence[tuple[str, FileTypes]]

StrBytesIntFloat: TypeAlias = str | bytes | int | float
ArrayFormat: TypeAlias = Literal["comma", "repeat", "indices", "brackets"]
NestedFormat: TypeAlias = Literal["dots", "brackets"]
PostParser: TypeAlias = Callable[[Any], Any]


class HeadersLike(Protocol):
    """Headers that can be looked up by name."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a header; None if it is absent."""
        ...


if TYPE_CHECKING:

    class SequenceNotStr(Protocol[T_co]):
        """A sequence, but no string: ``str.__contains__`` does not take every object."""

        @overload
        def __getitem__(self, index: SupportsIndex, /) -> T_co: ...
        @overload
        def __getitem__(self, index: slice, /) -> Sequence[T_co]: ...
        def __contains__(self, value: object, /) -> bool: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Any: ...
        def __reversed__(self) -> Any: ...

else:
    SequenceNotStr = Sequence
