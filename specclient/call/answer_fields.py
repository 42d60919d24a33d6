"""Fields of answers and events of every kind: model, id, text, and the events that end a response."""

from __future__ import annotations

from typing import Any

from specclient.prices.service_tiers import LONGEST_TIER
from specclient.types.chat.chat_completion_chunk import ChoiceDelta
from specclient.types.chat.chat_completion_message import ChatCompletionMessage
from specclient.types.model_aliases import LONGEST_NAME

#: Types of the events that fail a response, and of all that end its stream.
FAILED_EVENTS = frozenset({"response.failed", "error"})
LAST_EVENTS = FAILED_EVENTS | {"response.completed", "response.done", "response.incomplete"}

#: Fields in which servers show reasoning: DeepSeek, vLLM, SGLang; OpenRouter, Groq.
_REASONING = ("reasoning_content", "reasoning")


def model_of(answer: Any) -> str | None:
    """Return the model that an answer names; None where it names none, such as audio and files.

    Records of calls keep it, so a longer name than a request may have is cut.
    """
    model = _text_or_none(getattr(answer, "model", None))
    return None if model is None else model[:LONGEST_NAME]


def tier_of(answer: Any) -> str | None:
    """Return the service tier that served an answer, as it reports it; None where it reports none."""
    tier = _text_or_none(getattr(answer, "service_tier", None))
    return None if tier is None else tier[:LONGEST_TIER]


def id_of(answer: Any) -> str | None:
    """Return an answer's id; None where it has none."""
    return _text_or_none(getattr(answer, "id", None))


def type_of(item: Any) -> str:
    """Return the type of an event or an output item; empty where its type is missing or no string."""
    return _text_or_none(getattr(item, "type", None)) or ""


def output_text(answer: Any) -> str:
    """Return the text of an answer without choices: a response, a transcription or a translation."""
    return _text_or_none(getattr(answer, "output_text", None) or getattr(answer, "text", None)) or ""


def answer_text(answer: Any) -> str:
    """Return the text of the first choice of a chat or completion answer."""
    choice = answer.choices[0] if answer.choices else None
    message = getattr(choice, "message", None)
    text = getattr(choice, "text", "") if message is None else message.content
    return text if isinstance(text, str) else ""


def text_beside_content(message: ChatCompletionMessage | ChoiceDelta) -> str:
    """Return the generated text of a message outside its content: refusal, reasoning, tool calls."""
    texts = [message.refusal or ""]
    extra = message.model_extra
    if extra:
        texts += [value for name in _REASONING if isinstance(value := extra.get(name), str)]
    for tool in message.tool_calls or ():
        called: Any = getattr(tool, "function", None) or getattr(tool, "custom", None)
        if called is not None:
            arguments = getattr(called, "arguments", None) or getattr(called, "input", None)
            texts += [str(called.name or ""), str(arguments or "")]
    return "".join(texts)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
