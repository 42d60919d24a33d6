"""Chat completions with what was made of their JSON: of a message its ``parsed``, of a call its arguments."""

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
    """A function called, with its arguments as what the tool takes; None where they were not parsed."""

    parsed_arguments: Any | None = None


class ParsedFunctionToolCall(ChatCompletionMessageFunctionToolCall):
    """The call of a function whose arguments have been parsed."""

    function: ParsedFunction


class ParsedChatCompletionMessage(ChatCompletionMessage, Generic[ContentType]):
    """A message, and what its text is in the format that was asked for; None where it has none."""

    parsed: ContentType | None = None
    tool_calls: list[ParsedFunctionToolCall] | None = None  # type: ignore[assignment]  # as the OpenAI client's


class ParsedChoice(Choice, Generic[ContentType]):
    """One of the ``n`` answers, parsed."""

    message: ParsedChatCompletionMessage[ContentType] = Field(default_factory=ParsedChatCompletionMessage)


class ParsedChatCompletion(ChatCompletion, Generic[ContentType]):
    """The answer of ``chat.completions.parse``."""

    choices: list[ParsedChoice[ContentType]] = Field(default_factory=list)  # type: ignore[assignment]  # narrower
