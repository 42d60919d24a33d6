"""Turn what the engine gives back into OpenAI answers and chunks, of one choice or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specclient.types.backend import BackendChunk, BackendResponse
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.usage import CompletionTokensDetails, CompletionUsage, PromptTokensDetails
from specclient_local.api.openai_request.parser import EngineRequest
from specclient_local.api.openai_response.chat_choice import ChatChoice
from specclient_local.api.openai_response.text_choice import TextChoice
from specclient_local.api.tools.call_parser import ToolCallFormat, ToolCallParser
from specclient_local.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation, Piece


@dataclass(slots=True)
class ResponseBuilder:
    """How the answer to one request looks, whole or in chunks.

    Choices are numbered prompt by prompt, as the API has them: those of the first prompt come first.

    Attributes:
        operation: ``chat`` or ``completion``.
        id: ``chatcmpl-…`` or ``cmpl-…``.
        created: seconds since 1970.
        model: as the backend lists it.
        asked: what is to be told beside the text.
        tokenizer: of the model that answers.
        form: how it calls tools; None where it is to call none.
        new_id: makes letters and digits, 24 or more, that no call has yet.
    """

    operation: str
    id: str
    created: int
    model: str
    asked: EngineRequest
    tokenizer: Tokenizer
    form: ToolCallFormat | None
    new_id: Callable[[], str]
    _choices: dict[int, ChatChoice | TextChoice] = field(init=False, default_factory=dict)

    def whole(self, generations: Sequence[Generation]) -> BackendResponse:
        """Return the answer in one object."""
        usage = completion_usage(generations, self.asked.choices)
        choices: list[Any] = [self._choice(i).whole(generation) for i, generation in enumerate(generations)]
        if self.operation == "chat":
            return ChatCompletion(choices=choices, usage=usage, object="chat.completion", **self._head())
        return Completion(choices=choices, usage=usage, object="text_completion", **self._head())

    def chunks(self, index: int, piece: Piece) -> list[BackendChunk]:
        """Return what a piece of one choice adds: its role or prompt, text, calls, and why it ends."""
        choice = self._choice(index)
        parts: list[Any] = [] if piece.prompt_token_ids is None else [*choice.opening(piece)]
        parts += choice.piece(piece)
        if piece.generation is not None:
            parts += choice.finish(piece.generation)  # last: why it ends depends on what came
        return [self._chunk([part]) for part in parts]

    def usage(self, generations: Sequence[Generation]) -> BackendChunk:
        """Return the last chunk: no choices, only usage."""
        return self._chunk([], usage=completion_usage(generations, self.asked.choices))

    def _choice(self, index: int) -> ChatChoice | TextChoice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = self._begun(index)
        return choice

    def _begun(self, index: int) -> ChatChoice | TextChoice:
        asked, tools = self.asked, self.asked.tools
        if self.operation != "chat":
            return TextChoice(index, asked.prompts[index // asked.choices], asked, self.tokenizer)
        reader, brief = None, False
        if tools is not None and self.form is not None:
            reader, brief = (
                ToolCallParser(self.form, tools.names, None if tools.several else 1),
                self.form.brief,
            )
        return ChatChoice(index, asked, self.tokenizer, reader, lambda: _call_id(self.new_id(), brief=brief))

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "created": self.created, "model": self.model}

    def _chunk(self, choices: list[Any], **more: Any) -> BackendChunk:
        if self.operation == "chat":
            return ChatCompletionChunk(
                choices=choices, object="chat.completion.chunk", **self._head(), **more
            )
        return Completion(choices=choices, object="text_completion", **self._head(), **more)


def completion_usage(generations: Sequence[Generation], choices: int) -> CompletionUsage:
    """Return the token counts of an answer.

    Unlike OpenAI's, ``completion_tokens`` leaves rejected prediction tokens out: the target has read them
    but generated none of them, and nothing here is billed by the token.

    Args:
        generations: of all choices, those of the first prompt first.
        choices: of each prompt, which is counted once, and as cached where its first choice found it so.
    """
    asked = sum(generation.prompt_tokens for generation in generations[::choices])
    new = sum(len(generation.token_ids) for generation in generations)
    accepted = [n for g in generations if (n := g.speculation.predicted_accepted) is not None]
    rejected = [n for g in generations if (n := g.speculation.predicted_rejected) is not None]
    details = None
    if accepted:
        details = CompletionTokensDetails(
            accepted_prediction_tokens=sum(accepted), rejected_prediction_tokens=sum(rejected)
        )
    cached = sum(generation.cached_tokens for generation in generations[::choices])
    return CompletionUsage(
        prompt_tokens=asked,
        completion_tokens=new,
        total_tokens=asked + new,
        completion_tokens_details=details,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached),
    )


def _call_id(letters: str, *, brief: bool) -> str:
    """Return the id of a tool call; Mistral's templates insist on nine letters and digits."""
    return letters[:9] if brief else f"call_{letters[:24]}"
