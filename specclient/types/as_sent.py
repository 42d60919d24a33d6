"""Objects with the fields exactly as a server sent them: nothing is converted, checked or filled in.

Responses are validated first, because the parts of this package need whole objects. A caller, however, gets
the values that the ``openai`` package would give: of a response that is not as documented, these functions
make another object, with None for a missing field and every other value unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import pydantic
import pydantic_core
from pydantic_core import PydanticUndefined
from typing_extensions import TypeAliasType

M = TypeVar("M", bound=pydantic.BaseModel)

#: The attribute with the JSON of an object that was not as documented, and of a chunk whose request has
#: ``keeps_received`` among its options.
RECEIVED = "_received"


def construct(kind: type[M], values: Mapping[str, Any], fields_set: set[str] | None = None) -> M:
    """Return an object with these values. Nested mappings become objects of the documented classes.

    Args:
        kind: the class.
        values: the fields by their names in the API; unknown ones are kept as extra fields.
        fields_set: names that count as set, in addition to those in ``values``.
    """
    if not kind.model_fields:  # an open class, which only adds attribute access to nested objects
        return kind.model_validate(values)
    state: dict[str, Any] = {}
    given = set() if fields_set is None else fields_set
    used = 0
    for name, alias, field, is_plain in _plan(kind):
        key = alias if alias in values else name
        if key in values:
            value = values[key]
            if not (is_plain or value is None):
                value = _converted(field.annotation, tuple(field.metadata), value)
            state[name] = value
            given.add(name)
            used += 1
        else:
            state[name] = _missing(kind, field)
    extra: dict[str, Any] = {}
    if used < len(values):
        known = {part for name, alias, _, _ in _plan(kind) for part in (name, alias)}
        extra = {key: value for key, value in values.items() if key not in known}
    private = {name: attribute.get_default() for name, attribute in kind.__private_attributes__.items()}
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", state)
    object.__setattr__(made, "__pydantic_fields_set__", given)
    object.__setattr__(made, "__pydantic_extra__", extra)
    object.__setattr__(made, "__pydantic_private__", private or None)
    return made


def read_as_sent(kind: Any, content: bytes) -> Any:
    """Return the JSON in a body as objects of a type, with every value as sent.

    Raises:
        ValueError: the body is not JSON.
    """
    return _converted(kind, (), pydantic_core.from_json(content))


def as_sent(value: Any) -> Any:
    """Return a decoded object with its fields as sent; the same object if all were as documented."""
    if not isinstance(value, pydantic.BaseModel):
        return value
    content = value.__dict__.get(RECEIVED)
    if content is None:
        return value
    body = pydantic_core.from_json(content)
    if not isinstance(body, dict):  # a page made of a bare list
        return value
    made = construct(type(value), body)
    if "_request_id" in value.__dict__:
        made.__dict__["_request_id"] = value.__dict__["_request_id"]
    object.__setattr__(made, "__pydantic_private__", value.__pydantic_private__)
    return made


def chunks_as_sent(chunks: list[Any]) -> list[Any]:
    """Return :func:`as_sent` of every chunk."""
    return [as_sent(chunk) for chunk in chunks]


@cache
def _plan(kind: type[pydantic.BaseModel]) -> list[tuple[str, str, Any, bool]]:
    """Return name, alias and description of a class's fields, and whether their values stay as they are."""
    return [
        (name, field.alias or name, field, _is_plain(field.annotation))
        for name, field in kind.model_fields.items()
    ]


def _is_plain(kind: Any) -> bool:
    """Return whether a type holds no type whose values are converted."""
    if isinstance(kind, TypeAliasType):
        return False  # it may be recursive
    if arguments := get_args(kind):
        return get_origin(kind) is Literal or all(_is_plain(each) for each in arguments)
    return not (_is_model(kind) or kind in (float, date, datetime))


def _missing(kind: type[pydantic.BaseModel], field: Any) -> Any:
    """Return the value of a field that was not sent: None, or the default in a class of the user's."""
    if kind.__module__.partition(".")[0] == "specclient":
        return None
    default = field.get_default(call_default_factory=True, validated_data={})
    return None if default is PydanticUndefined else default


def _converted(kind: Any, metadata: tuple[Any, ...], value: Any) -> Any:
    """Return a value with mappings as objects of the classes in ``kind``.

    Args:
        metadata: the annotations of ``kind``, such as the field that tells a union's members apart.
    """
    while isinstance(kind, TypeAliasType) or get_origin(kind) is Annotated:
        if isinstance(kind, TypeAliasType):
            kind = kind.__value__
        else:
            kind, *inner = get_args(kind)
            metadata = (*metadata, *inner)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _as_member(kind, metadata, value)
    if origin is list and isinstance(value, list):
        return [_converted(arguments[0], (), entry) for entry in value]
    if origin is dict and isinstance(value, Mapping):
        return {key: _converted(arguments[1], (), entry) for key, entry in value.items()}
    if isinstance(value, Mapping) and _is_model(kind):
        return construct(origin or kind, value) if kind.model_fields else kind.model_validate(value)
    if kind is float and type(value) is int and float(value) == value:
        return float(value)
    return _parsed_time(kind, value) if kind in (date, datetime) else value


def _as_member(union: Any, metadata: tuple[Any, ...], value: Any) -> Any:
    """Return a value as the member of a union that it belongs to."""
    if type(value) is int and int in get_args(union):
        return value
    members = [member for member in get_args(union) if _suits(member, value)]
    if len(members) < 2:
        return _converted(members[0], (), value) if members else value
    tag = next((mark.field for mark in metadata if hasattr(mark, "field")), None)
    if tag is not None and isinstance(value, Mapping):
        for member in members:
            field = getattr(member, "model_fields", {}).get(tag)
            if field is not None and value.get(tag) in get_args(field.annotation):
                return _converted(member, (), value)
    try:
        found = _adapter(Annotated[(union, *metadata)] if metadata else union).validate_python(value)
    except pydantic.ValidationError:
        return _converted(members[0], (), value)
    return _converted(type(found), (), value) if isinstance(found, pydantic.BaseModel) else found


def _suits(kind: Any, value: Any) -> bool:
    """Return whether a value may belong to a type by its shape: an object or an array of JSON."""
    if isinstance(kind, TypeAliasType):
        return _suits(kind.__value__, value)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _suits(arguments[0], value)
    if origin in (Union, UnionType):
        return any(_suits(member, value) for member in arguments)
    if isinstance(value, Mapping):
        return origin is dict or _is_model(kind)
    if isinstance(value, list):
        return origin is list
    return kind in (date, datetime) or (kind is float and isinstance(value, int))


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _parsed_time(kind: Any, value: Any) -> Any:
    try:
        return _adapter(kind).validate_python(value)
    except pydantic.ValidationError:
        return value


@cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)
