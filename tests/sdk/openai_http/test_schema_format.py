"""Schemas that OpenAI's strict mode takes, and others."""

from __future__ import annotations

from typing import Any

import pytest

from specclient.openai_http.schema_format import schema_format

TEXT: Any = {"type": "string"}
CLOSED: Any = {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (TEXT, True),
        (CLOSED, True),
        ({"type": "array", "items": CLOSED}, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({"type": "object"}, False),
        ({"type": ["object", "null"], "properties": {"a": TEXT}}, False),
        ({**CLOSED, "properties": {"a": {"type": "object", "properties": {}}}}, False),
        ({"anyOf": [CLOSED, {"properties": {"b": TEXT}}]}, False),
    ],
)
def test_only_closed_objects_with_required_properties_are_strict(schema: Any, strict: bool) -> None:
    form = schema_format(schema)
    assert form["type"] == "json_schema"
    assert form["json_schema"] == {"name": "output", "schema": schema, "strict": strict}
