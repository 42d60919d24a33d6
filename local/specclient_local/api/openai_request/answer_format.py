"""Parse OpenAI's and vLLM's parameters for structured output into a JSON schema, a regex or a grammar.

OpenAI, "Structured model outputs": ``response_format``. vLLM, "Structured Outputs": ``structured_outputs``;
before version 0.12 ``guided_json``, ``guided_regex``, ``guided_choice`` and ``guided_grammar``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specclient.errors import UnsupportedParameterError
from specclient.types.request_limits import RequestLimits
from specclient_local.request.grammar_bounds import check_alternatives, check_grammar, check_size
from specclient_local.request.grammar_rules import is_gbnf
from specclient_local.request.grammar_size import too_deep
from specclient_local.request.validation import bad_parameter, optional_list_of, shown, text

AnswerFormat = Mapping[str, Any]
"""One of ``json_schema``, ``regex`` and ``grammar`` with its value, as in ``SamplingParams``; or empty."""

ANY_OBJECT = {"type": "object"}


def parse_answer_format(
    given: dict[str, Any], extension: dict[str, Any], model: str, limits: RequestLimits | None = None
) -> tuple[str | None, dict[str, Any]]:
    """Return the name of the parameter that sets an answer's format, and the format; None and {} for none.

    Args:
        given: the request's parameters.
        extension: the request's ``specclient`` object.
        model: the model's name, for error messages.
        limits: limits on the formats that are converted here. All formats are checked when they are compiled.

    Raises:
        BadRequestError: an invalid value, or more than one format.
        UnsupportedParameterError: a ``response_format`` of an unknown type.
    """
    formats: dict[str, dict[str, Any]] = {}
    context = _Context(model, limits or RequestLimits())
    for source, parsers in ((given, _PARSERS), (extension, _EXTENSION_PARSERS)):
        for name, parse in parsers.items():
            value = source.get(name)
            if value is not None and (answer_format := parse(name, value, context)):
                formats[name] = answer_format
    if len(formats) > 1:
        first, second, *_ = formats
        raise bad_parameter(
            second, (given | extension)[second], f"None together with {first}: an answer has one format"
        )
    return next(iter(formats.items()), (None, {}))


@dataclass(frozen=True, slots=True)
class _Context:
    """The arguments of parsers besides the value.

    Attributes:
        model: the model's name, for error messages.
        limits: limits on grammars.
    """

    model: str
    limits: RequestLimits


def _response_format(name: str, value: object, context: _Context) -> dict[str, Any]:
    """Parse OpenAI's ``response_format``; a schema is enforced whether or not it is ``strict``."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"json_schema": ANY_OBJECT}
    if kind == "json_schema":
        named = value.get("json_schema") if isinstance(value, Mapping) else None
        schema = named.get("schema", ANY_OBJECT) if isinstance(named, Mapping) else None
        if not isinstance(schema, Mapping):
            raise bad_parameter(f"{name}.json_schema", named, "an object with name and schema")
        return {"json_schema": schema}
    error = UnsupportedParameterError(
        f"{name}={shown(value)} is not supported by local/{context.model}; allowed is the type text, "
        "json_object or json_schema."
    )
    error.param = name
    raise error


def _json(name: str, value: object, context: _Context) -> dict[str, Any]:
    if isinstance(value, str):
        check_size(name, value, context.limits)
    try:
        schema = json.loads(value) if isinstance(value, str) else value
    except RecursionError as error:  # only where the limit of nesting is raised
        raise too_deep(name) from error
    except ValueError:
        schema = None
    if isinstance(schema, Mapping):
        return {"json_schema": schema}
    raise bad_parameter(name, value, "a JSON schema as an object, or as its text")


def _choice(name: str, value: object, context: _Context) -> dict[str, Any]:
    """Parse a list of texts, one of which must be the answer."""
    if isinstance(value, list | tuple):
        check_alternatives(name, len(value), context.limits)
    if not value or not isinstance(value, list | tuple) or not optional_list_of(text)(value):
        raise bad_parameter(name, value, "a list of non-empty texts")
    # One terminal: alternatives of a rule would each count against the compiler's limits.
    return {"grammar": f"start: CHOICE\nCHOICE: {' | '.join(json.dumps(choice) for choice in value)}"}


def _regex(name: str, value: object, _: _Context) -> dict[str, Any]:
    if not text(value):
        raise bad_parameter(name, value, "a non-empty regular expression")
    return {"regex": value}


def _grammar(name: str, value: object, context: _Context) -> dict[str, Any]:
    """Parse a Lark grammar, or a GBNF grammar (``root ::= …``), which vLLM also accepts."""
    if not text(value):
        raise bad_parameter(name, value, "a Lark or GBNF grammar as text")
    assert isinstance(value, str)
    if not is_gbnf(value):
        return {"grammar": value}
    check_grammar("grammar", value, context.limits, name)  # its conversion recurses
    try:
        from llguidance.gbnf_to_lark import any_to_lark  # noqa: PLC0415 - only GBNF grammars need it
    except ImportError:
        return {"grammar": value}  # the engine rejects all grammars then, and names what to install
    try:
        return {"grammar": any_to_lark(value)}
    except Exception as error:  # the library raises bare Exception
        raise bad_parameter(name, value, f"a Lark or GBNF grammar ({error})") from error


def _json_object(name: str, value: object, _: _Context) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise bad_parameter(name, value, "true or false")
    return {"json_schema": ANY_OBJECT} if value else {}


def _structured(name: str, value: object, context: _Context) -> dict[str, Any]:
    """Parse vLLM's ``structured_outputs``, an object with one field per format."""
    if not isinstance(value, Mapping) or not set(value) <= set(_STRUCTURED):
        raise bad_parameter(name, value, f"an object with one of {', '.join(_STRUCTURED)}")
    fields = {key: field for key, field in value.items() if field is not None}
    parsed = (_STRUCTURED[key](f"{name}.{key}", field, context) for key, field in fields.items())
    formats = [answer_format for answer_format in parsed if answer_format]
    if len(formats) > 1:
        raise bad_parameter(name, value, f"an object with one of {', '.join(_STRUCTURED)}")
    return formats[0] if formats else {}


_Parser = Callable[[str, object, _Context], dict[str, Any]]
_STRUCTURED: Mapping[str, _Parser] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _json_object,
}
_PARSERS: Mapping[str, _Parser] = {
    "response_format": _response_format,
    "structured_outputs": _structured,
    "guided_json": _json,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
}
FORMAT_PARAMETERS = tuple(_PARSERS)
"""The request parameters that set an answer's format."""

_EXTENSION_PARSERS: Mapping[str, _Parser] = {"json_schema": _json, "regex": _regex, "grammar": _grammar}
ENGINE_FORMAT_PARAMETERS = tuple(_EXTENSION_PARSERS)
"""The fields of the ``specclient`` object that set an answer's format."""
