"""Turn what the engine gives back into OpenAI answers and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specclient.types.backend import Answer, Chunk
from specclient.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
from specclient.types.chat.chat_completion import Choice
from specclient.types.chat.chat_completion_chunk import Choice as ChunkChoice
from specclient.types.chat.chat_completion_chunk import ChoiceDelta
from specclient.types.completion import Completion, CompletionChoice, Logprobs
from specclient.types.usage import CompletionTokensDetails, CompletionUsage
from specclient_local.dialect import Asked
from specclient_local.model.tokenizer import TextStream, Tokenizer
from specclient_local.scores import LegacyLogprobs, chat_logprobs, prompt_logprobs

if TYPE_CHECKING:
    from specclient_local.answer import Generation, Piece, Scored
    from specclient_local.sequence import TokenScore


@dataclass(slots=True)
class Shape:
    """How the answer to one request looks, whole or in chunks.

    Attributes:
        id: ``chatcmpl-…`` or ``cmpl-…``.
        created: seconds since 1970.
        model: as the backend lists it.
        asked: what is to be told beside the text.
        tokenizer: of the model that answers.
    """

    operation: str
    id: str
    created: int
    model: str
    asked: Asked
    tokenizer: Tokenizer
    _legacy: LegacyLogprobs | None = field(init=False, default=None)

    def whole(self, generation: Generation) -> Answer:
        """Return the answer in one object."""
        reason, usage = generation.finish_reason, usage_of(generation)
        if self.operation == "chat":
            message = ChatCompletionMessage(content=generation.text, role="assistant", refusal=None)
            logprobs = None
            if generation.logprobs is not None:
                logprobs = chat_logprobs(self.tokenizer, generation.logprobs)
            choice = Choice(index=0, message=message, finish_reason=reason, logprobs=logprobs)
            return ChatCompletion(choices=[choice], usage=usage, object="chat.completion", **self._head())
        ids, new = generation.prompt_token_ids, generation.token_ids
        text, extra = self._prompt(ids, generation.scored)
        scores: list[TokenScore | None] = list(generation.logprobs or ())
        if self.asked.echo and generation.scored is not None:
            new, scores = [*ids, *new], [*generation.scored.scores, *scores]
        part = CompletionChoice(
            index=0,
            text=text + generation.text,
            finish_reason=reason,
            logprobs=self._legacy_part(ids, new, scores),
            **extra,
            **self._new(generation.token_ids),
        )
        return Completion(choices=[part], usage=usage, object="text_completion", **self._head())

    def opening(self, piece: Piece) -> Chunk | None:
        """Return the chunk before the text: a chat's role, or what is told of a completion's prompt."""
        if self.operation == "chat":
            return self._chunk(ChoiceDelta(role="assistant", content=""), "", None)
        ids = piece.prompt_token_ids or []
        text, extra = self._prompt(ids, piece.scored)
        echoed = self._legacy_part(ids, [], [])  # begun here, where the prompt is known
        if self.asked.echo and piece.scored is not None:
            echoed = self._legacy_part(ids, ids, piece.scored.scores)
        if not self.asked.echo and not extra:
            return None
        return self._chunk(ChoiceDelta(), text, None, logprobs=echoed, **extra)

    def text(self, piece: Piece) -> Chunk | None:
        """Return the chunk of a piece, or None where there is nothing to tell."""
        told = piece.token_ids and (self.asked.token_ids or self.asked.logprobs is not None)
        if not piece.text and not told:
            return None
        extra: dict[str, Any] = {}
        if self.asked.origins:
            extra["specclient"] = {"segments": [list(segment) for segment in piece.segments]}
        if self.operation != "chat":
            extra |= self._new(piece.token_ids)
            extra["logprobs"] = self._legacy_part([], piece.token_ids, piece.logprobs)
        elif self.asked.logprobs is not None:
            extra["logprobs"] = chat_logprobs(self.tokenizer, piece.logprobs)
        return self._chunk(ChoiceDelta(content=piece.text), piece.text, None, **extra)

    def finish(self, reason: str) -> Chunk:
        """Return the chunk that says why the answer ends."""
        return self._chunk(ChoiceDelta(), "", reason)

    def usage(self, generation: Generation) -> Chunk:
        """Return the last chunk: no choices, only usage."""
        usage = usage_of(generation)
        if self.operation == "chat":
            return ChatCompletionChunk(
                choices=[], usage=usage, object="chat.completion.chunk", **self._head()
            )
        return Completion(choices=[], usage=usage, object="text_completion", **self._head())

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "created": self.created, "model": self.model}

    def _chunk(self, delta: ChoiceDelta, text: str, reason: str | None, **extra: Any) -> Chunk:
        if self.operation == "chat":
            part = ChunkChoice(index=0, delta=delta, finish_reason=reason, **extra)
            return ChatCompletionChunk(choices=[part], object="chat.completion.chunk", **self._head())
        choice = CompletionChoice(index=0, text=text, finish_reason=reason, **extra)
        return Completion(choices=[choice], object="text_completion", **self._head())

    def _prompt(self, ids: list[int], scored: Scored | None) -> tuple[str, dict[str, Any]]:
        """Return a completion's echo, and the fields that tell of its prompt."""
        asked, echo, extra = self.asked, "", dict[str, Any]()
        if asked.echo:
            echo = asked.prompt if isinstance(asked.prompt, str) else self.tokenizer.decode(ids)
        if asked.prompt_logprobs is not None and scored is not None:
            extra["prompt_logprobs"] = prompt_logprobs(self.tokenizer, scored.scores, asked.prompt_logprobs)
        if asked.token_ids:
            extra["prompt_token_ids"] = ids
        return echo, extra

    def _new(self, token_ids: Sequence[int]) -> dict[str, Any]:
        return {"token_ids": list(token_ids)} if self.asked.token_ids else {}

    def _legacy_part(
        self, prompt: list[int], tokens: Sequence[int], scores: Sequence[TokenScore | None]
    ) -> Logprobs | None:
        """Return the ``logprobs`` of a completion's next tokens, where asked for."""
        if self.asked.logprobs is None:
            return None
        if self._legacy is None:
            before = () if self.asked.echo else prompt
            self._legacy = LegacyLogprobs(
                self.tokenizer, self.asked.logprobs, TextStream(self.tokenizer, before)
            )
        return self._legacy.part(tokens, scores)


def usage_of(generation: Generation) -> CompletionUsage:
    """Return the token counts of an answer.

    Unlike OpenAI's, ``completion_tokens`` leaves rejected prediction tokens out: the target has read them
    but generated none of them, and nothing here is billed by the token.
    """
    new, speculation, details = len(generation.token_ids), generation.speculation, None
    if speculation.predicted_accepted is not None:
        details = CompletionTokensDetails(
            accepted_prediction_tokens=speculation.predicted_accepted,
            rejected_prediction_tokens=speculation.predicted_rejected,
        )
    return CompletionUsage(
        prompt_tokens=generation.prompt_tokens,
        completion_tokens=new,
        total_tokens=generation.prompt_tokens + new,
        completion_tokens_details=details,
    )
