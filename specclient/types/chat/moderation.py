"""What moderation made of a chat's input and output, where it was asked for with the answer."""

from __future__ import annotations

from typing import Annotated, Literal

from specclient.types.base import WireModel
from specclient.types.tagged_union import TaggedUnion


class ModerationInputModerationResultsResult(WireModel):
    """One result; the mappings are by category."""

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
    """Why there are no results."""

    code: str
    message: str
    type: Literal["error"]


ModerationInput = Annotated[ModerationInputModerationResults | ModerationInputError, TaggedUnion("type")]

# The output's objects have the shape of the input's.
ModerationOutputModerationResultsResult = ModerationInputModerationResultsResult
ModerationOutputModerationResults = ModerationInputModerationResults
ModerationOutputError = ModerationInputError
ModerationOutput = ModerationInput


class Moderation(WireModel):
    """The results for the messages sent, and for the answer."""

    input: ModerationInput
    output: ModerationOutput
