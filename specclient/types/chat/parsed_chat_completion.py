"""Parsed chat completions: messages with their parsed text, tool calls with their parsed arguments."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import Field

from specclient.types.chat.chat_completion import ChatCompletion, Choice
from specclient.types.chat.chat_completion_message import (
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    Function,
)

ContentType = TypeVar("ContentType")


class ParsedFunction(Function):
    """The function of a tool call with its parsed arguments; None if they were not parsed."""

    parsed_arguments: Any | None = None


class ParsedFunctionToolCall(ChatCompletionMessageFunctionToolCall):
    """A function call with parsed arguments."""

    function: ParsedFunction


class ParsedChatCompletionMessage(ChatCompletionMessage, Generic[ContentType]):
    """A message with its text parsed as the requested type; ``parsed`` is None for a message without text."""

    parsed: ContentType | None = None
    tool_calls: list[ParsedFunctionToolCall] | None = None  # type: ignore[assignment]  # as in the OpenAI client


class ParsedChoice(Choice, Generic[ContentType]):
    """One of the ``n`` choices, parsed."""

    message: ParsedChatCompletionMessage[ContentType] = Field(default_factory=ParsedChatCompletionMessage)


class ParsedChatCompletion(ChatCompletion, Generic[ContentType]):
    """The response of ``chat.completions.parse``."""

    choices: list[ParsedChoice[ContentType]] = Field(default_factory=list)  # type: ignore[assignment]  # narrower
