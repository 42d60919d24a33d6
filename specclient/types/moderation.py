"""Moderation responses."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from specclient.types.base import WireModel
from specclient.types.call import MeteredModel

ModerationModel = str


class AliasedFieldsModel(WireModel):
    """An object with JSON keys that are not valid attribute names, such as ``hate/threatening``.

    Such a field has both names: the JSON key is also in ``model_extra``, and therefore in a dump, as in the
    OpenAI client.
    """

    def model_post_init(self, _context: Any, /) -> None:
        """Copy fields with an alias to ``model_extra`` under their JSON keys."""
        extra = self.__pydantic_extra__
        for name, field in type(self).model_fields.items():
            if extra is not None and field.alias and name in self.__pydantic_fields_set__:
                extra[field.alias] = self.__dict__[name]


class Categories(AliasedFieldsModel):
    """Whether the input falls into each category."""

    harassment: bool
    harassment_threatening: bool = Field(alias="harassment/threatening")
    hate: bool
    hate_threatening: bool = Field(alias="hate/threatening")
    illicit: bool | None = None
    illicit_violent: bool | None = Field(alias="illicit/violent", default=None)
    self_harm: bool = Field(alias="self-harm")
    self_harm_instructions: bool = Field(alias="self-harm/instructions")
    self_harm_intent: bool = Field(alias="self-harm/intent")
    sexual: bool
    sexual_minors: bool = Field(alias="sexual/minors")
    violence: bool
    violence_graphic: bool = Field(alias="violence/graphic")


class CategoryAppliedInputTypes(AliasedFieldsModel):
    """The kinds of input in which each category was found."""

    harassment: list[Literal["text"]]
    harassment_threatening: list[Literal["text"]] = Field(alias="harassment/threatening")
    hate: list[Literal["text"]]
    hate_threatening: list[Literal["text"]] = Field(alias="hate/threatening")
    illicit: list[Literal["text"]]
    illicit_violent: list[Literal["text"]] = Field(alias="illicit/violent")
    self_harm: list[Literal["text", "image"]] = Field(alias="self-harm")
    self_harm_instructions: list[Literal["text", "image"]] = Field(alias="self-harm/instructions")
    self_harm_intent: list[Literal["text", "image"]] = Field(alias="self-harm/intent")
    sexual: list[Literal["text", "image"]]
    sexual_minors: list[Literal["text"]] = Field(alias="sexual/minors")
    violence: list[Literal["text", "image"]]
    violence_graphic: list[Literal["text", "image"]] = Field(alias="violence/graphic")


class CategoryScores(AliasedFieldsModel):
    """The model's confidence for each category, from 0 to 1."""

    harassment: float
    harassment_threatening: float = Field(alias="harassment/threatening")
    hate: float
    hate_threatening: float = Field(alias="hate/threatening")
    illicit: float
    illicit_violent: float = Field(alias="illicit/violent")
    self_harm: float = Field(alias="self-harm")
    self_harm_instructions: float = Field(alias="self-harm/instructions")
    self_harm_intent: float = Field(alias="self-harm/intent")
    sexual: float
    sexual_minors: float = Field(alias="sexual/minors")
    violence: float
    violence_graphic: float = Field(alias="violence/graphic")


class Moderation(WireModel):
    """The moderation result of one input."""

    categories: Categories
    category_applied_input_types: CategoryAppliedInputTypes
    category_scores: CategoryScores
    flagged: bool


class ModerationCreateResponse(MeteredModel):
    """The response of ``moderations.create``.

    https://platform.openai.com/docs/api-reference/moderations/object
    """

    id: str
    model: str
    results: list[Moderation]
