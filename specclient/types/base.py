"""The base class of API objects: pydantic models that keep unknown fields and tolerate malformed values."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

import pydantic
import pydantic_core
from pydantic import AfterValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from specclient.runtime.forks import import_lock
from specclient.runtime.official_classes import SeenAsOfficial
from specclient.types.as_sent import RECEIVED, construct
from specclient.types.odd import keep_odd
from specclient.types.official import namesakes

T = TypeVar("T")

_NO_MODEL: Any = object()


class _FilledIn(threading.local):
    """Whether a value was filled in or converted in this thread since ``any`` was set to False."""

    any = False


_filled_in = _FilledIn()


def _noting(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``convert`` as a validator that notes its use, because a caller gets the value as sent."""

    def converted(value: Any) -> Any:
        _filled_in.any = True
        return convert(value)

    return converted


if TYPE_CHECKING:
    # The types that the API documents, for type checkers.
    LenientInt = int
    LenientText = str
    LenientJsonText = str
    Lenient = Annotated[T, "may come in another shape"]
else:
    _LEFT = Field(union_mode="left_to_right")  # try the right-hand type only if the left one fails

    #: A whole number, such as seconds; the fractions that some servers send are cut off.
    LenientInt = Annotated[
        int | Annotated[float, Field(allow_inf_nan=False), AfterValidator(_noting(int))],
        _LEFT,
    ]
    #: Text; the list of parts that some servers send (Mistral's reasoning models) is kept unchanged.
    LenientText = Annotated[str | list[Any], _LEFT]
    #: JSON as text; an object, which some servers send, is converted to text.
    LenientJsonText = Annotated[str | Annotated[dict[str, Any], AfterValidator(_noting(json.dumps))], _LEFT]
    #: An optional object; malformed values are kept unchanged.
    Lenient = Annotated[T | Any, _LEFT]


