"""Turn finished calls of one kind into how fast the next one goes: to its first token and for each one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.quantile_sketch import QuantileSketch
from specclient.routing.learn.regression import DecayedRegression

__all__ = ["LEAN", "CallTiming", "PrefillModel", "RouteSpeed", "TaskSpeedRatio", "TypicalSpeed", "timing_of"]

#: How old calls fade, by count and by time.
_CALLS, _SECONDS = 25.0, 3600.0
#: Calls of all tasks that lean in where a task has none of its own; fewer the more it has.
LEAN = 6.0
#: How what sets a task apart from the others fades, by count and by time.
_TIMES_CALLS, _TIMES_SECONDS = 50.0, 86400.0
#: No task is so many times faster or slower than the others: what is, is a shift of the route.
_MOST_TIMES = 2.0
#: A first token later than so many medians bears on none of what prompts cost, unless it was of a prompt so
#: long that a host which reads so many tokens a second would have needed that time.
_OUTLIER, _SLOWEST = 5.0, 1000.0
#: How far, in logarithms, a first token bears on the mean of them at most.
_FAR = math.log(_OUTLIER)
#: How what reading a prompt takes fades, by count, and the least share of a first token that is not reading.
_READING_CALLS, _START = 200.0, 0.1
#: An engine's call that took so many times its work, and a second, waited for weights to be loaded.
_LOADING = 4.0


@dataclass(frozen=True, slots=True)
class CallTiming:
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


def timing_of(sample: CallSample) -> CallTiming | None:
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
        return CallTiming(tokens, prompt, first, latency, latency, None)
    if first is not None and first > engine:
        first = None
    total = engine if latency > _LOADING * engine + 1 else latency
    return CallTiming(tokens, prompt, first, max(total, engine), engine, engine)


@dataclass(frozen=True, slots=True)
class TypicalSpeed:
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


class PrefillModel:
    """How many times later first tokens of long prompts come than of short ones, whatever a route's speed is.

    Noise grows with what it is around, so points count by the inverse of its square.
    """

    __slots__ = ("_line", "each")

    def __init__(self) -> None:
        self._line = DecayedRegression(_READING_CALLS)
        #: For each token of a prompt, by how many times that of an empty one its first token comes later.
        self.each = 0.0

    def times(self, prompt: float) -> float:
        """Return how many times that of an empty prompt the first token of this one takes."""
        return 1 + self.each * prompt

    def add(self, prompt: int, first_s: float, usual_s: float) -> None:
        """Note a first token, beside when those of a usual mix of prompts come now."""
        if not prompt or usual_s <= 0:
            return
        expected = self.times(prompt)
        if first_s > _OUTLIER * usual_s * expected / self.times(self.prompt) + prompt / _SLOWEST:
            return
        self._line.add(prompt, first_s / usual_s, expected**-2)
        slope, line = self._line.slope, self._line
        self.each = 0.0 if slope is None else slope / max(line.y - slope * line.x, _START * line.y)

    @property
    def prompt(self) -> float:
        """Tokens of a usual prompt."""
        return self._line.x


class RouteSpeed:
    """How fast calls of one route have gone of late, its tasks made comparable.

    Args:
        reading: what prompts take on the route, for all its paces.
    """

    #: ``first``: of an empty prompt, as far as that can be told.
    __slots__ = ("_level", "_reading", "_seen", "_unstreamed", "engine", "first", "token")

    def __init__(self, reading: PrefillModel) -> None:
        self._reading = reading
        self._level = self._seen = 0.0  # mean logarithm of first tokens' seconds, and the calls behind it
        self.first = QuantileSketch(_CALLS, _SECONDS)
        self.token = QuantileSketch(_CALLS, _SECONDS)
        self.engine = QuantileSketch(_CALLS, _SECONDS)
        self._unstreamed = DecayedRegression(2 * _CALLS)

    def add(self, call: CallTiming, at: float, times: float = 1.0) -> None:
        """Note a call.

        Args:
            times: how many times longer tokens of its task take, as far as that is known.
        """
        first = call.first_s
        if first is None:
            usual = self.first.quantile(0.5)
            if usual is None:
                self._unstreamed.add(call.tokens, call.working_s)
            first = 0.0 if usual is None else usual * self._reading.times(call.prompt)
        else:
            self._read(call.prompt, first)
            self.first.add(first / self._reading.times(call.prompt), at)
        self.token.add(max(call.working_s - first, 0.0) / call.tokens / times, at)
        if call.engine_s is not None:
            self.engine.add(call.engine_s / call.tokens, at)

    def _read(self, prompt: int, first: float) -> None:
        """Learn what prompts take, beside the mean of calls before: a median would jump between prompts."""
        if self._seen:
            self._reading.add(prompt, first, math.exp(self._level))
        off = math.log(max(first, 1e-6)) - self._level
        self._seen = self._seen * 2 ** (-1 / _CALLS) + 1
        self._level += (off if self._seen == 1 else min(max(off, -_FAR), _FAR)) / self._seen

    def typical(self) -> TypicalSpeed | None:
        """Return what is expected of a call of any task, None without any."""
        token = self.token.quantile(0.5)
        if token is None:
            return None
        first = self.first.quantile(0.5)
        if first is not None:
            prompt = self._reading.prompt
            return TypicalSpeed(
                first * self._reading.times(prompt), token, first * self._reading.each, prompt
            )
        each, start = self._unstreamed.slope, self._unstreamed.intercept
        if each is None or start is None:
            return TypicalSpeed(0.0, token, told=False)
        return TypicalSpeed(start, each)


class TaskSpeedRatio:
    """How many times longer a token of one task takes than a route's tokens do, whatever its speed is now.

    The first token is not told apart by task: its prompt's length says what there is to say.
    """

    __slots__ = ("token",)

    def __init__(self) -> None:
        self.token = QuantileSketch(_TIMES_CALLS, _TIMES_SECONDS)

    def add(self, call: CallTiming, usual: TypicalSpeed, at: float) -> None:
        """Note a call beside what was usual of the route then."""
        first = usual.first_s(call.prompt) if call.first_s is None else call.first_s
        each = max(call.working_s - first, 0.0) / call.tokens
        if usual.token_s > 0:
            self.token.add(min(max(each / usual.token_s, 1 / _MOST_TIMES), _MOST_TIMES), at)

    def middle(self, others: float) -> float:
        """Return the usual ratio, nearer to 1 the fewer calls there were of this task, and of any other."""
        calls = min(self.token.weight(), others)
        return math.exp(math.log(self.token.quantile(0.5) or 1.0) * calls / (calls + LEAN))
