"""One choice of a chat completion: its message, or its deltas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specclient.chat_format.tool_calls import (
    ParsedToolCall,
    ToolCallDelta,
    ToolCallParser,
    collect_deltas,
)
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
from specclient_local.api.openai_response.stop_reason import stop_reason
from specclient_local.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation, Piece


@dataclass(slots=True)
class ChatChoice:
    """Builds one choice of a chat completion.

    Attributes:
        index: the choice's number in the response.
        request: the parsed request; determines the fields of the choice.
        tokenizer: the model's.
        parser: finds tool calls in the text; None where the request has no tools.
        new_id: returns the id of the next tool call.
    """

    index: int
    request: EngineRequest
    tokenizer: Tokenizer
    parser: ToolCallParser | None
    new_id: Callable[[], str]
    _segments: list[list[Any]] = field(init=False, default_factory=list)

    def complete(self, generation: Generation) -> Choice:
        """Return the complete choice."""
        content, calls = generation.text, list[ParsedToolCall]()
        if self.parser is not None:
            content, calls = collect_deltas([*self.parser.push(generation.text), *self.parser.flush()])
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
            index=self.index,
            message=message,
            finish_reason=self._reason(generation),
            logprobs=logprobs,
            **stop_reason(generation),
        )

    def first_chunks(self, _: Piece) -> list[ChunkChoice]:
        """Return the chunk with the role."""
        return [self._chunk(ChoiceDelta(role="assistant", content=""))]

    def chunks(self, piece: Piece) -> list[ChunkChoice]:
        """Return the text and tool calls of a piece, with its log-probabilities and segments if requested."""
        if self.parser is None:
            deltas = [ChoiceDelta(content=piece.text)] if piece.text else []
        else:
            parsed = self.parser.push(piece.text)
            parsed += self.parser.flush() if piece.generation is not None else []
            deltas = [self._delta(delta) for delta in parsed]
        extra: dict[str, Any] = {}
        if self.request.logprobs is not None and piece.token_ids:
            extra["logprobs"] = chat_logprobs(self.tokenizer, piece.logprobs)
            deltas = deltas or [ChoiceDelta(content="")]
        if self.request.origins:
            self._segments += [list(segment) for segment in piece.segments]
            if deltas:
                extra["specclient"], self._segments = {"segments": self._segments}, []
        return [self._chunk(delta, **({} if i else extra)) for i, delta in enumerate(deltas)]

    def last_chunks(self, generation: Generation) -> list[ChunkChoice]:
        """Return the chunk with the finish reason."""
        return [self._chunk(ChoiceDelta(), self._reason(generation), **stop_reason(generation))]

    def _reason(self, generation: Generation) -> FinishReason:
        called = self.parser is not None and self.parser.calls > 0
        return "tool_calls" if called and generation.finish_reason == "stop" else generation.finish_reason

    def _chunk(self, delta: ChoiceDelta, reason: FinishReason | None = None, **extra: Any) -> ChunkChoice:
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
