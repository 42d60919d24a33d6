"""Parsing of the texts and function calls of responses into the requested types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specclient.structured.construction import recast
from specclient.structured.schema import TextParser, decoder, is_set, text_format_param
from specclient.structured.tools import ToolMapping, listed_tools, parse_response_call
from specclient.types.responses.models import Response
from specclient.types.responses.parsed_response import (
    ParsedResponse,
    ParsedResponseFunctionToolCall,
    ParsedResponseOutputMessage,
    ParsedResponseOutputText,
)


def text_with_format(text: Any, text_format: Any) -> Any:
    """Return the ``text`` parameter of a request, with the format for ``text_format``.

    Raises:
        TypeError: ``text`` has a format too, or ``text_format`` is a type without a JSON schema.
    """
    if not is_set(text_format):
        return text
    given = dict(text) if text else {}
    if "format" in given:
        raise TypeError("Cannot mix and match text.format with text_format; give one of the two")
    return {**given, "format": text_format_param(text_format)}


def output_format(request_input: Any, text: Any, text_format: Any, parse_as: Any) -> Any:
    """Return the type that the texts of a response are parsed into, if the input may change the format.

    Args:
        request_input: the request's ``input``; its last ``configuration_update`` with a format is used.
        text, text_format: the request's parameters.
        parse_as: overrides ``text_format`` for parsing; None disables parsing.

    Raises:
        TypeError: the input changes the format, and ``parse_as`` is missing or does not match the change.
    """
    if parse_as is None:
        return None
    update = _format_update(request_input)
    if update is None:
        return parse_as if is_set(parse_as) else text_format
    if update.get("type") == "text":
        if is_set(parse_as):
            raise TypeError("Cannot use parse_as with a plain-text format update; leave parse_as out")
        return None
    same = isinstance(text, Mapping) and update == text.get("format")
    if is_set(text_format) and not is_set(parse_as) and not same:
        raise TypeError(
            "Pass parse_as for the updated output schema, or parse_as=None to read plain output_text"
        )
    return parse_as if is_set(parse_as) else text_format


def _format_update(request_input: Any) -> Mapping[str, Any] | None:
    for item in reversed(request_input) if isinstance(request_input, list) else ():
        if isinstance(item, Mapping) and item.get("type") == "configuration_update":
            text = item.get("text")
            given = text.get("format") if isinstance(text, Mapping) else None
            if isinstance(given, Mapping):
                return given
    return None


def parse_text(text: str, phase: str | None, decode: TextParser | None) -> Any:
    """Return the decoded text; None without a decoder, or if ``phase`` shows that it is not a final answer.

    Raises:
        pydantic.ValidationError: the text is not valid for its type.
    """
    return decode(text) if decode is not None and phase in (None, "final_answer") else None


def parse_response(
    response: Response, *, text_format: Any = None, input_tools: Iterable[ToolMapping] | Any = None
) -> ParsedResponse[Any]:
    """Return a copy of ``response`` with ``parsed`` texts and ``parsed_arguments``.

    Args:
        response: the API's response.
        text_format: the type of the parsed texts, as ``response_format`` of
            :func:`specclient.structured.parse_chat_completion`.
        input_tools: the request's tools; calls of strict tools are parsed.

    Raises:
        pydantic.ValidationError: a text is not valid for its type.
    """
    return parsed_response(response, decoder(text_format), listed_tools(input_tools))


def parsed_response(
    response: Response, decode: TextParser | None, tools: list[ToolMapping]
) -> ParsedResponse[Any]:
    """Do the same as :func:`parse_response`, with an existing decoder and existing tools."""
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
