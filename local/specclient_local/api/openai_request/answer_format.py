"""Turn what OpenAI and vLLM call the form of an answer into a JSON schema, a regular expression or a grammar.

OpenAI, "Structured model outputs": ``response_format``. vLLM, "Structured Outputs": ``structured_outputs``,
and before its version 0.12 ``guided_json`` and the like.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from specclient.errors import UnsupportedParameterError
from specclient_local.request.validation import bad_parameter, optional_list_of, text

AnswerFormat = Mapping[str, Any]
"""Of ``json_schema``, ``regex`` and ``grammar``, those that are given; see ``SamplingParams``."""

ANY_OBJECT = {"type": "object"}


def parse_answer_format(
    given: dict[str, Any], extension: dict[str, Any], model: str
) -> tuple[str | None, dict[str, Any]]:
    """Return by which parameter an answer is asked to have a form, and the form; None and empty for none.

    Args:
        given: a request's parameters; ``extension``: its own of ours.
        model: for messages only.

    Raises:
        BadRequestError: an unusable value, or two that each ask for a form.
        UnsupportedParameterError: a form that is not known.
    """
    found: dict[str, dict[str, Any]] = {}
    for source, rows in ((given, _READ), (extension, _OWN)):
        for name, read in rows.items():
            value = source.get(name)
            if value is not None and (form := read(name, value, model)):
                found[name] = form
    if len(found) > 1:
        first, second, *_ = found
        raise bad_parameter(
            second, (given | extension)[second], f"None beside {first}: an answer has one form"
        )
    return next(iter(found.items()), (None, {}))


def _response_format(name: str, value: object, model: str) -> dict[str, Any]:
    """Read OpenAI's own; an answer is held to a schema whether it is ``strict`` or not."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"json_schema": ANY_OBJECT}
    if kind == "json_schema":
        described = value.get("json_schema") if isinstance(value, Mapping) else None
        schema = described.get("schema", ANY_OBJECT) if isinstance(described, Mapping) else None
        if not isinstance(schema, Mapping):
            raise bad_parameter(f"{name}.json_schema", described, "an object with name and schema")
        return {"json_schema": schema}
    error = UnsupportedParameterError(
        f"{name}={value!r} is not supported by local/{model}; allowed is the type text, json_object or "
        "json_schema."
    )
    error.param = name
    raise error


def _json(name: str, value: object, _: str) -> dict[str, Any]:
    try:
        schema = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        schema = None
    if isinstance(schema, Mapping):
        return {"json_schema": schema}
    raise bad_parameter(name, value, "a JSON schema as an object, or as its text")


def _choice(name: str, value: object, _: str) -> dict[str, Any]:
    """Read a list of answers of which one is to be given."""
    if not value or not isinstance(value, list | tuple) or not optional_list_of(text)(value):
        raise bad_parameter(name, value, "a list of texts that are not empty")
    return {"grammar": f"start: {' | '.join(json.dumps(choice) for choice in value)}"}


def _regex(name: str, value: object, _: str) -> dict[str, Any]:
    if not text(value):
        raise bad_parameter(name, value, "a regular expression that is not empty")
    return {"regex": value}


def _grammar(name: str, value: object, _: str) -> dict[str, Any]:
    """Read a Lark grammar, or one in GBNF (``root ::= …``), which vLLM takes as well."""
    if not text(value):
        raise bad_parameter(name, value, "a Lark or GBNF grammar as text")
    assert isinstance(value, str)
    if "::=" not in value:
        return {"grammar": value}
    try:
        from llguidance.gbnf_to_lark import any_to_lark  # noqa: PLC0415 - a grammar's own expense
    except ImportError:
        return {"grammar": value}  # the engine refuses every grammar without it, and says what to install
    try:
        return {"grammar": any_to_lark(value)}
    except Exception as error:  # the library raises bare Exception
        raise bad_parameter(name, value, f"a Lark or GBNF grammar ({error})") from error


def _json_object(name: str, value: object, _: str) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise bad_parameter(name, value, "true or false")
    return {"json_schema": ANY_OBJECT} if value else {}


def _structured(name: str, value: object, model: str) -> dict[str, Any]:
    """Read vLLM's one object for all forms."""
    if not isinstance(value, Mapping) or not set(value) <= set(_STRUCTURED):
        raise bad_parameter(name, value, f"an object with one of {', '.join(_STRUCTURED)}")
    told = {key: part for key, part in value.items() if part is not None}
    forms = [form for key in told if (form := _STRUCTURED[key](f"{name}.{key}", told[key], model))]
    if len(forms) > 1:
        raise bad_parameter(name, value, f"an object with one of {', '.join(_STRUCTURED)}")
    return forms[0] if forms else {}


_Read = Callable[[str, object, str], dict[str, Any]]
_STRUCTURED: Mapping[str, _Read] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _json_object,
}
_READ: Mapping[str, _Read] = {
    "response_format": _response_format,
    "structured_outputs": _structured,
    "guided_json": _json,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
}
FORMAT_PARAMETERS = tuple(_READ)
"""The parameters that ask for a form."""

_OWN: Mapping[str, _Read] = {"json_schema": _json, "regex": _regex, "grammar": _grammar}
ENGINE_FORMAT_PARAMETERS = tuple(_OWN)
"""Those of the extension ``specclient``."""
