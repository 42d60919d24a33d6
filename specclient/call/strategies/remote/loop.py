"""Turn a draft's tokens and a far target's scores of them into the target's own greedy answer.

In each round a draft model proposes K tokens, the target scores all of them and adds one of its own in a
single request, and the longest beginning that it would have chosen itself is kept: so the answer is, token
for token, the one that it would have given alone (Leviathan et al., arXiv 2211.17192, at temperature 0).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from specclient.call.strategies.context import StrategyContext, request_param, unsupported_parameter
from specclient.call.strategies.remote.completion_builder import CompletionBuilder
from specclient.call.strategies.remote.detokenizer import REPLACEMENT_CHARACTER, RemoteDetokenizer
from specclient.call.strategies.remote.draft_client import DraftClient, TargetFallbackError
from specclient.call.strategies.remote.draft_length import (
    CALIBRATION_TOKENS,
    DraftLengthController,
    RoundCounts,
)
from specclient.call.strategies.remote.eligibility import DEFAULT_MAX_TOKENS, ineligibility, prompt_of
from specclient.call.strategies.remote.scoring import (
    ScoringRequest,
    ScoringResult,
    ScoringToken,
    unverifiable_answer,
)
from specclient.call.strategies.remote.scoring_formats import SCORING_FORMATS
from specclient.call.strategies.remote.stop_strings import StopStringMatcher
from specclient.errors import BadRequestError, ContextOverflowError
from specclient.types.completion import Completion
from specclient.types.usage import CompletionUsage


async def whole(table: StrategyContext) -> Any:
    """Serve a request whole, verified.

    Raises:
        UnsupportedParameterError: what cannot be verified exactly, with the way out.
    """
    game = _RemoteSpeculation(table)
    texts = [text async for text in game.texts()]
    return game.answer("".join(texts))


async def stream(table: StrategyContext) -> AsyncGenerator[list[Any], None]:
    """Serve a request as a stream, its text as it is verified."""
    game = _RemoteSpeculation(table)
    sent = 0
    async with aclosing(game.texts()) as texts:
        async for text in texts:
            if text or len(game.ids) > sent:
                yield [game.framing.chunk(text, game.ids[sent:])]
                sent = len(game.ids)
    yield [game.framing.chunk("", game.ids[sent:], game.finish)]
    options = request_param(table.request, "stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        yield [game.framing.told(game.usage())]


class _RemoteSpeculation:
    """One answer.

    Attributes:
        framing: makes completions of it.
        finish: why it ended, None while it has not.
    """

    def __init__(self, table: StrategyContext) -> None:
        found = ineligibility(table)
        if found is not None:
            raise unsupported_parameter(
                f"strategy 'remote' cannot be played: {found[0]}; or leave it out", found[1]
            )
        self._table = table
        self._form = SCORING_FORMATS[str(table.capabilities.verification)]
        prompt = prompt_of(table.request)
        assert prompt is not None
        self._given: str | list[int] = prompt
        limit = request_param(table.request, "max_tokens")
        self._limit: int = DEFAULT_MAX_TOKENS if limit is None else limit
        stop = request_param(table.request, "stop")
        self._ending = StopStringMatcher(stop)
        self._stop = (stop,) if isinstance(stop, str) else tuple(stop or ())
        self._gauge = DraftLengthController(fixed=table.strategy.depth)
        self._tally = RoundCounts()
        self._drafting = DraftClient(table)
        self._speller = RemoteDetokenizer(self._drafting.decode, ())
        self._prompt_ids: tuple[int, ...] = ()
        self._text = ""  # of the prompt, where only text can be sent
        self._shown = ""
        self.framing = CompletionBuilder(table)
        self._own: list[int] | None = None  # the target's tokens, where it decoded the whole by itself
        self._own_usage: CompletionUsage | None = None
        self._empty = False  # whether the next round must go without a draft
        self.finish: str | None = None

    @property
    def ids(self) -> list[int]:
        """The answer's tokens so far."""
        return self._speller.ids if self._own is None else self._own

    @property
    def _tokens(self) -> tuple[int, ...]:
        """The prompt's tokens and the answer's."""
        return (*self._prompt_ids, *self._speller.ids)

    async def texts(self) -> AsyncGenerator[str, None]:
        """Yield the answer's text as it is verified."""
        try:
            async for text in self._verified():
                self._shown += text
                yield text
        except TargetFallbackError as lost:
            self._table.note(f"decoded by the target alone: {lost}")
            async for text in self._anew():
                yield text
        self._table.outcome.speculation = self._tally.speculation()
        if self._tally.steps:
            self._table.note(
                f"{self._tally.accepted} of {self._tally.drafted} draft tokens kept in "
                f"{self._tally.steps} rounds"
            )

    async def _verified(self) -> AsyncGenerator[str, None]:
        yield await self._open()
        while self.finish is None:
            remaining = self._limit - len(self._speller.ids)
            depth = 0 if self._empty else self._gauge.next(remaining)
            if depth is None:
                self._table.note(self._gauge.given_up)
                break
            begun = self._table.clock()
            try:
                draft, said = await self._drafting.propose(self._tokens, depth) if depth else ((), "")
            except TargetFallbackError as lost:
                self._table.note(f"decoded on by the target alone: {lost}")
                break
            try:
                text = await self._round(draft, said, self._table.clock() - begun)
            except (BadRequestError, ContextOverflowError) as error:
                if not draft:
                    raise
                self._table.note(f"decoded on by the target alone: it takes no more of a draft ({error})")
                break
            yield text
        else:
            return
        async for text in self._alone(remaining):
            yield text

    async def _open(self) -> str:
        """Have the target split the prompt and begin the answer; see that the draft does both alike."""
        table = self._table
        count = min(CALIBRATION_TOKENS if self._gauge.fixed is None else 1, self._limit)
        stop = self._stop if count > 1 else ()  # one token is no sooner ended
        if isinstance(self._given, str):
            self._text = self._given
            own = await self._drafting.split(self._given)
            ask = ScoringRequest(None, self._given, count=count, stop=stop)
        else:
            own = tuple(self._given)
            self._text = await self._drafting.decode(own) if self._form.by_text else ""
            ask = ScoringRequest(own, self._text, count=count, stop=stop)
        begun = table.clock()
        seen = await self._ask(ask)
        self._gauge.opening = (len(seen.new), table.clock() - begun)
        if seen.prompt is None and ask.prompt is None:
            raise unverifiable_answer("it does not tell the prompt's token ids")
        self._prompt_ids = own if seen.prompt is None else seen.prompt
        if self._prompt_ids != own:
            raise self._strangers()
        self._speller = RemoteDetokenizer(self._drafting.decode, own)
        text = await self._taken(seen)
        return await self._checked(text, seen)

    async def _checked(self, text: str, seen: ScoringResult) -> str:
        """End what has ended; and refuse a draft that spells the target's tokens in another way."""
        if not seen.stopped and self._speller.whole and seen.new:
            ids = [token.id for token in seen.new]
            before, whole = (
                await self._drafting.decode(self._prompt_ids),
                await self._drafting.decode([*self._prompt_ids, *ids]),
            )
            if whole != before + text:
                if before.endswith(
                    REPLACEMENT_CHARACTER
                ):  # what the first new tokens show depends on who begins the text
                    raise TargetFallbackError("the prompt ends amid a character")
                raise self._strangers()
        return await self._end(text, self._reason(seen))

    def _strangers(self) -> Exception:
        """Return what to raise where draft and target do not mean the same by their tokens."""
        strategy = self._table.strategy
        what = f"{strategy.draft} and {self._table.model} have different tokenizers"
        if strategy.kind == "auto":
            return TargetFallbackError(what)
        return unsupported_parameter(
            f"strategy 'remote' cannot be played: {what}; name a draft of the target's family, or leave the "
            "strategy out",
            "strategy",
        )

    async def _round(self, draft: tuple[int, ...], said: str, drafted_s: float) -> str:
        """Play one round: have a draft scored, and keep what the target would have said."""
        table = self._table
        before = len(self._speller.ids)
        begun = table.clock()
        seen = await self._ask(self._ask_for(draft, said, 1))
        took_s = table.clock() - begun
        self._check_split(seen)
        self._speller.learn([spot.token for spot in seen.spots], said)
        kept = next((i for i, spot in enumerate(seen.spots) if not spot.greedy), len(seen.spots))
        tokens = [spot.token for spot in seen.spots[:kept]]
        self._empty = False
        if kept == len(draft):
            text, taken = await self._keep_all(tokens, seen)
        else:
            best = seen.spots[kept].best if kept < len(seen.spots) else None
            if best is not None:
                tokens.append(best)
            taken, text = await self._speller.scored(tokens) if tokens else (0, "")
            self._empty = best is None or taken < len(tokens)
            text = await self._end(text, self._reason())
        if draft:
            accepted = min(kept, taken, max(self._limit - before, 0))
            self._tally.note(len(draft), accepted)
            self._gauge.note(len(draft), kept, draft_s=drafted_s, verify_s=took_s)
        table.outcome.speculation = self._tally.speculation()
        return text

    async def _keep_all(self, tokens: list[ScoringToken], seen: ScoringResult) -> tuple[str, int]:
        """Take a draft that was accepted whole, and the target's own token behind it."""
        taken, text = await self._speller.scored(tokens) if tokens else (0, "")
        if taken < len(tokens):
            self._empty = True
            return await self._end(text, self._reason()), taken
        text = await self._end(text, self._reason())
        if self.finish is None:
            more = await self._taken(seen)
            text += await self._end(more, self._reason(seen))
        return text, taken

    async def _alone(self, remaining: int) -> AsyncGenerator[str, None]:
        """Let the target decode what remains."""
        ask = replace(self._ask_for((), "", remaining), stop=self._stop)
        if not (self._table.request.stream and self._form.streams):
            seen = await self._ask(ask)
            self._check_split(seen)
            text = await self._taken(seen)
            yield await self._end(text, self._reason(seen) or "length")
            return
        request = self._form.ask(self._table.request, self._table.endpoint, ask)
        async with await self._table.target.stream(request) as chunks:
            async for chunk in chunks:
                for choice in chunk.choices:
                    ids = (choice.model_extra or {}).get("token_ids") or ()
                    text = await self._speller.trusted(
                        [ScoringToken(each) for each in ids], choice.text or ""
                    )
                    yield await self._end(text, choice.finish_reason)
                if self.finish is not None:
                    return

    async def _anew(self) -> AsyncGenerator[str, None]:
        """Let the target decode the whole answer, and yield what has not been shown of it."""
        request, target, whole = self._table.request, self._table.target, ""
        self._own = []
        if not request.stream:
            whole = self._note_own(await target.whole(request))
            yield self._not_shown(whole)
            return
        async with await target.stream(request) as chunks:
            async for chunk in chunks:
                whole += self._note_own(chunk)
                new = self._not_shown(whole)
                self._shown += new
                yield new

    def _note_own(self, answer: Any) -> str:
        """Note what the target says by itself, whole or a piece of it; return its text."""
        self.framing.served(answer)
        self._own_usage = answer.usage or self._own_usage
        text = ""
        for choice in answer.choices:
            text += choice.text or ""
            self._own = [*(self._own or ()), *((choice.model_extra or {}).get("token_ids") or ())]
            self.finish = choice.finish_reason or self.finish
        return text

    def _not_shown(self, whole: str) -> str:
        if not (whole.startswith(self._shown) or self._shown.startswith(whole)):
            raise unverifiable_answer("decoded once more, it is another")
        return whole[len(self._shown) :]

    def _reason(self, seen: ScoringResult | None = None) -> str | None:
        """Return why the answer ends with what has been taken; None where it goes on."""
        if seen is not None and seen.stopped:
            return "stop"
        exhausted = seen is not None and not seen.new  # its context is full
        return "length" if exhausted or len(self._speller.ids) >= self._limit else None

    async def _end(self, text: str, reason: str | None) -> str:
        """Return what may be shown of new text, and end the answer where it ends; see :meth:`_reason`."""
        out, stop = self._ending.push(text)
        if not stop and reason is not None:
            rest, stop = self._ending.push(self._speller.flush())
            out += rest if stop else rest + self._ending.flush()
        if stop:
            self.finish = "stop"
            await self._speller.shorten(self._ending.length or 0)  # amid a run: the target would end there
        else:
            self.finish = reason
        return out

    async def _taken(self, seen: ScoringResult) -> str:
        """Take the target's new tokens; return their text."""
        if seen.new and not seen.text and not seen.stopped:
            return await self._speller.spelled(seen.new)
        return await self._speller.trusted(seen.new, seen.text)

    def _check_split(self, seen: ScoringResult) -> None:
        """Where text was sent: see that the server has split what is there as it was won."""
        if self._form.by_text and seen.prompt != self._tokens:
            raise TargetFallbackError(f"{self._table.where} splits the text so far into other tokens")

    def _ask_for(self, draft: tuple[int, ...], said: str, count: int) -> ScoringRequest:
        if self._form.by_text and not self._speller.whole:
            raise TargetFallbackError("the text so far ends amid a character")
        return ScoringRequest(self._tokens, self._text + self._speller.text, draft, said, count)

    async def _ask(self, ask: ScoringRequest) -> ScoringResult:
        """Have the target score, and add its own."""
        table = self._table
        answer = await table.target.whole(self._form.ask(table.request, table.endpoint, ask))
        self.framing.served(answer)
        seen = self._form.read(answer, ask)
        if seen.text and not seen.new:
            raise unverifiable_answer("it has new text without its tokens")
        if len(seen.new) > ask.count:
            raise unverifiable_answer(f"it has {len(seen.new)} new tokens where {ask.count} were asked for")
        return seen

    # What the caller gets

    def answer(self, text: str) -> Completion:
        """Return the whole answer."""
        answer = self.framing.whole(text, self.ids, self.finish, self._prompt_ids)
        answer.usage = self.usage()
        return answer

    def usage(self) -> CompletionUsage:
        """Return what the answer is long; what was used for it, over all its parts, is in ``meta``."""
        if self._own_usage is not None:
            return self._own_usage
        prompt, new = len(self._prompt_ids), len(self.ids)
        return CompletionUsage(prompt_tokens=prompt, completion_tokens=new, total_tokens=prompt + new)
