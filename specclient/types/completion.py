"""Legacy text completions as they come over the wire; a streamed chunk has the same shape as the whole."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from specclient.types.base import Whole, WireModel
from specclient.types.call import Metered
from specclient.types.usage import CompletionUsage


class CompletionChoice(WireModel):
    """One of the ``n`` texts."""

    finish_reason: str | None = None
    index: int = 0
    logprobs: Any | None = None
    text: str = ""


class Completion(Metered):
    """The answer of ``completions.create``, or one event of its stream."""

    id: str = ""
    choices: list[CompletionChoice] = Field(default_factory=list)
    created: Whole = 0
    model: str = ""
    object: str = "text_completion"
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None