class WireModel(SeenAsOfficial, pydantic.BaseModel):
    """An object of the API.

    Unknown fields are kept in ``model_extra`` and in every dump. A missing field has its default value, or
    ``None``. A literal text field accepts any text. Schemas are built on first use, to keep imports fast.
    """

    model_config = pydantic.ConfigDict(
        extra="allow", defer_build=True, protected_namespaces=(), coerce_numbers_to_str=True
    )

    #: Required fields, as paths: a malformed value there is an error.
    vital: ClassVar[frozenset[tuple[str, ...]]] = frozenset()

    if TYPE_CHECKING:
        _request_id: str | None = None
        """The provider's id of the request, on the object that a call returned; None on nested objects."""

    @classmethod
    def official_classes(cls, package: Any) -> Sequence[Any]:
        """Return the classes with the path of this one or of its first base class that has a namesake."""
        found = (official for base in cls.__mro__ if (official := namesakes(base)))
        return next(found, None) or [package.BaseModel]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _forgive(schema)
        return schema

    def attach_request_id(self, request_id: str | None) -> None:
        """Set the provider's id of the request, read as ``_request_id`` as in the ``openai`` package."""
        self.__dict__["_request_id"] = request_id  # pydantic's assignment takes microseconds

    @classmethod
    def received(cls, content: bytes) -> Self:
        """Return the object in a JSON text.

        A null in place of a value counts as missing, and a value of another type is kept unchanged. Both are
        handled only if validation fails, so that valid responses cost no extra time. Such an object keeps its
        JSON for :func:`specclient.types.as_sent.as_sent`.

        Raises:
            pydantic.ValidationError: the text is not such an object, or a required field is malformed. The
                error quotes its input, which may hold secrets.
        """
        if not cls.__pydantic_complete__:
            with import_lock:
                cls.model_rebuild()
        _filled_in.any = False
        try:
            made: Self = cls.__pydantic_validator__.validate_json(content, strict=True)
        except pydantic.ValidationError:
            made = cls._tolerated(content)
        else:
            if not _filled_in.any:
                return made
        made.__dict__[RECEIVED] = content
        return made

    @classmethod
    def _tolerated(cls, content: bytes) -> Self:
        """Return the object in a JSON text whose values are not all of the documented types."""
        try:
            return cls.model_validate_json(content)
        except pydantic.ValidationError as error:
            return keep_odd(cls.model_validate, lambda: pydantic_core.from_json(content), error, cls.vital)

    @classmethod
    def construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """Return an object with exactly these values; nested mappings become objects.

        Nothing is checked or converted, and a missing field is None, as in the ``openai`` package.
        """
        return construct(cls, values, _fields_set)

    @classmethod
    def with_defaults(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """Return an object with these fields and the defaults of the others; malformed values are kept.

        Raises:
            pydantic.ValidationError: a required field is malformed.
        """
        try:
            made = cls.model_validate(values)
        except pydantic.ValidationError as error:
            made = keep_odd(cls.model_validate, lambda: _copied(values), error, cls.vital)
        if _fields_set is not None:
            made.__pydantic_fields_set__.update(_fields_set)
        return made

    if not TYPE_CHECKING:  # the signatures differ in their types only
        model_construct = construct

    def to_dict(
        self,
        *,
        mode: Literal["json", "python"] = "python",
        use_api_names: bool = True,
        exclude_unset: bool = True,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
        warnings: bool = True,
    ) -> dict[str, Any]:
        """Return the fields that the response contains.

        Args:
            mode: ``json`` for JSON types only.
            use_api_names: whether keys are the names of the API instead of the attributes.
            exclude_unset: omit the fields that the response does not contain.
            exclude_defaults: omit the fields with their default value.
            exclude_none: omit the fields that are ``None``.
            warnings: whether to warn of values of unexpected types.
        """
        return self.model_dump(
            mode=mode,
            by_alias=use_api_names,
            exclude_unset=exclude_unset,
            exclude_defaults=exclude_defaults,
            exclude_none=exclude_none,
            warnings=warnings,
        )

    def to_json(
        self,
        *,
        indent: int | None = 2,
        use_api_names: bool = True,
        exclude_unset: bool = True,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
        warnings: bool = True,
    ) -> str:
        """Return :meth:`to_dict` as JSON text; ``indent`` is in spaces, None for one line."""
        return self.model_dump_json(
            indent=indent,
            by_alias=use_api_names,
            exclude_unset=exclude_unset,
            exclude_defaults=exclude_defaults,
            exclude_none=exclude_none,
            warnings=warnings,
        )

    def __str__(self) -> str:
        return repr(self)


def field_of(container: Any, name: str) -> Any:
    """Return a field of a mapping or a wire object, undeclared ones included; None where it is absent."""
    extra = getattr(container, "__pydantic_extra__", _NO_MODEL)  # pydantic's isinstance is slow
    if extra is not _NO_MODEL:
        declared = container.__dict__
        return declared[name] if name in declared else (extra or {}).get(name)
    return container.get(name) if isinstance(container, Mapping) else None


def read_as(kind: Any) -> Callable[[bytes], Any]:
    """Return a function that parses JSON as a type, which may be a union; malformed values are kept.

    The function raises ``pydantic.ValidationError`` if the JSON is not of that type.
    """
    adapter = pydantic.TypeAdapter(kind)

    def read(content: bytes) -> Any:
        try:
            return adapter.validate_json(content)
        except pydantic.ValidationError as error:
            return keep_odd(adapter.validate_python, lambda: pydantic_core.from_json(content), error)

    return read


def _copied(value: Any) -> Any:
    """Return a mutable copy of nested mappings and lists."""
    if isinstance(value, Mapping):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copied(entry) for entry in value]
    return value


def _set_default(field: dict[str, Any]) -> None:
    """Make a field optional, and note each use of a default that a caller does not get; in place."""
    schema = field["schema"]
    if schema["type"] != "default":
        field["schema"] = {"type": "default", "schema": schema, "default": None}
        return
    if (value := schema.get("default")) is not None:
        del schema["default"]
    elif (factory := schema.get("default_factory")) is None:
        return

    def default() -> Any:
        _filled_in.any = True
        return factory() if value is None else value

    schema["default_factory"] = default


def _forgive(schema: Any) -> None:
    """Relax a model's schema, in place: no field is required, and literal fields accept any text.

    The annotations state what the API documents. Other servers and later versions omit fields and send other
    values.
    """
    if isinstance(schema, list | tuple):
        for part in schema:
            _forgive(part)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind == "literal" and all(isinstance(word, str) for word in schema["expected"]):
        del schema["expected"]
        schema["type"] = "str"
    elif kind == "model-field":
        _set_default(schema)
    for name, part in schema.items():
        if name not in ("metadata", "default", "cls"):
            _forgive(part)
