"""Turn a response into one whose texts and function calls are the types that were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specclient.structured.construction import recast
from specclient.structured.schema import TextParser, decoder, is_given, text_format_param
from specclient.structured.tools import ToolMapping, listed_tools, parse_response_call
from specclient.types.responses.models import Response
from specclient.types.responses.parsed_response import (
    ParsedResponse,
    ParsedResponseFunctionToolCall,
    ParsedResponseOutputMessage,
    ParsedResponseOutputText,
)


def text_with_format(text: Any, text_format: Any) -> Any:
    """Return the ``text`` of a response request with the format that ``text_format`` stands for.

    Raises:
        TypeError: where both name a format, or no schema can be made of ``text_format``.
    """
    if not is_given(text_format):
        return text
    given = dict(text) if text else {}
    if "format" in given:
        raise TypeError("Cannot mix and match text.format with text_format; give one of the two")
    return {**given, "format": text_format_param(text_format)}


def output_format(request_input: Any, text: Any, text_format: Any, parse_as: Any) -> Any:
    """Return what the texts of a response are parsed as, where its input may change the format underway.

    Args:
        request_input: of the request; its last ``configuration_update`` with a format counts.
        text, text_format: of the request.
        parse_as: overrides ``text_format`` for parsing; None leaves the text as it is.

    Raises:
        TypeError: where the input changes the format and ``parse_as`` does not say what is to be read.
    """
    if parse_as is None:
        return None
    update = _format_update(request_input)
    if update is None:
        return parse_as if is_given(parse_as) else text_format
    if update.get("type") == "text":
        if is_given(parse_as):
            raise TypeError("Cannot use parse_as with a plain-text format update; leave parse_as out")
        return None
    same = isinstance(text, Mapping) and update == text.get("format")
    if is_given(text_format) and not is_given(parse_as) and not same:
        raise TypeError(
            "Pass parse_as for the updated output schema, or parse_as=None to read plain output_text"
        )
    return parse_as if is_given(parse_as) else text_format


def _format_update(request_input: Any) -> Mapping[str, Any] | None:
    for item in reversed(request_input) if isinstance(request_input, list) else ():
        if isinstance(item, Mapping) and item.get("type") == "configuration_update":
            text = item.get("text")
            given = text.get("format") if isinstance(text, Mapping) else None
            if isinstance(given, Mapping):
                return given
    return None


def parse_text(text: str, phase: str | None, decode: TextParser | None) -> Any:
    """Return a text as what it is to become; None for one that is no final answer, as its ``phase`` says.

    Raises:
        pydantic.ValidationError: where it does not fit.
    """
    return decode(text) if decode is not None and phase in (None, "final_answer") else None


def parse_response(
    response: Response, *, text_format: Any = None, input_tools: Iterable[ToolMapping] | Any = None
) -> ParsedResponse[Any]:
    """Return ``response`` with ``parsed`` texts and ``parsed_arguments``; it is left as it is.

    Args:
        response: as the API gave it.
        text_format: what the texts are to become, as for :func:`.chat_parsing.parse_chat_completion`.
        input_tools: those sent with the request, whose strict calls are parsed.

    Raises:
        pydantic.ValidationError: where a text does not fit its type.
    """
    return parsed_response(response, decoder(text_format), listed_tools(input_tools))


def parsed_response(
    response: Response, decode: TextParser | None, tools: list[ToolMapping]
) -> ParsedResponse[Any]:
    """Do what :func:`parse_response` says, with a decoder and tools that are at hand."""
    output = [_parsed_item(item, decode, tools) for item in response.output or ()]
    return recast(response, ParsedResponse, output=output)


def _parsed_item(item: Any, decode: TextParser | None, tools: list[ToolMapping]) -> Any:
    if item.type == "message":
        phase = getattr(item, "phase", None)
        content = [
            recast(part, ParsedResponseOutputText, parsed=parse_text(part.text, phase, decode))
            if part.type == "output_text"
            else part
            for part in item.content or ()
        ]
        return recast(item, ParsedResponseOutputMessage, content=content)
    if item.type == "function_call":
        namespace = getattr(item, "namespace", None)
        arguments = parse_response_call(tools, item.name, namespace, item.arguments)
        return recast(item, ParsedResponseFunctionToolCall, parsed_arguments=arguments)
    return item
