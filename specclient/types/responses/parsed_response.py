"""Responses with what was made of their JSON: of a text its ``parsed``, of a call its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from specclient.types.responses.models import (
    OtherOutputItem,
    Response,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
)
from specclient.types.tagged_union import TaggedUnion

ContentType = TypeVar("ContentType")


class ParsedResponseOutputText(ResponseOutputText, Generic[ContentType]):
    """Text, and what it is in the format that was asked for; None where it is not."""

    parsed: ContentType | None = None

    #: What the API does not take when the object is sent back to it.
    __api_exclude__ = frozenset({"parsed"})


ParsedContent = Annotated[ParsedResponseOutputText[ContentType] | ResponseOutputRefusal, TaggedUnion("type")]


class ParsedResponseOutputMessage(ResponseOutputMessage, Generic[ContentType]):
    """A message whose text has been parsed."""

    if TYPE_CHECKING:
        content: list[ParsedContent[ContentType]]  # type: ignore[assignment]  # narrower
    else:
        content: list[ParsedContent]  # a union is not generic at run time

    @property
    def __api_exclude__(self) -> Mapping[str, Any]:
        """What the API does not take when the object is sent back to it."""
        parts = self.content if isinstance(self.content, list) else ()
        texts = (at for at, part in enumerate(parts) if isinstance(part, ParsedResponseOutputText))
        return {"content": {at: {"parsed"} for at in texts}}


class ParsedResponseFunctionToolCall(ResponseFunctionToolCall):
    """A function call with its parsed arguments; None if they were not parsed."""

    parsed_arguments: Any | None = None

    #: What the API does not take when the object is sent back to it.
    __api_exclude__ = frozenset({"parsed_arguments"})


ParsedResponseOutputItem = Annotated[
    ParsedResponseOutputMessage[ContentType] | ParsedResponseFunctionToolCall | OtherOutputItem,
    TaggedUnion("type"),
]


class ParsedResponse(Response, Generic[ContentType]):
    """The answer of ``responses.parse``."""

    if TYPE_CHECKING:
        output: list[ParsedResponseOutputItem[ContentType]]  # type: ignore[assignment]  # narrower
    else:
        output: list[ParsedResponseOutputItem]

    @property
    def output_parsed(self) -> ContentType | None:
        """What the first text is that has been parsed; None where none has."""
        for item in self.output or ():
            if item.type == "message":
                for part in item.content or ():
                    if part.type == "output_text" and part.parsed:
                        return part.parsed
        return None
