"""The moderation results of a chat completion's input and output, if the request asked for them."""

from __future__ import annotations

from typing import Annotated, Literal

from specclient.types.base import WireModel
from specclient.types.tagged_union import TaggedUnion


class ModerationInputModerationResultsResult(WireModel):
    """One result; the keys of the mappings are categories."""

    categories: dict[str, bool]
    category_applied_input_types: dict[str, list[Literal["text", "image"]]]
    category_scores: dict[str, float]
    flagged: bool
    model: str
    type: Literal["moderation_result"]


class ModerationInputModerationResults(WireModel):
    """The results of moderation."""

    model: str
    results: list[ModerationInputModerationResultsResult]
    type: Literal["moderation_results"]


class ModerationInputError(WireModel):
    """The error, if there are no results."""

    code: str
    message: str
    type: Literal["error"]


ModerationInput = Annotated[ModerationInputModerationResults | ModerationInputError, TaggedUnion("type")]

# The output's objects have the same fields as the input's.
ModerationOutputModerationResultsResult = ModerationInputModerationResultsResult
ModerationOutputModerationResults = ModerationInputModerationResults
ModerationOutputError = ModerationInputError
ModerationOutput = ModerationInput


class Moderation(WireModel):
    """The results of the request's messages and of the completion."""

    input: ModerationInput
    output: ModerationOutput
