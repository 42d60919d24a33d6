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

from specclient.speculation.strategies.base import Table, given, unsupported
from specclient.speculation.strategies.drafting import Drafting, LostError
from specclient.speculation.strategies.ending import Ending
from specclient.speculation.strategies.forms import FORMS
from specclient.speculation.strategies.length import OPENING, Gauge, Tally
from specclient.speculation.strategies.scoring import Ask, Seen, Token, unreadable
from specclient.speculation.strategies.spelling import Speller
from specclient.types.completion import Completion
from specclient.types.request import Request
from specclient.types.usage import CompletionUsage

_MAX_TOKENS = 16  # the API's own default
#: Parameters that do not change which token is likeliest, beside those that are read here.
_FREE = frozenset(
    {"prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "user", "stream_options",
     "return_token_ids"}
)  # fmt: skip
#: Values of others that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
}


def hindrance(table: Table) -> tuple[str, str] | None:
    """Return what stands against verifying a draft over the wire, and the parameter; else None."""
    request = table.request
    if request.operation != "completion":
        return (
            "chats are rendered by the target's template, which is not known here: verify drafts with "
            "completions.create and the rendered prompt",
            "messages",
        )
    form = FORMS.get(str(table.capabilities.verification))
    if form is None or (table.endpoint is None and table.capabilities.verification in ("sglang", "tgi")):
        return f"{table.where} is not known to tell the log-probabilities of a prompt's tokens", "strategy"
    if table.draft is None:
        return "no draft is named: strategy=Strategy(kind='remote', draft='local/demo')", "strategy"
    if given(request, "temperature") != 0 and given(request, "top_k") != 1:
        return "only greedy answers can be verified exactly: pass temperature=0", "temperature"
    for name, value in (*request.params.items(), *request.options.body.items()):
        if name not in _FREE and value is not None and value not in _NEUTRAL.get(name, ()):
            return f"{name}={value!r} shapes answers in a way that scores do not tell", name
    limit = given(request, "max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        return f"max_tokens is {limit!r}; it must be a whole number, 1 or more", "max_tokens"
    if _prompt(request) is None:
        return "it takes one prompt, as text or as token ids, not empty: make one call each", "prompt"
    return None


async def whole(table: Table) -> Any:
    """Serve a request whole, verified.

    Raises:
        UnsupportedParameterError: what cannot be verified exactly, with the way out.
    """
    game = _Game(table)
    texts = [text async for text in game.texts()]
    return game.answer("".join(texts))


async def stream(table: Table) -> AsyncGenerator[list[Any], None]:
    """Serve a request as a stream, its text as it is verified."""
    game = _Game(table)
    sent = 0
    async with aclosing(game.texts()) as texts:
        async for text in texts:
            if text or len(game.ids) > sent:
                yield [game.chunk(text, game.ids[sent:])]
                sent = len(game.ids)
    yield [game.chunk("", game.ids[sent:], game.finish)]
    options = given(table.request, "stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        yield [game.usage_chunk()]


class _Game:
    """One answer.

    Attributes:
        finish: why it ended, None while it has not.
    """

    def __init__(self, table: Table) -> None:
        found = hindrance(table)
        if found is not None:
            raise unsupported(f"strategy 'remote' cannot be played: {found[0]}; or leave it out", found[1])
        self._table = table
        self._form = FORMS[str(table.capabilities.verification)]
        prompt = _prompt(table.request)
        assert prompt is not None
        self._given: str | list[int] = prompt
        limit = given(table.request, "max_tokens")
        self._limit: int = _MAX_TOKENS if limit is None else limit
        stop = given(table.request, "stop")
        self._ending = Ending(stop)
        self._stop = (stop,) if isinstance(stop, str) else tuple(stop or ())
        self._gauge = Gauge(fixed=table.strategy.depth)
        self._tally = Tally()
        self._drafting = Drafting(table)
        self._speller = Speller(self._drafting.decode, ())
        self._prompt_ids: tuple[int, ...] = ()
        self._text = ""  # of the prompt, where only text can be sent
        self._shown = ""
        self._served: Any = None
        self._alone_all: Any = None  # the target's own answer, where it decoded all of it
        self._empty = False  # whether the next round must go without a draft
        self.finish: str | None = None

    @property
    def ids(self) -> list[int]:
        """The answer's tokens so far."""
        if self._alone_all is not None:
            return list((self._alone_all.choices[0].model_extra or {}).get("token_ids") or ())
        return list(self._speller.ids)

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
        except LostError as lost:
            self._table.note(f"decoded by the target alone: {lost}")
            yield await self._anew()
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
                gauge = self._gauge
                self._table.note(
                    f"gave up after {gauge.rounds} rounds: with {gauge.acceptance:.0%} accepted and "
                    f"{gauge.verify_s * 1000:.0f} ms a verification the target is faster by itself"
                )
                yield await self._alone(remaining)
                return
            yield await self._round(depth)

    async def _open(self) -> str:
        """Have the target split the prompt and begin the answer; see that the draft does both alike."""
        table = self._table
        count = min(OPENING if self._gauge.fixed is None else 1, self._limit)
        own: tuple[int, ...] | None = None
        if isinstance(self._given, str):
            self._text = self._given
            own = await self._drafting.split(self._given)
            ask = Ask(None, self._given, count=count)
        else:
            own = tuple(self._given)
            self._text = await self._drafting.decode(own) if self._form.by_text else ""
            ask = Ask(own, self._text, count=count)
        begun = table.clock()
        seen = await self._ask(ask)
        self._gauge.opening = (len(seen.new), table.clock() - begun)
        if seen.prompt is None and ask.prompt is None:
            raise unreadable("it does not tell the prompt's token ids")
        self._prompt_ids = own if seen.prompt is None else seen.prompt
        if self._prompt_ids != own:
            raise self._strangers()
        self._speller = Speller(self._drafting.decode, own)
        text = await self._speller.trusted(seen.new, seen.text)
        return await self._checked(text, seen)

    async def _checked(self, text: str, seen: Seen) -> str:
        """End what has ended; and refuse a draft that spells the target's tokens in another way."""
        if not seen.stopped and self._speller.whole and seen.new:
            ids = [token.id for token in seen.new]
            before, whole = (
                await self._drafting.decode(self._prompt_ids),
                await self._drafting.decode([*self._prompt_ids, *ids]),
            )
            if whole != before + text:
                raise self._strangers()
        return self._end(text, stopped=seen.stopped)

    def _strangers(self) -> Exception:
        """Return what to raise where draft and target do not mean the same by their tokens."""
        strategy = self._table.strategy
        what = f"{strategy.draft} and {self._table.model} have different tokenizers"
        if strategy.kind == "auto":
            return LostError(what)
        return unsupported(
            f"strategy 'remote' cannot be played: {what}; name a draft of the target's family, or leave the "
            "strategy out",
            "strategy",
        )

    async def _round(self, depth: int) -> str:
        """Play one round: draft, score, keep."""
        table, clock = self._table, self._table.clock
        begun = clock()
        try:
            draft, said = await self._drafting.propose(self._tokens, depth) if depth else ((), "")
        except LostError as lost:
            table.note(f"decoded on by the target alone: {lost}")
            return await self._alone(self._limit - len(self._speller.ids))
        drafted_s = clock() - begun
        before = len(self._speller.ids)
        begun = clock()
        seen = await self._ask(self._ask_for(draft, said, 1))
        took_s = clock() - begun
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
            text = self._end(text, stopped=False)
        if draft:
            accepted = min(kept, taken, max(self._limit - before, 0))
            self._tally.note(len(draft), accepted)
            self._gauge.note(len(draft), kept, draft_s=drafted_s, verify_s=took_s)
        table.outcome.speculation = self._tally.speculation()
        return text

    async def _keep_all(self, tokens: list[Token], seen: Seen) -> tuple[str, int]:
        """Take a draft that was accepted whole, and the target's own token behind it."""
        taken, text = await self._speller.scored(tokens) if tokens else (0, "")
        if taken < len(tokens):
            self._empty = True
            return self._end(text, stopped=False), taken
        text = self._end(text, stopped=False)
        if self.finish is None:
            more = await self._speller.trusted(seen.new, seen.text)
            text += self._end(more, stopped=seen.stopped)
        return text, taken

    async def _alone(self, remaining: int) -> str:
        """Let the target decode what remains."""
        seen = await self._ask(replace(self._ask_for((), "", remaining), stop=self._stop))
        self._check_split(seen)
        text = await self._speller.trusted(seen.new, seen.text)
        return self._end(text, stopped=seen.stopped or len(self._speller.ids) < self._limit)

    async def _anew(self) -> str:
        """Let the target decode the whole answer, and return what has not been shown of it."""
        request = replace(self._table.request, stream=False)
        answer = await self._table.target.whole(request)
        self._served = self._alone_all = answer
        choice = answer.choices[0]
        if not choice.text.startswith(self._shown):
            raise unreadable("decoded once more, it is another")
        self.finish = choice.finish_reason or "stop"
        return str(choice.text[len(self._shown) :])

    def _end(self, text: str, *, stopped: bool) -> str:
        """Return what may be shown of new text, and end the answer where it ends."""
        out, stop = self._ending.push(text)
        if stop:
            self.finish = "stop"
        elif stopped or len(self._speller.ids) >= self._limit:
            rest, stop = self._ending.push(self._speller.flush())
            out += rest if stop else rest + self._ending.flush()
            self.finish = "stop" if stopped or stop else "length"
        return out

    def _check_split(self, seen: Seen) -> None:
        """Where text was sent: see that the server has split what is there as it was won."""
        if self._form.by_text and seen.prompt != self._tokens:
            raise LostError(f"{self._table.where} splits the text so far into other tokens")

    def _ask_for(self, draft: tuple[int, ...], said: str, count: int) -> Ask:
        if self._form.by_text and not self._speller.whole:
            raise LostError("the text so far ends amid a character")
        return Ask(self._tokens, self._text + self._speller.text, draft, said, count)

    async def _ask(self, ask: Ask) -> Seen:
        """Have the target score, and add its own."""
        table = self._table
        answer = await table.target.whole(self._form.ask(table.request, table.endpoint, ask))
        self._served = answer
        return self._form.read(answer, ask)

    # What the caller gets

    def answer(self, text: str) -> Completion:
        """Return the whole answer."""
        answer = self._frame(text, self.ids, self.finish)
        answer.usage = self._usage()
        if given(self._table.request, "return_token_ids"):
            answer.choices[0].prompt_token_ids = list(self._prompt_ids)  # type: ignore[attr-defined]
        return answer

    def chunk(self, text: str, ids: list[int], finish: str | None = None) -> Completion:
        """Return a piece of it."""
        return self._frame(text, ids, finish)

    def usage_chunk(self) -> Completion:
        """Return the chunk that tells its tokens."""
        chunk = self._frame("", [], None)
        chunk.choices, chunk.usage = [], self._usage()
        return chunk

    def _frame(self, text: str, ids: list[int], finish: str | None) -> Completion:
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
        if given(self._table.request, "return_token_ids"):
            choice["token_ids"] = list(ids)
        served = self._served
        return Completion.construct(
            id=getattr(served, "id", None) or "cmpl-remote",
            object="text_completion",
            created=int(self._table.created.timestamp()),
            model=getattr(served, "model", None) or self._table.model,
            choices=[choice],
        )

    def _usage(self) -> CompletionUsage:
        """Return what the answer is long; what was used for it, over all its parts, is in ``meta``."""
        if self._alone_all is not None and self._alone_all.usage is not None:
            told: CompletionUsage = self._alone_all.usage
            return told
        prompt, new = len(self._prompt_ids), len(self.ids)
        return CompletionUsage(prompt_tokens=prompt, completion_tokens=new, total_tokens=prompt + new)


def _prompt(request: Request) -> str | list[int] | None:
    """Return a request's prompt, text or ids; None where it is none, or several."""
    prompt = request.params.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(each) is int for each in prompt):
        return prompt
    return None
