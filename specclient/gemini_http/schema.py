"""Gemini's schemas, a subset of OpenAPI's, as JSON schemas: https://ai.google.dev/api/caching#Schema."""

from __future__ import annotations

from typing import Any

from specclient.gemini_http.fields import camel_case

__all__ = ["json_schema_of"]

#: Fields that hold one schema, a list of schemas, or schemas by name.
_ONE, _MANY, _NAMED = ("items",), ("anyOf",), ("properties",)
#: Fields that JSON schemas lack, or that say nothing about the value.
_LEFT_OUT = frozenset({"propertyOrdering", "nullable", "example"})
#: Counts, which Protobuf's JSON may write as texts.
_COUNTS = frozenset({"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"})


def json_schema_of(schema: object) -> Any:
    """Return a JSON schema, whose objects have no other properties than the named ones.

    A value that is not a schema is returned as it is, for the caller to refuse.
    """
    if not isinstance(schema, dict):
        return schema
    given = {camel_case(name): value for name, value in schema.items() if value is not None}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name == "type" and isinstance(value, str):
            found["type"] = value.lower()
        elif name in _ONE:
            found[name] = json_schema_of(value)
        elif name in _MANY and isinstance(value, list):
            found[name] = [json_schema_of(each) for each in value]
        elif name in _NAMED and isinstance(value, dict):
            found[name] = {inner: json_schema_of(each) for inner, each in value.items()}
        elif name in _COUNTS and isinstance(value, str) and value.isdigit():
            found[name] = int(value)
        elif name not in _LEFT_OUT:
            found[name] = value
    if found.get("type") == "type_unspecified":
        del found["type"]
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    if given.get("nullable") is True and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
        if isinstance(found.get("enum"), list):
            found["enum"] = [*found["enum"], None]
    return found
