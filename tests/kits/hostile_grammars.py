"""Grammars that overflow the stack of their compiler, or that are large in some other way."""

from __future__ import annotations

import json
from typing import Any


def chained_rules(count: int) -> str:
    """Return a Lark grammar whose rules each name the next."""
    rules = [f'rule{i}: "a" rule{i + 1}' for i in range(count)]
    return "\n".join(["start: rule0", *rules, f'rule{count}: "b"', ""])


def chained_gbnf(count: int) -> str:
    """Return a GBNF grammar whose rules each name the next."""
    rules = [f'rule{i} ::= "a" rule{i + 1}' for i in range(count)]
    return "\n".join(["root ::= rule0", *rules, f'rule{count} ::= "b"', ""])


def chained_references(count: int, padding: int = 0) -> dict[str, Any]:
    """Return a schema with definitions that each refer to the next in a property."""
    definitions: dict[str, Any] = {
        f"d{i}": {
            "type": "object",
            "description": "x" * padding,
            "properties": {"next": {"$ref": f"#/$defs/d{i + 1}"}},
            "required": ["next"],
        }
        for i in range(count)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": {"type": "null"}}}


def chained_choices(count: int) -> dict[str, Any]:
    """Return a schema with definitions that each choose between null and the next."""
    definitions: dict[str, Any] = {
        f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"type": "null"}]} for i in range(count)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": {"type": "null"}}}


def nested_objects(count: int) -> dict[str, Any]:
    """Return a schema of objects within each other."""
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(count):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the parameter that makes an answer match a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def size(schema: dict[str, Any]) -> int:
    """Return the number of bytes of a schema as JSON."""
    return len(json.dumps(schema))
