"""Parsing of the contents and tool calls of chat completions into the requested types."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from specclient.errors import ContentFilterFinishReasonError, LengthFinishReasonError
from specclient.structured.construction import recast
from specclient.structured.schema import TextParser, decoder
from specclient.structured.tools import ChatTools, ToolMapping
from specclient.types.chat import (
    ChatCompletion,
    ParsedChatCompletion,
    ParsedChatCompletionMessage,
    ParsedChoice,
    ParsedFunction,
    ParsedFunctionToolCall,
)

log = logging.getLogger("specclient.structured")


def parse_chat_completion(
    completion: ChatCompletion,
    *,
    response_format: Any = None,
    input_tools: Iterable[ToolMapping] | Any = None,
) -> ParsedChatCompletion[Any]:
    """Return a copy of ``completion`` with ``message.parsed`` and ``function.parsed_arguments``.

    Args:
        completion: the API's response.
        response_format: the type of the parsed text: a pydantic model, a dataclass, a ``TypedDict`` or a
            plain JSON schema. With one of the API's own formats, ``parsed`` is None.
        input_tools: the request's tools; calls of strict tools are parsed.

    Raises:
        LengthFinishReasonError: a choice was truncated, so its JSON is incomplete.
        ContentFilterFinishReasonError: a choice was filtered.
        pydantic.ValidationError: a text is not valid for its type.
    """
    return parsed_completion(completion, decoder(response_format), ChatTools(input_tools))


def parsed_completion(
    completion: ChatCompletion, decode: TextParser | None, tools: ChatTools
) -> ParsedChatCompletion[Any]:
    """Do the same as :func:`parse_chat_completion`, with an existing decoder and existing tools."""
    choices = []
    for choice in completion.choices:
        if choice.finish_reason == "length":
            raise LengthFinishReasonError(completion=completion)
        if choice.finish_reason == "content_filter":
            raise ContentFilterFinishReasonError(completion=completion)
        message = choice.message
        parsed = decode(message.content) if decode and message.content and not message.refusal else None
        calls = [made for call in message.tool_calls or () if (made := _parsed_call(call, tools)) is not None]
        parsed_message = recast(message, ParsedChatCompletionMessage, parsed=parsed, tool_calls=calls or None)
        choices.append(recast(choice, ParsedChoice, message=parsed_message))
    return recast(completion, ParsedChatCompletion, choices=choices)


def _parsed_call(call: Any, tools: ChatTools) -> Any:
    """Return a tool call with its arguments parsed; None for a custom tool, whose call has no arguments."""
    if call.type == "custom":
        log.warning("left out the custom tool call %s: it has no arguments that could be parsed", call.id)
        return None
    if call.type != "function" or call.function is None:
        return call
    arguments = tools.parse(call.function.name, call.function.arguments)
    function = recast(call.function, ParsedFunction, parsed_arguments=arguments)
    return recast(call, ParsedFunctionToolCall, function=function)
