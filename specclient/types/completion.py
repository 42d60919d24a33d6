"""Legacy text completions, complete or streamed: a chunk has the same fields as a complete response."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specclient.types.base import LenientInt, WireModel
from specclient.types.call import MeteredModel
from specclient.types.completion_usage import CompletionUsage


class Logprobs(WireModel):
    """The log-probabilities of a text's tokens; ``text_offset`` is in characters."""

    text_offset: list[int] | None = None
    token_logprobs: list[float] | None = None
    tokens: list[str] | None = None
    top_logprobs: list[dict[str, float]] | None = None


class CompletionChoice(WireModel):
    """One of the ``n`` texts, or a piece of it; ``finish_reason`` is None until the last piece."""

    finish_reason: Literal["stop", "length", "content_filter"] | None = None
    index: int = 0
    logprobs: Logprobs | None = None
    text: str = ""


class Completion(MeteredModel):
    """The response of ``completions.create``, or one event of its stream; ``created`` is in Unix seconds.

    https://platform.openai.com/docs/api-reference/completions/object
    """

    vital = frozenset({("choices",), ("choices", "index"), ("choices", "text"), ("usage",)})

    id: str = ""
    choices: list[CompletionChoice] = Field(default_factory=list)
    created: LenientInt = 0
    model: str = ""
    object: Literal["text_completion"] = "text_completion"
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None
