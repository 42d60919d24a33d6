"""Route speed: seconds to the first token and per token, learned from finished calls."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.prefill import PrefillModel
from specclient.routing.learn.priors import RoutePrior
from specclient.routing.learn.quantile_sketch import QuantileSketch
from specclient.routing.learn.regression import DecayedRegression

__all__ = ["LEAN", "CallTiming", "RouteSpeed", "TaskSpeedRatio", "TypicalSpeed", "timing_of"]

#: Calls and seconds after which a call weighs half.
_CALLS, _SECONDS = 25.0, 3600.0
#: The weight, in calls, of all tasks in the speed of one task.
LEAN = 6.0
#: Calls and seconds after which the ratio of a task to the others weighs half.
_TIMES_CALLS, _TIMES_SECONDS = 50.0, 86400.0
#: The greatest ratio of a task's speed to the others'; a greater one is a shift of the route.
_MOST_TIMES = 2.0
#: First tokens from which the level of a route is taken.
_FIRST_CALLS = 64
#: A call of the engine that took this many times its work plus a second waited for weights to be loaded.
_LOADING = 4.0


@dataclass(frozen=True, slots=True)
class CallTiming:
    """The seconds of one call.

    Attributes:
        tokens: of the answer, at least 1.
        prompt: tokens of the prompt without cached ones, 0 where unknown.
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
    if sample.cached_tokens and prompt:  # cached tokens need no prefill
        prompt = max(prompt - max(sample.cached_tokens, 0), 1)
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
        if not prompt_tokens:
            return self.ttft_s
        return self.ttft_s + self.prompt_token_s * (prompt_tokens - self.prompt)

    def seconds(self, tokens: float, prompt_tokens: int | None) -> float:
        """Return the seconds of an answer."""
        return self.first_s(prompt_tokens) + self.token_s * tokens


class FirstTokens:
    """The recent times to the first token of one route, with the prompts that they followed.

    The times are kept as they were, not as those of an empty prompt, because the growth with the prompt is
    learned meanwhile.

    Args:
        prefill: the growth, shared by all speeds of the route.
    """

    __slots__ = ("_level", "_prefill", "_seen")

    def __init__(self, prefill: PrefillModel) -> None:
        self._prefill = prefill
        self._seen: deque[tuple[float, int, float]] = deque(maxlen=_FIRST_CALLS)
        self._level: tuple[float, float] | None = None  # the growth it was computed with, and the level

    def add(self, prompt: int, first_s: float, at: float) -> None:
        """Note a first token."""
        self._seen.append((at, prompt, first_s))
        self._level = None

    def level(self) -> float | None:
        """Return the median seconds to the first token of an empty prompt, None without any first token.

        Calls lose weight as in the sketches of a route's speed.
        """
        if not self._seen:
            return None
        each = self._prefill.each
        if self._level is None or self._level[0] != each:
            self._level = each, self._median(each)
        return self._level[1]

    def _median(self, each: float) -> float:
        newest, usual = self._seen[-1][0], self._prefill.prompt
        weighted, total = [], 0.0
        for place, (at, prompt, first_s) in enumerate(reversed(self._seen)):
            weight = 2.0 ** -(place / _CALLS + max(newest - at, 0.0) / _SECONDS)
            weighted.append((first_s / (1 + each * (prompt or usual)), weight))
            total += weight
        weighted.sort()
        reached = 0.0
        for value, weight in weighted:
            reached += weight
            if reached >= total / 2:
                return value
        return weighted[-1][0]


class RouteSpeed:
    """The recent speed of one route, normalized over its tasks.

    Args:
        prefill: the cost of prefill on the route, shared by all its speeds.
    """

    __slots__ = ("_first", "_prefill", "_unstreamed", "engine", "token")

    def __init__(self, prefill: PrefillModel) -> None:
        self._prefill = prefill
        self._first = FirstTokens(prefill)
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
            level = self._first.level()
            if level is None:
                self._unstreamed.add(call.tokens, call.working_s)
            first = 0.0 if level is None else level * self._prefill.times(call.prompt or self._prefill.prompt)
        else:
            self._first.add(call.prompt, first, at)
        self.token.add(max(call.working_s - first, 0.0) / call.tokens / times, at)
        if call.engine_s is not None:
            self.engine.add(call.engine_s / call.tokens, at)

    def assume(self, prior: RoutePrior, at: float) -> None:
        """Take a prior in place of calls of a short prompt; they lose weight as calls do."""
        for _ in range(prior.calls):
            self._first.add(1, prior.ttft_s, at)
            self.token.add(prior.token_s, at)

    def typical(self) -> TypicalSpeed | None:
        """Return the median speed of calls of any task, None without any call."""
        token = self.token.quantile(0.5)
        if token is None:
            return None
        level, prefill = self._first.level(), self._prefill
        if level is not None:
            prompt = prefill.prompt
            return TypicalSpeed(level * prefill.times(prompt), token, level * prefill.each, prompt)
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
