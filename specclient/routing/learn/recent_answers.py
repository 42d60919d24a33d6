"""The newest answers of each route: their lengths, and the pace of engines that answer nothing.

Budgets read them before each call. They are kept apart from what is learned of a route, because learning
takes a hundred times as long as noting a length.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TypeVar

from specclient.routing.learn.call_sample import CallSample
from specclient.types.call import Call

__all__ = ["RecentAnswers"]

T = TypeVar("T", int, float)

#: The newest answers of a route that count.
_NEWEST = 50
#: Routes remembered; beyond it the one that was called first is forgotten.
_ROUTES = 2048


class RecentAnswers:
    """The newest answers of each route."""

    def __init__(self) -> None:
        self._lengths: OrderedDict[str, deque[int]] = OrderedDict()
        self._paces: OrderedDict[str, deque[float]] = OrderedDict()

    def note_call(self, call: Call) -> None:
        """Note a finished call; see :meth:`note`."""
        usage = call.usage
        if call.status == "ok":
            whole = call.purpose in ("call", "hedge", "failover")
            completion = usage.completion if whole else None
            self.note(call.route.chosen, usage.prompt, completion, call.latency_s, call.engine_s)

    def note_sample(self, sample: CallSample) -> None:
        """Note a sample; see :meth:`note`."""
        if not sample.failed:
            self.note(
                sample.route,
                sample.prompt_tokens,
                sample.completion_tokens,
                sample.latency_s,
                sample.engine_s,
            )

    def note(
        self,
        route: str,
        prompt: int | None,
        completion: int | None,
        latency_s: float | None,
        engine_s: float | None,
    ) -> None:
        """Note a call that succeeded, if it teaches anything.

        Args:
            route: ``provider/model``.
            prompt, completion: tokens; ``completion`` is None if the answer is not a whole one.
            latency_s: seconds of the call; ``engine_s``: of the engine in this process.
        """
        timed = latency_s is not None and latency_s >= 0
        if completion and completion > 0 and timed:
            _deque_of(self._lengths, route).append(completion)
        elif engine_s is not None and prompt and completion == 0:
            _deque_of(self._paces, route).append(engine_s / prompt)

    def longest(self, route: str) -> int | None:
        """Return the tokens of the longest of a route's newest answers, None without any."""
        return max(self._lengths.get(route, ()), default=None)

    def prompt_pace(self, route: str) -> float | None:
        """Return the engine's seconds per prompt token in the slowest of a route's newest calls without an
        answer, None without any."""
        return max(self._paces.get(route, ()), default=None)


def _deque_of(deques: OrderedDict[str, deque[T]], route: str) -> deque[T]:
    found = deques.get(route)
    if found is None:
        found = deques[route] = deque(maxlen=_NEWEST)
        if len(deques) > _ROUTES:
            deques.popitem(last=False)
    return found
