"""Turn what the engine gives back into one choice of a chat: its message, whole or in deltas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specclient.types.chat import ChatCompletionMessage
from specclient.types.chat.chat_completion import Choice, FinishReason
from specclient.types.chat.chat_completion_chunk import (
    Choice as ChunkChoice,
)
from specclient.types.chat.chat_completion_chunk import (
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
)
from specclient.types.chat.chat_completion_message import ChatCompletionMessageFunctionToolCall, Function
from specclient_local.api.openai_request.parser import EngineRequest
from specclient_local.api.openai_response.logprobs import chat_logprobs
from specclient_local.api.tools.call_parser import (
    ParsedToolCall,
    ToolCallDelta,
    ToolCallParser,
    collect_deltas,
)
from specclient_local.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation, Piece


@dataclass(slots=True)
class ChatChoice:
    """One of the answers to a chat.

    Attributes:
        index: its number.
        asked: what is to be told beside the text.
        tokenizer: of the model that answers.
        reader: finds tool calls in the text; None where there is nothing to call.
        new_id: makes the ids of calls.
    """

    index: int
    asked: EngineRequest
    tokenizer: Tokenizer
    reader: ToolCallParser | None
    new_id: Callable[[], str]
    _segments: list[list[Any]] = field(init=False, default_factory=list)

    def whole(self, generation: Generation) -> Choice:
        """Return the choice in one object."""
        content, calls = generation.text, list[ParsedToolCall]()
        if self.reader is not None:
            content, calls = collect_deltas([*self.reader.push(generation.text), *self.reader.flush()])
        message = ChatCompletionMessage(content=content, role="assistant", refusal=None)
        if calls:
            message.content = content or None
            message.tool_calls = [
                ChatCompletionMessageFunctionToolCall(
                    id=self.new_id(),
                    function=Function(name=call.name, arguments=call.arguments),
                    type="function",
                )
                for call in calls
            ]
        logprobs = None
        if generation.logprobs is not None:
            logprobs = chat_logprobs(self.tokenizer, generation.logprobs)
        return Choice(
            index=self.index, message=message, finish_reason=self._reason(generation), logprobs=logprobs
        )

    def opening(self, _: Piece) -> list[ChunkChoice]:
        """Return the role."""
        return [self._part(ChoiceDelta(role="assistant", content=""))]

    def piece(self, piece: Piece) -> list[ChunkChoice]:
        """Return the text and the calls that a piece makes known, and what is told of its tokens."""
        if self.reader is None:
            deltas = [ChoiceDelta(content=piece.text)] if piece.text else []
        else:
            found = self.reader.push(piece.text)
            found += self.reader.flush() if piece.generation is not None else []
            deltas = [self._delta(delta) for delta in found]
        extra: dict[str, Any] = {}
        if self.asked.logprobs is not None and piece.token_ids:
            extra["logprobs"] = chat_logprobs(self.tokenizer, piece.logprobs)
            deltas = deltas or [ChoiceDelta(content="")]
        if self.asked.origins:
            self._segments += [list(segment) for segment in piece.segments]
            if deltas:
                extra["specclient"], self._segments = {"segments": self._segments}, []
        return [self._part(delta, **({} if i else extra)) for i, delta in enumerate(deltas)]

    def finish(self, generation: Generation) -> list[ChunkChoice]:
        """Return why the answer ends."""
        return [self._part(ChoiceDelta(), self._reason(generation))]

    def _reason(self, generation: Generation) -> FinishReason:
        called = self.reader is not None and self.reader.calls > 0
        return "tool_calls" if called and generation.finish_reason == "stop" else generation.finish_reason

    def _part(self, delta: ChoiceDelta, reason: FinishReason | None = None, **extra: Any) -> ChunkChoice:
        return ChunkChoice(index=self.index, delta=delta, finish_reason=reason, **extra)

    def _delta(self, delta: ToolCallDelta) -> ChoiceDelta:
        if delta.call is None:
            return ChoiceDelta(content=delta.content)
        if delta.name is None:
            function = ChoiceDeltaToolCallFunction(arguments=delta.arguments)
            return ChoiceDelta(tool_calls=[ChoiceDeltaToolCall(index=delta.call, function=function)])
        function = ChoiceDeltaToolCallFunction(name=delta.name, arguments="")
        call = ChoiceDeltaToolCall(index=delta.call, id=self.new_id(), function=function, type="function")
        return ChoiceDelta(tool_calls=[call])
