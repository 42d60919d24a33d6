"""Turn finished calls of one kind into how fast the next one goes: to its first token and for each one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specclient.routing.line import Line
from specclient.routing.sample import Sample
from specclient.routing.sketch import Sketch

__all__ = ["LEAN", "Pace", "Times", "Timing", "Typical", "timing"]

#: How old calls fade, by count and by time.
_CALLS, _SECONDS = 25.0, 3600.0
#: Calls of all tasks that lean in where a task has none of its own; fewer the more it has.
LEAN = 6.0
#: How what sets a task apart from the others fades, by count and by time.
_TIMES_CALLS, _TIMES_SECONDS = 50.0, 86400.0
#: No task is so many times faster or slower than the others: what is, is a shift of the route.
_MOST_TIMES = 2.0
#: A first token later than so many medians bears on none of what prompts cost.
_OUTLIER = 5.0
#: An engine's call that took so many times its work, and a second, waited for weights to be loaded.
_LOADING = 4.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The seconds of one call.

    Attributes:
        tokens: of the answer, 1 at least; ``prompt``: of the prompt, 0 where unknown.
        first_s: to the first token, None where unknown; ``total_s``: in all; ``working_s``: of them, those
            that were work on it.
        engine_s: of the engine in this process, None for hosted calls.
    """

    tokens: int
    prompt: int
    first_s: float | None
    total_s: float
    working_s: float
    engine_s: float | None


def timing(sample: Sample) -> Timing | None:
    """Return the seconds of a finished call; None where it says nothing of the next one's.

    A call of the engine in this process counts by the seconds it was worked on: the rest was a queue that is
    gone, or weights being loaded. That it took so long in all counts too, unless weights were loaded.
    """
    tokens, latency = sample.completion_tokens, sample.latency_s
    if sample.failed or not tokens or tokens < 0 or latency is None or not latency >= 0:
        return None
    first, engine = sample.ttft_s, sample.engine_s
    prompt = max(sample.prompt_tokens or 0, 0)
    if engine is None:
        first = None if first is None else min(first, latency)
        return Timing(tokens, prompt, first, latency, latency, None)
    if first is not None and first > engine:
        first = None
    total = engine if latency > _LOADING * engine + 1 else latency
    return Timing(tokens, prompt, first, max(total, engine), engine, engine)


@dataclass(frozen=True, slots=True)
class Typical:
    """The middle of what is expected.

    Attributes:
        ttft_s: seconds to the first token of a prompt of ``prompt`` tokens, each one more adding
            ``prompt_token_s``; ``token_s``: for each token of the answer.
        told: whether a first token was seen, or can be told apart from the rest.
    """

    ttft_s: float
    token_s: float
    prompt_token_s: float = 0.0
    prompt: float = 0.0
    told: bool = True

    def first_s(self, prompt_tokens: int | None) -> float:
        """Return the seconds to the first token for a prompt of so many tokens, as usual where None."""
        if not self.prompt_token_s or not prompt_tokens:
            return self.ttft_s
        return max(self.ttft_s + self.prompt_token_s * (prompt_tokens - self.prompt), 0.2 * self.ttft_s)

    def seconds(self, tokens: float, prompt_tokens: int | None) -> float:
        """Return the seconds of an answer."""
        return self.first_s(prompt_tokens) + self.token_s * tokens


class Pace:
    """How fast calls of one route have gone of late, its tasks made comparable."""

    #: ``first``: without what reading the prompt takes, as far as that can be told.
    __slots__ = ("_prompt", "_unstreamed", "engine", "first", "token")

    def __init__(self) -> None:
        self.first = Sketch(_CALLS, _SECONDS)
        self.token = Sketch(_CALLS, _SECONDS)
        self.engine = Sketch(_CALLS, _SECONDS)
        self._prompt = Line(2 * _CALLS)
        self._unstreamed = Line(2 * _CALLS)

    def add(self, call: Timing, at: float, times: float = 1.0) -> None:
        """Note a call.

        Args:
            times: how many times longer tokens of its task take, as far as that is known.
        """
        first = call.first_s
        if first is None:
            usual = self.first.quantile(0.5)
            if usual is None:
                self._unstreamed.add(call.tokens, call.working_s)
            first = 0.0 if usual is None else self._at(call.prompt, usual)
        else:
            middle = self.first.quantile(0.5)
            if call.prompt and (middle is None or first <= _OUTLIER * self._at(call.prompt, middle) + 1e-3):
                self._prompt.add(call.prompt, first)
            self.first.add(max(first - self._reading(call.prompt), 0.2 * first), at)
        self.token.add(max(call.working_s - first, 0.0) / call.tokens / times, at)
        if call.engine_s is not None:
            self.engine.add(call.engine_s / call.tokens, at)

    def _reading(self, prompt: int) -> float:
        """Return the seconds that the tokens of a prompt take."""
        return (self._prompt.slope or 0.0) * prompt

    def _at(self, prompt: int, middle: float) -> float:
        return middle + self._reading(prompt)

    def typical(self) -> Typical | None:
        """Return what is expected of a call of any task, None without any."""
        token = self.token.quantile(0.5)
        if token is None:
            return None
        first = self.first.quantile(0.5)
        if first is not None:
            slope = self._prompt.slope or 0.0
            return Typical(first + slope * self._prompt.x, token, slope, self._prompt.x)
        each, start = self._unstreamed.slope, self._unstreamed.intercept
        if each is None or start is None:
            return Typical(0.0, token, told=False)
        return Typical(start, each)


class Times:
    """How many times longer a token of one task takes than a route's tokens do, whatever its speed is now.

    The first token is not told apart by task: its prompt's length says what there is to say.
    """

    __slots__ = ("token",)

    def __init__(self) -> None:
        self.token = Sketch(_TIMES_CALLS, _TIMES_SECONDS)

    def add(self, call: Timing, usual: Typical, at: float) -> None:
        """Note a call beside what was usual of the route then."""
        first = usual.first_s(call.prompt) if call.first_s is None else call.first_s
        each = max(call.working_s - first, 0.0) / call.tokens
        if usual.token_s > 0:
            self.token.add(min(max(each / usual.token_s, 1 / _MOST_TIMES), _MOST_TIMES), at)

    def middle(self, others: float) -> float:
        """Return the usual ratio, nearer to 1 the fewer calls there were of this task, and of any other."""
        calls = min(self.token.weight(), others)
        return math.exp(math.log(self.token.quantile(0.5) or 1.0) * calls / (calls + LEAN))
