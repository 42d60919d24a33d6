"""The log-probabilities of a completion's tokens."""

from __future__ import annotations

from specclient.types.base import WireModel


class TopLogprob(WireModel):
    """One of the likeliest tokens at a position; ``logprob`` is a natural logarithm."""

    token: str
    bytes: list[int] | None = None
    logprob: float


class ChatCompletionTokenLogprob(WireModel):
    """A token of the completion, with the likeliest tokens at its position."""

    token: str
    bytes: list[int] | None = None
    logprob: float
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(WireModel):
    """The log-probabilities of a choice's tokens, or of the tokens in one chunk of it."""

    content: list[ChatCompletionTokenLogprob] | None = None
    refusal: list[ChatCompletionTokenLogprob] | None = None
