"""A JSON schema as the parameter ``response_format``, strict where OpenAI's strict mode takes it.

https://platform.openai.com/docs/guides/structured-outputs#supported-schemas: every object names all its
properties, requires them all, and allows no others.
"""

from __future__ import annotations

from typing import Any

__all__ = ["schema_format"]


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the parameter ``response_format`` for a schema, strict if it may be.

    Other schemas are sent without strict mode, instead of being refused; engines follow every schema.
    """
    named = {"name": "output", "schema": schema, "strict": _is_strict(schema)}
    return {"type": "json_schema", "json_schema": named}


def _is_strict(schema: object) -> bool:
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or properties is not None:
        required = schema.get("required")
        if not isinstance(properties, dict) or not isinstance(required, list):
            return False
        if schema.get("additionalProperties") is not False or any(
            name not in required for name in properties
        ):
            return False
    return all(map(_is_strict, schema.values()))
