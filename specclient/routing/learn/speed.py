"""Route speed: seconds to the first token and per token, learned from finished calls."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.quantile_sketch import QuantileSketch
from specclient.routing.learn.regression import DecayedRegression

__all__ = ["LEAN", "CallTiming", "PrefillModel", "RouteSpeed", "TaskSpeedRatio", "TypicalSpeed", "timing_of"]

#: Calls and seconds after which a call weighs half.
_CALLS, _SECONDS = 25.0, 3600.0
#: The weight, in calls, of all tasks in the speed of one task.
LEAN = 6.0
#: Calls and seconds after which the ratio of a task to the others weighs half.
_TIMES_CALLS, _TIMES_SECONDS = 50.0, 86400.0
#: The greatest ratio of a task's speed to the others'; a greater one is a shift of the route.
_MOST_TIMES = 2.0
#: A first token later than so many medians is ignored in the cost of prefill, unless its prompt is so long
#: that a host with this prefill speed, in tokens per second, would have needed that time.
_OUTLIER, _SLOWEST = 5.0, 1000.0
#: The most that one first token moves the mean of their logarithms.
_FAR = math.log(_OUTLIER)
#: Calls after which the cost of prefill weighs half; the least share of the time to the first token that is
#: not prefill.
_PREFILL_CALLS, _START = 200.0, 0.1
#: A call of the engine that took this many times its work plus a second waited for weights to be loaded.
_LOADING = 4.0


@dataclass(frozen=True, slots=True)
class CallTiming:
    """The seconds of one call.

    Attributes:
        tokens: of the answer, at least 1.
        prompt: tokens of the prompt, 0 where unknown.
        first_s: to the first token, None where unknown.
        total_s: to the end.
        working_s: the part of ``total_s`` in which the call was worked on.
        engine_s: of the engine in this process, None for hosted calls.
    """

    tokens: int
    prompt: int
    first_s: float | None
    total_s: float
    working_s: float
    engine_s: float | None


def timing_of(sample: CallSample) -> CallTiming | None:
    """Return the seconds of a finished call; None if they predict nothing.

    For the engine in this process, ``working_s`` excludes the queue and the loading of weights. ``total_s``
    includes the queue, but not the loading.
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
    """Median seconds.

    Attributes:
        ttft_s: to the first token of a prompt of ``prompt`` tokens; each further one adds ``prompt_token_s``.
        token_s: per token of the answer.
        ttft_known: whether the time to the first token was measured, or can be separated from the rest.
    """

    ttft_s: float
    token_s: float
    prompt_token_s: float = 0.0
    prompt: float = 0.0
    ttft_known: bool = True

    def first_s(self, prompt_tokens: int | None) -> float:
        """Return the seconds to the first token for a prompt; None stands for a typical prompt."""
        if not self.prompt_token_s or not prompt_tokens:
            return self.ttft_s
        return max(self.ttft_s + self.prompt_token_s * (prompt_tokens - self.prompt), 0.2 * self.ttft_s)

    def seconds(self, tokens: float, prompt_tokens: int | None) -> float:
        """Return the seconds of an answer."""
        return self.first_s(prompt_tokens) + self.token_s * tokens


class PrefillModel:
    """The growth of the time to the first token with the prompt, relative to the route's current speed.

    Noise is proportional to the value, so points are weighted by the inverse of its square.
    """

    __slots__ = ("_line", "each")

    def __init__(self) -> None:
        self._line = DecayedRegression(_PREFILL_CALLS)
        #: The growth per prompt token, as a share of an empty prompt's time to the first token.
        self.each = 0.0

    def times(self, prompt: float) -> float:
        """Return the time to the first token as a multiple of an empty prompt's."""
        return 1 + self.each * prompt

    def add(self, prompt: int, first_s: float, usual_s: float) -> None:
        """Note a first token, with the current time to the first token of typical prompts."""
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
        """The tokens of a typical prompt."""
        return self._line.x


class RouteSpeed:
    """The recent speed of one route, normalized over its tasks.

    Args:
        prefill: the cost of prefill on the route, shared by all its speeds.
    """

    #: ``first``: the time to the first token of an empty prompt, as far as it is known.
    __slots__ = ("_level", "_prefill", "_seen", "_unstreamed", "engine", "first", "token")

    def __init__(self, prefill: PrefillModel) -> None:
        self._prefill = prefill
        self._level = self._seen = 0.0  # mean logarithm of first tokens' seconds, and the calls behind it
        self.first = QuantileSketch(_CALLS, _SECONDS)
        self.token = QuantileSketch(_CALLS, _SECONDS)
        self.engine = QuantileSketch(_CALLS, _SECONDS)
        self._unstreamed = DecayedRegression(2 * _CALLS)

    def add(self, call: CallTiming, at: float, times: float = 1.0) -> None:
        """Note a call.

        Args:
            times: the known ratio of its task's seconds per token to the route's.
        """
        first = call.first_s
        if first is None:
            usual = self.first.quantile(0.5)
            if usual is None:
                self._unstreamed.add(call.tokens, call.working_s)
            first = 0.0 if usual is None else usual * self._prefill.times(call.prompt)
        else:
            self._learn_prefill(call.prompt, first)
            self.first.add(first / self._prefill.times(call.prompt), at)
        self.token.add(max(call.working_s - first, 0.0) / call.tokens / times, at)
        if call.engine_s is not None:
            self.engine.add(call.engine_s / call.tokens, at)

    def _learn_prefill(self, prompt: int, first: float) -> None:
        """Learn the cost of prefill relative to the mean of earlier calls; a median would jump."""
        if self._seen:
            self._prefill.add(prompt, first, math.exp(self._level))
        off = math.log(max(first, 1e-6)) - self._level
        self._seen = self._seen * 2 ** (-1 / _CALLS) + 1
        self._level += (off if self._seen == 1 else min(max(off, -_FAR), _FAR)) / self._seen

    def typical(self) -> TypicalSpeed | None:
        """Return the median speed of calls of any task, None without any call."""
        token = self.token.quantile(0.5)
        if token is None:
            return None
        first = self.first.quantile(0.5)
        if first is not None:
            prompt = self._prefill.prompt
            return TypicalSpeed(
                first * self._prefill.times(prompt), token, first * self._prefill.each, prompt
            )
        each, start = self._unstreamed.slope, self._unstreamed.intercept
        if each is None or start is None:
            return TypicalSpeed(0.0, token, ttft_known=False)
        return TypicalSpeed(start, each)


class TaskSpeedRatio:
    """The ratio of one task's seconds per token to the route's, at any speed of the route.

    The time to the first token has no such ratio, since it depends on the prompt's length.
    """

    __slots__ = ("token",)

    def __init__(self) -> None:
        self.token = QuantileSketch(_TIMES_CALLS, _TIMES_SECONDS)

    def add(self, call: CallTiming, usual: TypicalSpeed, at: float) -> None:
        """Note a call, with the typical speed of the route at that time."""
        first = usual.first_s(call.prompt) if call.first_s is None else call.first_s
        each = max(call.working_s - first, 0.0) / call.tokens
        if usual.token_s > 0:
            self.token.add(min(max(each / usual.token_s, 1 / _MOST_TIMES), _MOST_TIMES), at)

    def median(self, others: float) -> float:
        """Return the median ratio, drawn to 1 if there are few calls of this task or of the others."""
        calls = min(self.token.weight(), others)
        return math.exp(math.log(self.token.quantile(0.5) or 1.0) * calls / (calls + LEAN))
