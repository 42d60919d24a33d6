"""Turn a Python type, or a JSON schema, into the strict schema for the API, and an answer's text back.

What strict mode allows: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
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

from specclient.types.params import NotGiven, Omit

TextParser = Callable[[str], Any]

#: Keywords by which a plain JSON schema without a ``type`` is told from the API's own response formats.
_SCHEMA_WORDS = ("properties", "$ref", "$defs", "anyOf", "allOf")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST_NAME = 64


def is_given(value: object) -> bool:
    """Tell whether a parameter was given; ``None`` asks for nothing here, so it counts as not given."""
    return value is not None and not isinstance(value, NotGiven | Omit)


def is_model(kind: object) -> TypeGuard[type[pydantic.BaseModel]]:
    """Tell whether ``kind`` is a class of pydantic models."""
    return inspect.isclass(kind) and issubclass(kind, pydantic.BaseModel)


def is_json_schema(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Tell a plain JSON schema of an object from a response format as the API itself takes it."""
    if not isinstance(value, Mapping):
        return False
    return value["type"] == "object" if "type" in value else any(word in value for word in _SCHEMA_WORDS)


def to_strict_json_schema(model: type[pydantic.BaseModel] | pydantic.TypeAdapter[Any]) -> dict[str, Any]:
    """Return the JSON schema of ``model`` as strict mode wants it: closed objects, all fields required.

    Raises:
        TypeError: for anything that is neither a pydantic model nor a ``TypeAdapter``.
    """
    if is_model(model):
        return strict_schema(model.model_json_schema())
    if isinstance(model, pydantic.TypeAdapter):
        return strict_schema(model.json_schema())
    raise TypeError(f"{model!r} has no JSON schema; give a pydantic model or a pydantic.TypeAdapter")


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema made strict; ``schema`` itself is left as it is.

    Raises:
        ValueError: for a ``$ref`` that leads nowhere.
        TypeError: where a schema belongs and none is.
    """
    return _strict(schema, schema, ())


def _strict(node: object, root: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    """Return ``node`` made strict; ``inside`` are the references that led here, none unrolled twice."""
    if not isinstance(node, Mapping):
        raise TypeError(f"{node!r} is no JSON schema; a schema is a JSON object")
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
        del made["default"]  # the field stays nullable, which says the same
    return _unrolled(made, root, inside)


def _unrolled(made: dict[str, Any], root: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    """Return ``made`` with a ``$ref`` that has keywords beside it, which strict mode forbids, unrolled."""
    ref = made.get("$ref")
    if not ref or len(made) == 1:
        return made
    if ref in inside:
        return {"$ref": ref}  # a type inside itself has no finite unrolling: what stood beside is dropped
    del made["$ref"]
    return _strict({**_target(ref, root), **made}, root, (*inside, ref))


def _target(ref: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    node: Any = root
    if not isinstance(ref, str) or not ref.startswith("#/"):
        raise ValueError(f"$ref {ref!r} cannot be followed; it must begin with '#/'")
    for step in ref[2:].split("/"):
        node = node.get(step) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        raise ValueError(f"$ref {ref!r} leads to no schema")  # noqa: TRY004 - the schema is wrong, not a type
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
    """Return what turns an answer's text into a ``response_format``; None where nothing is to be parsed.

    The API's own formats (``{"type": "json_schema", …}``) leave the text as it is, as the OpenAI client
    does; a plain JSON schema gives the decoded JSON. Nothing is kept: a type made for one call can go
    when the call is over.

    Raises:
        TypeError: for a type that no schema can be made of.
    """
    if not is_given(response_format):
        return None
    if isinstance(response_format, Mapping):
        return json.loads if is_json_schema(response_format) else None
    if is_model(response_format):
        return response_format.model_validate_json
    return _adapter(response_format).validate_json


def _named_schema(response_format: Any) -> dict[str, Any]:
    """Return name, schema and strictness of a type or a plain JSON schema."""
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
    """Return the ``response_format`` of a chat request; what is not given, or already one, as it came.

    Raises:
        TypeError: for a type that no schema can be made of.
    """
    if not is_given(response_format):
        return response_format
    if isinstance(response_format, Mapping) and not is_json_schema(response_format):
        return response_format
    return {"type": "json_schema", "json_schema": _named_schema(response_format)}


def text_format_param(text_format: Any) -> dict[str, Any]:
    """Return the ``text.format`` of a response request.

    Raises:
        TypeError: for a type that no schema can be made of.
    """
    if isinstance(text_format, Mapping) and not is_json_schema(text_format):
        return dict(text_format)
    return {"type": "json_schema", **_named_schema(text_format)}
