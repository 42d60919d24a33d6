"""The log probabilities of an answer's tokens, as they come over the wire."""

from __future__ import annotations

from specclient.types.base import WireModel


class TopLogprob(WireModel):
    """One of the tokens that were likely at a position; ``logprob`` is a natural logarithm."""

    token: str
    bytes: list[int] | None = None
    logprob: float


class ChatCompletionTokenLogprob(WireModel):
    """A token of the answer, with those that were likely in its place."""

    token: str
    bytes: list[int] | None = None
    logprob: float
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(WireModel):
    """What a choice's tokens, or a part's of it, had for probabilities."""

    content: list[ChatCompletionTokenLogprob] | None = None
    refusal: list[ChatCompletionTokenLogprob] | None = None
