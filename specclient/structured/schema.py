"""Strict JSON schemas for Python types, and decoding of response texts into those types.

Supported by strict mode: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import pydantic
from typing_extensions import is_typeddict

from specclient.types.params import is_given

TextParser = Callable[[str], Any]

#: Keywords that identify a plain JSON schema without a ``type``; the API's own response formats have none.
_SCHEMA_WORDS = ("properties", "$ref", "$defs", "anyOf", "allOf")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST_NAME = 64


def is_set(value: object) -> bool:
    """Return whether a parameter has a value: it is given, and not None."""
    return value is not None and is_given(value)


def is_model(kind: object) -> TypeGuard[type[pydantic.BaseModel]]:
    """Return whether ``kind`` is a pydantic model class."""
    return inspect.isclass(kind) and issubclass(kind, pydantic.BaseModel)


def is_json_schema(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether ``value`` is a plain JSON schema of an object, not a response format of the API."""
    if not isinstance(value, Mapping):
        return False
    return value["type"] == "object" if "type" in value else any(word in value for word in _SCHEMA_WORDS)


def to_strict_json_schema(model: type[pydantic.BaseModel] | pydantic.TypeAdapter[Any]) -> dict[str, Any]:
    """Return the JSON schema of ``model`` for strict mode: no additional properties, all fields required.

    Raises:
        TypeError: ``model`` is neither a pydantic model class nor a ``TypeAdapter``.
    """
    if is_model(model):
        return strict_schema(model.model_json_schema())
    if isinstance(model, pydantic.TypeAdapter):
        return strict_schema(model.json_schema())
    raise TypeError(f"{model!r} has no JSON schema; give a pydantic model or a pydantic.TypeAdapter")


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a strict copy of a JSON schema.

    Raises:
        ValueError: a ``$ref`` does not refer to a schema.
        TypeError: a value that must be a schema is not a JSON object.
    """
    return _strict(schema, schema, ())


def _strict(node: object, root: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    """Return ``node`` made strict. ``inside`` holds the references being expanded, each at most once."""
    if not isinstance(node, Mapping):
        raise TypeError(f"{node!r} is not a JSON schema; a schema is a JSON object")
    made = dict(node)
    if made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    for key in ("$defs", "definitions", "properties"):
        if isinstance(made.get(key), Mapping):
            made[key] = {name: _strict(part, root, inside) for name, part in made[key].items()}
    if isinstance(made.get("properties"), Mapping):
        made["required"] = list(made["properties"])
    if isinstance(made.get("items"), Mapping):
        made["items"] = _strict(made["items"], root, inside)
    for key in ("anyOf", "allOf"):
        if isinstance(made.get(key), list):
            made[key] = [_strict(part, root, inside) for part in made[key]]
    if isinstance(made.get("allOf"), list) and len(made["allOf"]) == 1:
        made.update(made.pop("allOf")[0])
    if "default" in made and made["default"] is None:
        del made["default"]  # redundant: the field is nullable
    return _unrolled(made, root, inside)


def _unrolled(made: dict[str, Any], root: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    """Replace a ``$ref`` by its target if there are other keywords in ``made``; strict mode forbids both."""
    ref = made.get("$ref")
    if not ref or len(made) == 1:
        return made
    if ref in inside:
        return {"$ref": ref}  # a recursive type cannot be expanded; the other keywords are dropped
    del made["$ref"]
    return _strict({**_target(ref, root), **made}, root, (*inside, ref))


def _target(ref: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    node: Any = root
    if not isinstance(ref, str) or not ref.startswith("#/"):
        raise ValueError(f"$ref {ref!r} cannot be followed; it must begin with '#/'")
    for step in ref[2:].split("/"):
        node = node.get(step) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        raise ValueError(f"$ref {ref!r} does not refer to a schema")  # noqa: TRY004 - the schema is wrong, not a type
    return node


def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    plain = inspect.isclass(kind) and (dataclasses.is_dataclass(kind) or is_typeddict(kind))
    if plain or hasattr(kind, "__pydantic_config__"):
        return pydantic.TypeAdapter(kind)
    raise TypeError(
        f"Unsupported response_format type - {kind!r}; give a pydantic model, a dataclass, a TypedDict, "
        "a JSON schema, or a response format as the API takes it"
    )


def decoder(response_format: object) -> TextParser | None:
    """Return the function that decodes a response's text into ``response_format``; None without parsing.

    Text for one of the API's own formats (``{"type": "json_schema", …}``) is not parsed, as in the OpenAI
    client. Text for a plain JSON schema is decoded as JSON. There is no cache, so a type created for one call
    is freed after the call.

    Raises:
        TypeError: ``response_format`` is a type without a JSON schema.
    """
    if not is_set(response_format):
        return None
    if isinstance(response_format, Mapping):
        return json.loads if is_json_schema(response_format) else None
    if is_model(response_format):
        return response_format.model_validate_json
    return _adapter(response_format).validate_json


def _named_schema(response_format: Any) -> dict[str, Any]:
    """Return the ``name``, ``schema`` and ``strict`` fields for a type or a plain JSON schema."""
    if isinstance(response_format, Mapping):
        title = _NOT_IN_A_NAME.sub("_", str(response_format.get("title") or "response"))
        return {
            "name": title[:_LONGEST_NAME],
            "schema": strict_schema(response_format),
            "strict": True,
        }
    source = response_format if is_model(response_format) else _adapter(response_format)
    return {"name": response_format.__name__, "schema": to_strict_json_schema(source), "strict": True}


def chat_format(response_format: Any) -> Any:
    """Return the ``response_format`` of a chat request.

    A value that is not given, or is a format of the API already, is returned unchanged.

    Raises:
        TypeError: ``response_format`` is a type without a JSON schema.
    """
    if not is_set(response_format):
        return response_format
    if isinstance(response_format, Mapping) and not is_json_schema(response_format):
        return response_format
    return {"type": "json_schema", "json_schema": _named_schema(response_format)}


def text_format_param(text_format: Any) -> dict[str, Any]:
    """Return the ``text.format`` of a request to the Responses API.

    Raises:
        TypeError: ``text_format`` is a type without a JSON schema.
    """
    if isinstance(text_format, Mapping) and not is_json_schema(text_format):
        return dict(text_format)
    return {"type": "json_schema", **_named_schema(text_format)}
