"""The text of one answer, complete or streamed: of its first choice, and of all the rest."""

from __future__ import annotations

from specclient.call.answer_fields import text_beside_content
from specclient.types.chat.chat_completion import Choice
from specclient.types.chat.chat_completion_chunk import Choice as ChunkChoice
from specclient.types.chat.chat_completion_chunk import ChoiceDelta
from specclient.types.chat.chat_completion_message import ChatCompletionMessage, plain_text
from specclient.types.completion import CompletionChoice


class AnswerTexts:
    """Collects the text of one answer.

    The first choice is kept apart, because its text is the partial answer of a stream that breaks off. Tokens
    are counted in all text.

    Attributes:
        first: the parts of the first choice's text.
        other: the parts of other choices, of reasoning and of tool calls.
    """

    __slots__ = ("first", "other")

    def __init__(self) -> None:
        self.first: list[str] = []
        self.other: list[str] = []

    @property
    def text(self) -> str:
        """The text of the first choice so far."""
        return "".join(self.first)

    @property
    def whole(self) -> str:
        """All text so far."""
        return "".join(self.first) + "".join(self.other)

    def add_choice(self, choice: Choice | ChunkChoice | CompletionChoice) -> bool:
        """Add the text of a choice or of a chunk's delta; return whether there was any."""
        message: ChatCompletionMessage | ChoiceDelta | None = None
        text = other = ""
        if isinstance(choice, ChunkChoice):  # the frequent case first: pydantic's isinstance is slow to fail
            message = choice.delta
        elif isinstance(choice, CompletionChoice):
            text = choice.text
        else:
            message = choice.message
        if message is not None:
            content = message.content
            text = content if isinstance(content, str) else plain_text(content)
            if message.refusal or message.tool_calls or message.__pydantic_extra__:
                other = text_beside_content(message)
        if text:
            (self.other if choice.index else self.first).append(text)
        if other:
            self.other.append(other)
        return bool(text or other)
