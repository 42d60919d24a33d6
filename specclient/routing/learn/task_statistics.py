"""Statistics of one task: answer lengths, results of drafting, and the errors of predictions."""

from __future__ import annotations

from collections.abc import Collection

from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.draft_depth import estimated_acceptance
from specclient.routing.learn.pooling import shrunken_quantile
from specclient.routing.learn.quantile_sketch import QuantileSketch
from specclient.routing.learn.regression import DecayedRegression
from specclient.routing.learn.speed import CallTiming
from specclient.types.criterion import PromptTask
from specclient.types.server_load import ServerLoad

__all__ = [
    "SPREAD_CALLS",
    "SPREAD_SECONDS",
    "ErrorsByTask",
    "PredictionErrors",
    "TaskStatistics",
    "pooled_acceptance",
]

#: Calls and seconds after which the error of a prediction weighs half.
SPREAD_CALLS, SPREAD_SECONDS = 100.0, 86400.0
#: Calls after which the errors of predictions on all routes weigh half.
_SHARED_CALLS = 400.0
#: The weight in draft tokens of all tasks in the acceptance rate of one task.
_LEAN_DRAFTED = 20.0


class PredictionErrors:
    """The errors of predictions for one task, on all routes, as ratios of measured to predicted values.

    Args:
        calls: the number of calls after which an error weighs half.
        peers: the errors of all tasks, this one included.

    Attributes:
        tokens: of the answer.
        first: seconds to the first token.
        duration: seconds to the end, relative to those predicted for an answer of the same length.
        token: seconds after the first token, likewise.
    """

    __slots__ = ("_peers", "duration", "first", "token", "tokens")

    def __init__(self, calls: float, peers: Collection[PredictionErrors] = ()) -> None:
        self._peers = peers
        self.tokens = QuantileSketch(calls, SPREAD_SECONDS)
        self.first = QuantileSketch(calls, SPREAD_SECONDS)
        self.duration = QuantileSketch(calls, SPREAD_SECONDS)
        self.token = QuantileSketch(calls, SPREAD_SECONDS)

    def longer(self, share: float, now: float) -> tuple[float, float]:
        """Return the logarithm of a quantile of the ratio of answer lengths, and the calls behind it.

        The errors of all tasks are taken to be alike, unless calls show a difference.
        """
        return shrunken_quantile(self.tokens, [each.tokens for each in self._peers], share, now)


class ErrorsByTask:
    """The errors of predictions on all routes, for each task."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[PromptTask | None, PredictionErrors] = {}

    def get(self, task: PromptTask | None) -> PredictionErrors | None:
        """Return the errors for a task, None without any."""
        return self._known.get(task)

    def of(self, task: PromptTask | None) -> PredictionErrors:
        """Return the errors for a task, to which those of a call are added."""
        found = self._known.get(task)
        if found is None:
            found = self._known[task] = PredictionErrors(_SHARED_CALLS, self._known.values())
        return found


class TaskStatistics:
    """Statistics of one task on a route, or of all tasks, that do not depend on the route's speed."""

    __slots__ = ("accepted", "calls", "cost", "drafted", "given", "steps", "tokens")

    def __init__(self) -> None:
        self.calls = 0
        self.tokens = QuantileSketch(SPREAD_CALLS, SPREAD_SECONDS)
        self.accepted = self.drafted = self.steps = self.given = 0.0
        self.cost = DecayedRegression(SPREAD_CALLS)

    def add(self, sample: CallSample, call: CallTiming) -> None:
        """Add a finished call."""
        self.calls += 1
        if not sample.warm_up:
            self.tokens.add(call.tokens, sample.at)
        if sample.accepted is None or not sample.drafted or sample.drafted < 0:
            return
        keep = 2 ** (-1 / SPREAD_CALLS)
        self.accepted = self.accepted * keep + min(max(sample.accepted, 0), sample.drafted)
        self.drafted = self.drafted * keep + sample.drafted
        if sample.steps is not None and sample.steps > 0:
            self.steps = self.steps * keep + sample.steps
            self.given = self.given * keep + call.tokens
            decoding = call.working_s - (call.first_s or 0.0)
            self.cost.add(sample.drafted / sample.steps, decoding / sample.steps)


def pooled_acceptance(
    own: TaskStatistics, every: TaskStatistics, load: ServerLoad | None
) -> tuple[float | None, float | None, float | None]:
    """Return the acceptance rate, tokens per verification and probability α; None where unknown.

    Args:
        own: the statistics of one task.
        every: the statistics of all tasks.
        load: of the destination; its figures replace missing ones of calls.
    """
    if not every.drafted:
        reported = (None, None) if load is None else (load.acceptance_rate, load.tokens_per_verification)
        return *reported, None
    lean = _LEAN_DRAFTED / every.drafted if own is not every else 0.0
    accepted = own.accepted + lean * every.accepted
    drafted, steps = own.drafted + lean * every.drafted, own.steps + lean * every.steps
    share = accepted / drafted
    if not steps:
        return share, None, None
    given = (own.given + lean * every.given) / steps
    return share, given, estimated_acceptance(accepted, max(drafted, steps), steps)
