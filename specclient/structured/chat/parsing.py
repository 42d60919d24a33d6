"""Turn a chat completion into one whose contents and tool calls are the types that were asked for."""

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
    """Return ``completion`` with ``message.parsed`` and ``function.parsed_arguments``; it is left as it is.

    Args:
        completion: as the API gave it.
        response_format: what the text is to become: a pydantic model, a dataclass, a ``TypedDict`` or a
            plain JSON schema; the API's own formats leave ``parsed`` None.
        input_tools: those sent with the request, whose strict calls are parsed.

    Raises:
        LengthFinishReasonError: where a choice was cut off, so that its JSON is not whole.
        ContentFilterFinishReasonError: where a choice was filtered.
        pydantic.ValidationError: where a text does not fit its type.
    """
    return parsed_completion(completion, decoder(response_format), ChatTools(input_tools))


def parsed_completion(
    completion: ChatCompletion, decode: TextParser | None, tools: ChatTools
) -> ParsedChatCompletion[Any]:
    """Do what :func:`parse_chat_completion` says, with a decoder and tools that are at hand."""
    choices = []
    for choice in completion.choices:
        if choice.finish_reason == "length":
            raise LengthFinishReasonError(completion=completion)
        if choice.finish_reason == "content_filter":
            raise ContentFilterFinishReasonError(completion=completion)
        message = choice.message
        parsed = decode(message.content) if decode and message.content and not message.refusal else None
        calls = [made for call in message.tool_calls or () if (made := _parsed_call(call, tools)) is not None]
        told = recast(message, ParsedChatCompletionMessage, parsed=parsed, tool_calls=calls or None)
        choices.append(recast(choice, ParsedChoice, message=told))
    return recast(completion, ParsedChatCompletion, choices=choices)


def _parsed_call(call: Any, tools: ChatTools) -> Any:
    """Return a tool call with its arguments parsed; None for a custom one, which has none."""
    if call.type == "custom":
        log.warning("left out the custom tool call %s: it has no arguments that could be parsed", call.id)
        return None
    if call.type != "function" or call.function is None:
        return call
    arguments = tools.parse(call.function.name, call.function.arguments)
    function = recast(call.function, ParsedFunction, parsed_arguments=arguments)
    return recast(call, ParsedFunctionToolCall, function=function)
