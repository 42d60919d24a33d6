"""The common ground of wire objects: pydantic models that keep the unknown and forgive the odd."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

import pydantic
import pydantic_core
from pydantic import AfterValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from specclient.runtime.forks import import_lock
from specclient.types.odd import keep_odd

T = TypeVar("T")

if TYPE_CHECKING:
    # What the API promises, and what a type checker should hold users' code to.
    LenientInt = int
    LenientText = str
    LenientJsonText = str
    Lenient = Annotated[T, "may come in another shape"]
else:
    _LEFT = Field(union_mode="left_to_right")  # the right-hand type is only tried where the left one fails

    #: A number of seconds; some servers send fractions, which are cut off.
    LenientInt = Annotated[
        int | Annotated[float, Field(allow_inf_nan=False), AfterValidator(int)],
        _LEFT,
    ]
    #: Text; some servers (Mistral's reasoning models) send a list of parts, which is kept as it came.
    LenientText = Annotated[str | list[Any], _LEFT]
    #: JSON as text; some servers send the object itself, which becomes text.
    LenientJsonText = Annotated[str | Annotated[dict[str, Any], AfterValidator(json.dumps)], _LEFT]
    #: An object nobody's answer hangs on; one of another shape is kept as it came.
    Lenient = Annotated[T | Any, _LEFT]


class WireModel(pydantic.BaseModel):
    """An object as it came over the wire.

    Unknown fields are kept (``model_extra``, and in every dump), a missing one is its default or else
    ``None``, and a text that should be one of a few may be another. Schemas are built on first use, so
    importing the package stays cheap.
    """

    model_config = pydantic.ConfigDict(
        extra="allow", defer_build=True, protected_namespaces=(), coerce_numbers_to_str=True
    )

    #: The fields, as paths, that an answer is read by: what has another shape there is refused.
    vital: ClassVar[frozenset[tuple[str, ...]]] = frozenset()

    if TYPE_CHECKING:
        _request_id: str | None
        """The provider's id of the request, on what a call returned; nested objects have none."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _forgive(schema)
        return schema

    def attach_request_id(self, request_id: str | None) -> None:
        """Set the provider's id of the request, read as ``_request_id`` as in the ``openai`` package."""
        self._request_id = request_id

    @classmethod
    def received(cls, content: bytes) -> Self:
        """Return the object that ``content`` is as JSON.

        A null where a value belongs counts as left out, and what is of another kind than belongs there is
        kept as it came. Both are only looked for where validation fails, so an answer in order costs
        nothing more.

        Raises:
            pydantic.ValidationError: for what is no such object, and where something vital has another
                shape. It quotes its input, which may hold secrets.
        """
        if not cls.__pydantic_complete__:
            with import_lock:
                cls.model_rebuild()
        try:
            return cls.model_validate_json(content)
        except pydantic.ValidationError as error:
            return keep_odd(cls.model_validate, lambda: pydantic_core.from_json(content), error, cls.vital)

    @classmethod
    def construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """Return an object of these fields, nested mappings becoming objects; odd values are kept.

        Raises:
            pydantic.ValidationError: where something vital has another shape.
        """
        try:
            made = cls.model_validate(values)
        except pydantic.ValidationError as error:
            made = keep_odd(cls.model_validate, lambda: _copied(values), error, cls.vital)
        if _fields_set is not None:
            made.__pydantic_fields_set__.update(_fields_set)
        return made

    if not TYPE_CHECKING:  # the signatures differ in what they promise, not in what they take
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
        """Return the fields that were in the answer.

        Args:
            mode: ``json`` for values that JSON has only.
            use_api_names: keys as on the wire, not as the attributes are called.
            exclude_unset: without the fields that the answer did not have.
            exclude_defaults: without those that have their default value.
            exclude_none: without those that are ``None``.
            warnings: whether a value of an unexpected type is warned of.
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


def read_as(kind: Any) -> Callable[[bytes], Any]:
    """Return what turns JSON into an object of ``kind``, which may be a union; odd values are kept.

    The function raises ``pydantic.ValidationError`` for what is no such object.
    """
    adapter = pydantic.TypeAdapter(kind)

    def read(content: bytes) -> Any:
        try:
            return adapter.validate_json(content)
        except pydantic.ValidationError as error:
            return keep_odd(adapter.validate_python, lambda: pydantic_core.from_json(content), error)

    return read


def _copied(value: Any) -> Any:
    """Return a copy of nested mappings and lists, which may be changed."""
    if isinstance(value, Mapping):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copied(entry) for entry in value]
    return value


def _forgive(schema: Any) -> None:
    """Loosen a model's schema, in place: no field is required, and any text may stand for a literal one.

    The annotations say what the API promises; servers of other makers, and later versions, send other
    words and leave fields out.
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
    elif kind == "model-field" and schema["schema"]["type"] != "default":
        schema["schema"] = {"type": "default", "schema": schema["schema"], "default": None}
    for name, part in schema.items():
        if name not in ("metadata", "default", "cls"):
            _forgive(part)
