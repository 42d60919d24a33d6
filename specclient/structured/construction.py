"""Construction of wire models from values that are already valid, without validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar, get_args

import pydantic
from pydantic import PrivateAttr, SerializerFunctionWrapHandler, model_serializer
from pydantic_core import PydanticUndefined

from specclient.types.base import WireModel

M = TypeVar("M", bound=pydantic.BaseModel)


def build(kind: type[M], values: Mapping[str, Any]) -> M:
    """Return a model of type ``kind`` with ``values``, without validating them.

    Missing fields get their default or None. As in a decoded response, unknown names become extra fields, and
    only the names in ``values`` count as set.
    """
    fields = kind.model_fields
    state = {name: values[name] if name in values else _default(field) for name, field in fields.items()}
    extra = {name: value for name, value in values.items() if name not in fields}
    private = {name: attribute.get_default() for name, attribute in kind.__private_attributes__.items()}
    return _made(kind, state, {name for name in values if name in fields}, extra, private or None)


def event(kind: type[M], **values: Any) -> M:
    """Return a model of type ``kind``. Faster than :func:`build`, but ``values`` must contain every field."""
    return _made(kind, values, set(values), {}, None)


def recast(source: pydantic.BaseModel, kind: type[M], *, without: Iterable[str] = (), **changes: Any) -> M:
    """Return ``source`` as a model of type ``kind``, with its fields, extras and private attributes.

    The copy is shallow.

    Args:
        source: the model to convert.
        kind: the type of the result.
        without: names of fields to leave out.
        changes: values that replace those of ``source``.
    """
    fields = kind.model_fields
    left = set(without)
    state = {name: value for name, value in source.__dict__.items() if name in fields and name not in left}
    state.update({name: _default(field) for name, field in fields.items() if name not in state})
    state.update(changes)
    given = {name for name in source.model_fields_set if name in fields and name not in left} | set(changes)
    extra = {
        name: value
        for name, value in (source.model_extra or {}).items()
        if name not in fields and name not in left
    }
    return _made(kind, state, given, extra, _private(source, kind))


def merge_extras(into: pydantic.BaseModel, source: pydantic.BaseModel) -> None:
    """Copy the extra fields of a later part of a response into ``into``. Null values are skipped."""
    if (extra := source.model_extra) and into.__pydantic_extra__ is not None:
        fields = type(into).model_fields
        new = {name: value for name, value in extra.items() if value is not None and name not in fields}
        into.__pydantic_extra__.update(new)


def mark_set(model: pydantic.BaseModel, *, but: str = "") -> None:
    """Mark every field of ``model`` and of its nested models as set, except the field named ``but``."""
    names = set(type(model).model_fields)
    model.model_fields_set.update(names - {but})
    for name in names:
        value = model.__dict__.get(name)
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, pydantic.BaseModel):
                mark_set(part)


def construct(annotation: Any, value: Any) -> Any:
    """Convert plain ``value`` to the models in ``annotation``, without validation.

    A value for which ``annotation`` has no model is returned unchanged.
    """
    if isinstance(value, Mapping):
        kind = _model_in(annotation)
        if kind is None:
            return value
        known = {name: kind.model_fields[name].annotation for name in value if name in kind.model_fields}
        return build(kind, {**value, **{name: construct(hint, value[name]) for name, hint in known.items()}})
    if isinstance(value, list):
        return [construct(annotation, part) for part in value]
    return value


def _model_in(annotation: Any) -> type[pydantic.BaseModel] | None:
    """Return the first model class in ``annotation`` (an optional, a list, a union); None if it has none."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    return next((kind for part in get_args(annotation) if (kind := _model_in(part)) is not None), None)


def _default(field: pydantic.fields.FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True, validated_data={})
    return None if value is PydanticUndefined else value


def _private(source: pydantic.BaseModel, kind: type[pydantic.BaseModel]) -> dict[str, Any] | None:
    kept = source.__pydantic_private__ or {}
    names = kind.__private_attributes__
    return {name: kept.get(name, attribute.get_default()) for name, attribute in names.items()} or None


def _made(
    kind: type[M],
    state: dict[str, Any],
    given: set[str],
    extra: dict[str, Any],
    private: dict[str, Any] | None,
) -> M:
    """Return a model with this state. Equivalent to ``model_construct``, in a third of its time."""
    made = kind.__new__(kind)
    put = object.__setattr__
    put(made, "__dict__", state)
    put(made, "__pydantic_fields_set__", given)
    put(made, "__pydantic_extra__", extra)
    put(made, "__pydantic_private__", private)
    return made


class LazyFieldsModel(WireModel):
    """A model with fields that are computed when they are read.

    Parsing the text received so far takes time proportional to its length. Parsing it for every chunk would
    make a stream of n chunks take O(n²) time. Therefore a field is computed only when it is read, once;
    ``live`` fields are computed on every read.
    """

    live: ClassVar[frozenset[str]] = frozenset()
    _late: dict[str, Callable[[], Any]] = PrivateAttr(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        work = (self.__pydantic_private__ or {}).get("_late", {}).get(name)
        if work is None:
            return super().__getattr__(name)  # type: ignore[misc]  # pydantic hides it from type checkers
        value = work()
        if name not in self.live:
            self.__dict__[name] = value
        return value

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Put every computed field into ``__dict__``, where pydantic expects it."""
        late = [
            name for name in (self.__pydantic_private__ or {}).get("_late", {}) if name not in self.__dict__
        ]
        self.__dict__.update({name: getattr(self, name) for name in late})
        try:
            yield
        finally:
            for name in self.live.intersection(late):
                del self.__dict__[name]

    @model_serializer(mode="wrap")
    def _dumped(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        with self._whole():
            dumped: dict[str, Any] = handler(self)
            return dumped

    def __repr_args__(self) -> Any:
        with self._whole():
            return [*super().__repr_args__()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LazyFieldsModel) or type(other) is not type(self):
            return NotImplemented
        with self._whole(), other._whole():
            return self.__dict__ == other.__dict__ and self.model_extra == other.model_extra

    __hash__ = None  # type: ignore[assignment]


def lazy_event(kind: type[M], late: Mapping[str, Callable[[], Any]], **values: Any) -> M:
    """Return an :func:`event` of a :class:`LazyFieldsModel` type.

    Args:
        kind: the type of the event.
        late: functions that compute the fields to be computed when they are read.
        values: all other fields.
    """
    return _made(kind, values, {*values, *late}, {}, {"_late": dict(late)})
