"""Parsed responses: texts with their ``parsed`` value, function calls with parsed arguments."""

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
    """Text with its value in the requested format as ``parsed``; None if it was not parsed."""

    parsed: ContentType | None = None

    #: Fields to leave out when the object is sent back to the API.
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
        """Fields to leave out when the object is sent back to the API."""
        parts = self.content if isinstance(self.content, list) else ()
        texts = (at for at, part in enumerate(parts) if isinstance(part, ParsedResponseOutputText))
        return {"content": {at: {"parsed"} for at in texts}}


class ParsedResponseFunctionToolCall(ResponseFunctionToolCall):
    """A function call with its parsed arguments; None if they were not parsed."""

    parsed_arguments: Any | None = None

    #: Fields to leave out when the object is sent back to the API.
    __api_exclude__ = frozenset({"parsed_arguments"})


ParsedResponseOutputItem = Annotated[
    ParsedResponseOutputMessage[ContentType] | ParsedResponseFunctionToolCall | OtherOutputItem,
    TaggedUnion("type"),
]


class ParsedResponse(Response, Generic[ContentType]):
    """The response of ``responses.parse``."""

    if TYPE_CHECKING:
        output: list[ParsedResponseOutputItem[ContentType]]  # type: ignore[assignment]  # narrower
    else:
        output: list[ParsedResponseOutputItem]

    @property
    def output_parsed(self) -> ContentType | None:
        """The value of the first parsed text; None if no text was parsed."""
        for item in self.output or ():
            if item.type == "message":
                for part in item.content or ():
                    if part.type == "output_text" and part.parsed:
                        return part.parsed
        return None
