"""The speed of one pool: seconds to the first token and per token, by the requests in progress.

A step of an inference server takes longer the more requests it serves, and the longer the drafts are that it
verifies; below a number of requests that depends on the hardware it takes as long as for one. Therefore times
are kept by the number in progress, in half octaves, and interpolated between them. They never fall as the
number grows. Tasks differ in accepted drafts, so each has a factor of its own, the same at every load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from specclient.routing.learn.prefill import PrefillModel
from specclient.types.criterion import PromptTask

__all__ = ["PoolSample", "PoolSpeed"]

#: Calls after which a call weighs half: in a bucket, and in the factor of a task.
_CALLS, _TASK_CALLS = 40.0, 60.0
#: The weight, in calls, of a task's factor of one.
_LEAN = 4.0
#: Half octaves of the number in progress.
_BUCKETS_PER_OCTAVE = 2.0
#: The bounds of one call's ratio to the expectation, against outliers.
_FAR = math.log(4.0)


@dataclass(frozen=True, slots=True)
class PoolSample:
    """One finished call on a pool.

    Attributes:
        in_progress: the mean number of requests in progress on its replica meanwhile, itself included.
        task: the kind of its prompt, None where unknown.
        prompt_tokens: of the prompt without cached ones, 0 where unknown.
        tokens: of the answer, at least 1.
        first_s: seconds to the first token, None where unknown.
        total_s: seconds to the end.
    """

    in_progress: float
    task: PromptTask | None
    prompt_tokens: int
    tokens: int
    first_s: float | None
    total_s: float


class _Curve:
    """A quantity by the number in progress: decayed mean logarithms in buckets."""

    __slots__ = ("_buckets", "_points")

    def __init__(self) -> None:
        self._buckets: dict[int, list[float]] = {}  # weight, mean number in progress, mean logarithm
        self._points: list[tuple[float, float]] | None = []

    def add(self, in_progress: float, value: float) -> None:
        """Note a value above zero."""
        place = round(math.log2(max(in_progress, 1.0)) * _BUCKETS_PER_OCTAVE)
        bucket = self._buckets.setdefault(place, [0.0, 0.0, 0.0])
        logarithm = math.log(value)
        if bucket[0] >= _LEAN:
            logarithm = min(max(logarithm, bucket[2] - _FAR), bucket[2] + _FAR)
        bucket[0] = bucket[0] * 2 ** (-1 / _CALLS) + 1
        bucket[1] += (in_progress - bucket[1]) / bucket[0]
        bucket[2] += (logarithm - bucket[2]) / bucket[0]
        self._points = None

    def at(self, in_progress: float) -> float | None:
        """Return the value at a number in progress, None without any.

        Beyond the greatest known number it grows as between the last two, and never more than in proportion.
        """
        if self._points is None:
            self._points = self._computed()
        points = self._points
        if not points:
            return None
        if in_progress <= points[0][0]:
            return points[0][1]
        for (x0, y0), (x1, y1) in pairwise(points):
            if in_progress <= x1:
                return y0 + (y1 - y0) * (in_progress - x0) / (x1 - x0)
        x1, y1 = points[-1]
        slope = 0.0
        if len(points) > 1:
            x0, y0 = points[-2]
            slope = min((y1 - y0) / (x1 - x0), y1 / x1)
        return y1 + slope * (in_progress - x1)

    def weight(self, in_progress: float) -> float:
        """Return the decayed number of calls near a number in progress."""
        place = round(math.log2(max(in_progress, 1.0)) * _BUCKETS_PER_OCTAVE)
        near = (self._buckets.get(each) for each in (place - 1, place, place + 1))
        return sum(bucket[0] for bucket in near if bucket is not None)

    def _computed(self) -> list[tuple[float, float]]:
        """Return number and value of each bucket, in order; neighbours that fall are pooled."""
        pooled: list[list[float]] = []  # weight, number, logarithm
        for place in sorted(self._buckets):
            pooled.append(list(self._buckets[place]))
            while len(pooled) > 1 and pooled[-1][2] < pooled[-2][2]:
                last = pooled.pop()
                before = pooled[-1]
                share = last[0] / (last[0] + before[0])
                before[0] += last[0]
                before[1] += share * (last[1] - before[1])
                before[2] += share * (last[2] - before[2])
        return [(number, math.exp(logarithm)) for _, number, logarithm in pooled]


class PoolSpeed:
    """Learns the speed of one pool.

    Attributes:
        calls: the number of finished calls.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._first, self._token = _Curve(), _Curve()
        self._prefill = PrefillModel()
        self._tasks: dict[PromptTask, tuple[float, float]] = {}  # weight, mean logarithm of the factor

    def add(self, sample: PoolSample) -> None:
        """Learn from a finished call."""
        self.calls += 1
        first = sample.first_s
        if first is not None and first > 0:
            if sample.prompt_tokens:
                self._prefill.add(sample.prompt_tokens, first)
            self._first.add(sample.in_progress, first / self._prefill.times(sample.prompt_tokens))
        else:
            first = min(self._first_s(sample.in_progress, sample.prompt_tokens) or 0.0, sample.total_s)
        rest = max(sample.total_s - first, 0.0) / max(sample.tokens - 1, 1)
        if sample.tokens < 2 or rest <= 0:
            return
        factor = self._factor(sample.task)
        known = self._token.at(sample.in_progress)
        if sample.task is not None and known is not None:
            weight, mean = self._tasks.get(sample.task, (0.0, 0.0))
            ratio = min(max(math.log(rest / known), -_FAR), _FAR)
            weight = weight * 2 ** (-1 / _TASK_CALLS) + 1
            self._tasks[sample.task] = weight, mean + (ratio - mean) / weight
        self._token.add(sample.in_progress, rest / factor)

    def seconds(
        self, in_progress: float, task: PromptTask | None, prompt_tokens: int, tokens: float
    ) -> float | None:
        """Return the expected seconds of a call, None without any finished one.

        Args:
            in_progress: requests in progress on its replica, itself included.
            task: the kind of its prompt.
            prompt_tokens: of its prompt.
            tokens: of its answer.
        """
        each = self.token_s(in_progress, task)
        if each is None:
            return None
        return (self._first_s(in_progress, prompt_tokens) or 0.0) + each * max(tokens - 1, 0.0)

    def token_s(self, in_progress: float, task: PromptTask | None) -> float | None:
        """Return the seconds per further token of an answer, None without any finished call."""
        each = self._token.at(in_progress)
        return None if each is None else each * self._factor(task)

    def weight(self, in_progress: float) -> float:
        """Return the decayed number of calls near a number in progress."""
        return self._token.weight(in_progress)

    def _first_s(self, in_progress: float, prompt_tokens: int) -> float | None:
        level = self._first.at(in_progress)
        return None if level is None else level * self._prefill.times(prompt_tokens)

    def _factor(self, task: PromptTask | None) -> float:
        """Return the ratio of a task's seconds per token to the pool's, drawn to 1 while few calls are
        known.
        """
        weight, mean = (0.0, 0.0) if task is None else self._tasks.get(task, (0.0, 0.0))
        return math.exp(mean * weight / (weight + _LEAN))
