"""One answer of strategy ``remote``: a draft model and a remote target that scores prompts.

In each round a draft model proposes K tokens; in one request, the target scores all of them and generates one
token of its own; the longest prefix of the draft that the target would have generated itself is accepted. The
answer is, token for token, the one that the target alone would give (Leviathan et al., arXiv 2211.17192, at
temperature 0).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

from specclient.call.request_params import DEFAULT_COMPLETION_TOKENS, request_param
from specclient.call.strategies.context import StrategyContext
from specclient.call.strategies.remote.chat_builder import ChatBuilder
from specclient.call.strategies.remote.completion_builder import CompletionBuilder
from specclient.call.strategies.remote.detokenizer import RemoteDetokenizer
from specclient.call.strategies.remote.draft_client import DraftClient, TargetFallbackError
from specclient.call.strategies.remote.draft_length import (
    CALIBRATION_TOKENS,
    DraftLengthController,
    RoundCounts,
)
from specclient.call.strategies.remote.eligibility import prompt_of
from specclient.call.strategies.remote.first_prompt import first_prompt
from specclient.call.strategies.remote.rendered_chat import RenderedChat
from specclient.call.strategies.remote.scoring import (
    ScoringRequest,
    ScoringResult,
    ScoringToken,
    unverifiable_answer,
)
from specclient.call.strategies.remote.scoring_formats import SCORING_FORMATS
from specclient.call.strategies.remote.stop_strings import StopStringMatcher
from specclient.call.strategies.remote.target_answer import TargetAnswer
from specclient.call.strategies.remote.tokenizer_check import check_first_text, different_tokenizers
from specclient.errors import BadRequestError, ContextOverflowError
from specclient.types.usage import CompletionUsage

#: The token limit of a chat without one.
UNLIMITED = sys.maxsize
#: Tokens of one request in which the target decodes a part of such a chat alone.
REST_TOKENS = 1024


class RemoteSpeculation:
    """One answer.

    Args:
        context: of a request that :func:`.eligibility.ineligibility` allows.
        chat: the request's chat, rendered; None for a completion.

    Attributes:
        builder: builds the completion or its chunks.
        finish_reason: why the answer ended; None while it goes on.
    """

    def __init__(self, context: StrategyContext, chat: RenderedChat | None) -> None:
        self._chat = chat
        self.builder = CompletionBuilder(context) if chat is None else ChatBuilder(context, chat)
        if chat is not None:
            context = replace(context, request=chat.completion)
        self._context = context
        self._format = SCORING_FORMATS[str(context.capabilities.verification)]
        prompt = prompt_of(context.request)
        assert prompt is not None
        self._prompt: str | list[int] = prompt
        limit = request_param(context.request, "max_tokens")
        default = DEFAULT_COMPLETION_TOKENS if chat is None else UNLIMITED
        self._max_tokens: int = default if limit is None else limit
        stop = request_param(context.request, "stop")
        self._stop_matcher = StopStringMatcher(stop)
        self._stop = (stop,) if isinstance(stop, str) else tuple(stop or ())
        self._end_tokens = {} if chat is None else chat.template.stop_tokens
        if not self._format.takes_stop_ids:
            self._stop += tuple(filter(None, self._end_tokens.values()))
        self._draft_length = DraftLengthController(fixed=context.strategy.depth)
        self._counts = RoundCounts()
        self._draft = DraftClient(context, tuple(self._end_tokens))
        self._detokenizer = RemoteDetokenizer(self._draft.detokenize, ())
        self._prompt_ids: tuple[int, ...] = ()
        self._prompt_text = ""  # where the target accepts text only
        self._shown = ""
        self._target_answer: TargetAnswer | None = None  # where the target decodes the whole answer alone
        self._skip_draft = False  # whether the next round must go without a draft
        self.finish_reason: str | None = None

    @property
    def ids(self) -> list[int]:
        """The answer's tokens so far."""
        return self._detokenizer.ids if self._target_answer is None else self._target_answer.ids

    @property
    def _all_ids(self) -> tuple[int, ...]:
        """The tokens of the prompt and of the answer so far."""
        return (*self._prompt_ids, *self._detokenizer.ids)

    async def texts(self) -> AsyncGenerator[str, None]:
        """Yield the answer's text as it is verified."""
        try:
            async for text in self._verified_texts():
                self._shown += text
                yield text
        except TargetFallbackError as fallback:
            context = self._context
            if self._chat is not None:
                if not self._shown:
                    raise
                context = replace(context, request=self._chat.request)
            context.note(f"decoded by the target alone: {fallback}")
            self._target_answer = TargetAnswer(context, self.builder.note_target, self._shown)
            async for text in self._target_answer.texts():
                yield text
            self.finish_reason = self._target_answer.finish_reason or self.finish_reason
        self._context.outcome.speculation = self._counts.speculation()
        if self._counts.steps:
            self._context.note(
                f"{self._counts.accepted} of {self._counts.drafted} draft tokens accepted in "
                f"{self._counts.steps} rounds"
            )

    async def _verified_texts(self) -> AsyncGenerator[str, None]:
        """Yield text round by round; where drafting ends early, the target decodes the rest alone."""
        context = self._context
        yield await self._first_tokens()
        while self.finish_reason is None:
            remaining = self._max_tokens - len(self._detokenizer.ids)
            length = 0 if self._skip_draft else self._draft_length.next_length(remaining)
            if length is None:
                context.note(self._draft_length.give_up_reason)
                break
            started_s = context.clock()
            try:
                draft, draft_text = await self._draft.propose(self._all_ids, length) if length else ((), "")
            except TargetFallbackError as fallback:
                context.note(f"the rest was decoded by the target alone: {fallback}")
                break
            try:
                text = await self._round(draft, draft_text, context.clock() - started_s)
            except (BadRequestError, ContextOverflowError) as error:
                if not draft and self._max_tokens != UNLIMITED:
                    raise
                context.note(f"the rest was decoded by the target alone: it refused a draft ({error})")
                break
            yield text
        else:
            return
        async for text in self._decode_rest():
            yield text

    # The first tokens

    async def _first_tokens(self) -> str:
        """Have the target tokenize the prompt and begin the answer; check that both tokenizers agree."""
        context = self._context
        count = min(CALIBRATION_TOKENS if self._draft_length.fixed is None else 1, self._max_tokens)
        stop = self._stop if count > 1 else ()  # a single token cannot end earlier
        scoring = ScoringRequest(None, new_tokens=count, stop=stop, stop_ids=self._stop_ids)
        draft_ids, self._prompt_text, scoring = await first_prompt(
            self._draft, self._format, self._prompt, self._chat, scoring
        )
        started_s = context.clock()
        result = await self._score(scoring)
        self._draft_length.calibration = (len(result.new_tokens), context.clock() - started_s)
        if result.prompt is None and scoring.prompt is None:
            raise unverifiable_answer("it does not report the prompt's token ids")
        self._prompt_ids = draft_ids if result.prompt is None else result.prompt
        if self._prompt_ids != draft_ids:
            raise different_tokenizers(context)
        self._detokenizer = RemoteDetokenizer(self._draft.detokenize, draft_ids)
        text = await self._append_new(result)
        if self._detokenizer.is_character_complete:
            await check_first_text(context, self._draft, draft_ids, result, text)
        return await self._emit(text, self._finish_reason(result))

    # One round

    async def _round(self, draft: tuple[int, ...], draft_text: str, draft_s: float) -> str:
        """Have a draft scored, and append the tokens that the target would have generated.

        Args:
            draft, draft_text: the proposal; empty for a round in which the target adds a token of its own.
            draft_s: seconds that the proposal took.
        """
        context, detokenizer = self._context, self._detokenizer
        before = len(detokenizer.ids)
        started_s = context.clock()
        result = await self._score(self._scoring_request(draft, draft_text, 1))
        verify_s = context.clock() - started_s
        self._check_tokenization(result)
        scored = result.draft_tokens
        detokenizer.learn([each.token for each in scored], draft_text)
        accepted = next((i for i, each in enumerate(scored) if not each.is_greedy), len(scored))
        tokens = [each.token for each in scored[:accepted]]
        self._skip_draft = False
        if accepted == len(draft):
            text, appended = await self._append_whole_draft(tokens, result)
        else:
            greedy = scored[accepted].greedy_token if accepted < len(scored) else None
            if greedy is not None:
                tokens.append(greedy)
            appended, text = await detokenizer.append_scored(tokens) if tokens else (0, "")
            self._skip_draft = greedy is None or appended < len(tokens)
            text = await self._emit(text, self._finish_reason())
        if draft:
            counted = min(accepted, appended, max(self._max_tokens - before, 0))
            self._counts.note(len(draft), counted)
            self._draft_length.note(len(draft), accepted, draft_s=draft_s, verify_s=verify_s)
        context.outcome.speculation = self._counts.speculation()
        return text

    async def _append_whole_draft(self, tokens: list[ScoringToken], result: ScoringResult) -> tuple[str, int]:
        """Append a fully accepted draft and the target's own next token.

        Returns:
            The text to show, and the number of draft tokens appended.
        """
        appended, text = await self._detokenizer.append_scored(tokens) if tokens else (0, "")
        text = await self._emit(text, self._finish_reason())
        if appended < len(tokens):
            self._skip_draft = True
        elif self.finish_reason is None:
            text += await self._emit(await self._append_new(result), self._finish_reason(result))
        return text, appended

    async def _score(self, scoring: ScoringRequest) -> ScoringResult:
        """Have the target score a draft and generate new tokens."""
        context = self._context
        answer = await context.target.complete(
            self._format.build_request(context.request, context.endpoint, scoring)
        )
        self.builder.note_target(answer)
        result = self._format.parse(answer, scoring)
        if result.text and not result.new_tokens:
            raise unverifiable_answer("it has new text without its tokens")
        if len(result.new_tokens) > scoring.new_tokens:
            raise unverifiable_answer(
                f"it has {len(result.new_tokens)} new tokens where {scoring.new_tokens} were requested"
            )
        return result

    def _scoring_request(self, draft: tuple[int, ...], draft_text: str, new_tokens: int) -> ScoringRequest:
        if self._format.text_only and not self._detokenizer.is_character_complete:
            raise TargetFallbackError("the text so far ends in the middle of a character")
        text = self._prompt_text + self._detokenizer.text
        return ScoringRequest(self._all_ids, text, draft, draft_text, new_tokens, stop_ids=self._stop_ids)

    @property
    def _stop_ids(self) -> tuple[int, ...]:
        return tuple(self._end_tokens) if self._format.takes_stop_ids else ()

    def _check_tokenization(self, result: ScoringResult) -> None:
        """Check that a target that is sent text only tokenizes it as it was generated."""
        if self._format.text_only and result.prompt != self._all_ids:
            raise TargetFallbackError(f"{self._context.target_label} tokenizes the text so far differently")

    # The target alone

    async def _decode_rest(self) -> AsyncGenerator[str, None]:
        """Have the target decode the remaining tokens; without a limit, in pieces until its context ends."""
        piece = REST_TOKENS if self._max_tokens == UNLIMITED else self._max_tokens
        while self.finish_reason is None:
            tokens = min(self._max_tokens - len(self._detokenizer.ids), piece)
            try:
                async for text in self._decode_piece(tokens):
                    yield text
            except (BadRequestError, ContextOverflowError):
                if self._max_tokens != UNLIMITED:
                    raise
                if tokens == 1:  # refused only for its length: a shorter prefix was answered
                    yield await self._emit("", "length")
                piece = max(tokens // 8, 1)

    async def _decode_piece(self, tokens: int) -> AsyncGenerator[str, None]:
        context, end = self._context, len(self._detokenizer.ids) + tokens
        scoring = replace(self._scoring_request((), "", tokens), stop=self._stop)

        def reason(finish_reason: str | None) -> str | None:
            goes_on = self._max_tokens == UNLIMITED and len(self._detokenizer.ids) >= end
            return None if finish_reason == "length" and goes_on else finish_reason

        if not (context.request.stream and self._format.streams):
            result = await self._score(scoring)
            self._check_tokenization(result)
            text = await self._append_new(result)
            yield await self._emit(text, reason(self._finish_reason(result) or "length"))
            return
        request = self._format.build_request(context.request, context.endpoint, scoring)
        async with await context.target.stream(request) as chunks:
            async for chunk in chunks:
                for choice in chunk.choices:
                    ids = (choice.model_extra or {}).get("token_ids") or ()
                    text = await self._detokenizer.append_text(
                        [ScoringToken(each) for each in ids], choice.text or ""
                    )
                    yield await self._emit(text, reason(choice.finish_reason))
                if self.finish_reason is not None:
                    return
        if len(self._detokenizer.ids) < end:  # another request would be billed, and could end likewise
            raise unverifiable_answer("its stream ended without a finish reason")
        yield await self._emit("", self._finish_reason())

    # The end of the answer

    async def _append_new(self, result: ScoringResult) -> str:
        """Append the tokens that the target generated; return their text."""
        if result.new_tokens and not result.text and not result.finished:
            text = await self._detokenizer.append(result.new_tokens)
            self._detokenizer.hides_parts = not self._detokenizer.is_character_complete
            return text
        return await self._detokenizer.append_text(result.new_tokens, result.text)

    def _finish_reason(self, result: ScoringResult | None = None) -> str | None:
        """Return why the answer ends after the appended tokens; None where it goes on."""
        if result is not None and (result.finished or self._ends(result.new_tokens)):
            return "stop"
        context_is_full = result is not None and not result.new_tokens
        is_at_limit = len(self._detokenizer.ids) >= self._max_tokens
        return "length" if context_is_full or is_at_limit else None

    def _ends(self, tokens: Sequence[ScoringToken]) -> bool:
        """Return whether tokens end with one that ends a turn of the chat, though the target goes on."""
        return bool(tokens) and tokens[-1].id in self._end_tokens

    async def _emit(self, text: str, finish_reason: str | None) -> str:
        """Return the text to show, and end the answer at a stop string or for ``finish_reason``."""
        output, stopped = self._stop_matcher.push(text)
        if not stopped and finish_reason is not None:
            rest, stopped = self._stop_matcher.push(self._detokenizer.flush())
            output += rest if stopped else rest + self._stop_matcher.flush()
        if stopped:
            self.finish_reason = "stop"
            # The stop string may end before the last token; the target would not have generated the others.
            await self._detokenizer.truncate_to(self._stop_matcher.length or 0)
        else:
            self.finish_reason = finish_reason
        return output

    # The result

    def answer(self, text: str) -> Any:
        """Return the complete answer."""
        answer = self.builder.completion(text, self.ids, self.finish_reason, self._prompt_ids)
        answer.usage = self.usage()
        return answer

    def usage(self) -> CompletionUsage:
        """Return the answer's own tokens; those of all sub-calls together are in ``meta``."""
        if self._target_answer is not None and self._target_answer.usage is not None:
            return self._target_answer.usage
        prompt, new = len(self._prompt_ids), len(self.ids)
        return CompletionUsage(prompt_tokens=prompt, completion_tokens=new, total_tokens=prompt + new)
