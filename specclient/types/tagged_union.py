"""Unions of models that are distinguished by a literal field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from specclient.types.base import WireModel
from specclient.types.odd import TAGGED, UNKNOWN
from specclient.types.open import OpenObject


@dataclass(frozen=True, slots=True)
class TaggedUnion:
    """Marks a union whose members differ by a literal field: ``Annotated[A | B, TaggedUnion("type")]``.

    A mapping with an unknown tag becomes an :class:`OpenObject`; one without a tag, the first member.
    Members without the field, such as ``str``, are tried after the others.
    """

    field: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        members = get_args(source) if get_origin(source) in (Union, UnionType) else (source,)
        tagged: dict[str, CoreSchema] = {}
        first: type[WireModel] | None = None
        others: list[CoreSchema] = []
        for member in members:
            words = _words(member, self.field)
            if words:
                first = first or member
                tagged |= dict.fromkeys(words, handler.generate_schema(member))
            else:
                others.append(handler.generate_schema(member))
        known = core_schema.tagged_union_schema(tagged, self.field)

        def other(value: Any) -> Any:
            tag = value.get(self.field) if isinstance(value, Mapping) else None
            if not isinstance(value, Mapping) or (isinstance(tag, str) and tag in tagged):
                raise PydanticCustomError("known_tag", "not of an unknown kind")
            kind = first if first is not None and tag is None else OpenObject
            return kind.model_validate(value)

        return core_schema.union_schema(
            [(known, TAGGED), *others, (core_schema.no_info_plain_validator_function(other), UNKNOWN)],
            mode="left_to_right",
            serialization=core_schema.simple_ser_schema("any"),
        )


def _words(member: Any, field: str) -> list[str]:
    """Return the literal values of a type's field; empty if it has no such field."""
    if not (isinstance(member, type) and issubclass(member, WireModel)):
        return []
    info = member.model_fields.get(field)
    words = get_args(info.annotation) if info is not None else ()
    return [word for word in words if isinstance(word, str)]
