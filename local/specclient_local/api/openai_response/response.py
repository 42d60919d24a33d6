"""Build OpenAI's responses and chunks from generations, for one choice or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specclient.chat_format.tool_calls import ToolCallFormat, ToolCallParser
from specclient.types.backend import BackendChunk, BackendResponse
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.usage import CompletionUsage
from specclient_local.api.openai_request.parser import EngineRequest
from specclient_local.api.openai_response.chat_choice import ChatChoice
from specclient_local.api.openai_response.text_choice import TextChoice
from specclient_local.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation, Piece


@dataclass(slots=True)
class ResponseBuilder:
    """Builds the response to one request, complete or as chunks.

    Choices are numbered as in the API: all choices of the first prompt, then those of the second, …

    Attributes:
        operation: ``chat`` or ``completion``.
        id: ``chatcmpl-…`` or ``cmpl-…``.
        created: seconds since 1970.
        model: the name under which the backend lists it.
        request: the parsed request; determines the fields of the response.
        tokenizer: the model's.
        call_format: the format in which the model writes tool calls; None where it may call no tools.
        new_id: returns a new unique string of at least 24 letters and digits, for tool calls.
    """

    operation: str
    id: str
    created: int
    model: str
    request: EngineRequest
    tokenizer: Tokenizer
    call_format: ToolCallFormat | None
    new_id: Callable[[], str]
    _choices: dict[int, ChatChoice | TextChoice] = field(init=False, default_factory=dict)

    def response(self, generations: Sequence[Generation], usage: CompletionUsage) -> BackendResponse:
        """Return the complete response; ``generations`` has one item per choice."""
        choices: list[Any] = [
            self._choice(i).complete(generation) for i, generation in enumerate(generations)
        ]
        if self.operation == "chat":
            return ChatCompletion(choices=choices, usage=usage, object="chat.completion", **self._head())
        return Completion(choices=choices, usage=usage, object="text_completion", **self._head())

    def chunks(self, index: int, piece: Piece) -> list[BackendChunk]:
        """Return the chunks for one piece of a choice: role or prompt, text, tool calls, finish reason."""
        choice = self._choice(index)
        choices: list[Any] = [] if piece.prompt_token_ids is None else [*choice.first_chunks(piece)]
        choices += choice.chunks(piece)
        if piece.generation is not None:
            # After chunks(): the finish reason depends on whether the parser found tool calls.
            choices += choice.last_chunks(piece.generation)
            del self._choices[index]
        return [self._chunk([chunk_choice]) for chunk_choice in choices]

    def usage(self, usage: CompletionUsage) -> BackendChunk:
        """Return the last chunk: usage without choices."""
        return self._chunk([], usage=usage)

    def _choice(self, index: int) -> ChatChoice | TextChoice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = self._new_choice(index)
        return choice

    def _new_choice(self, index: int) -> ChatChoice | TextChoice:
        request, tools = self.request, self.request.tools
        if self.operation != "chat":
            return TextChoice(index, request.prompts[index // request.choices], request, self.tokenizer)
        parser, short = None, False
        if tools is not None and self.call_format is not None:
            parser = ToolCallParser(self.call_format, tools.names, None if tools.parallel else 1)
            short = self.call_format.short_ids
        return ChatChoice(
            index, request, self.tokenizer, parser, lambda: _call_id(self.new_id(), short=short)
        )

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "created": self.created, "model": self.model}

    def _chunk(self, choices: list[Any], **more: Any) -> BackendChunk:
        if self.operation == "chat":
            return ChatCompletionChunk(
                choices=choices, object="chat.completion.chunk", **self._head(), **more
            )
        return Completion(choices=choices, object="text_completion", **self._head(), **more)


def _call_id(letters: str, *, short: bool) -> str:
    """Return the id of a tool call; Mistral's templates require nine letters and digits."""
    return letters[:9] if short else f"call_{letters[:24]}"
