"""Quality by route and task: learned from scores of answers, starting from the shipped or configured tiers.

A score is a number from 0 to 1, such as a thumb or a grader's mark. The quality of a route for a task is the
mean of a beta distribution: its tier counts as eight scores of the route, the scores of all its tasks as
eight of each task. Scores lose weight, so that a model that changes behind its name is followed. They are
stored in the ledger, and those of other processes are read from it. RouteLLM (Ong et al., arXiv 2406.18665)
also compares a predicted quality with a threshold, but learns it once, from preferences between two models.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, cast

from specclient.errors import ConfigurationError, LedgerError
from specclient.routing.choose.route_options import RouteOption
from specclient.runtime.forks import register_fork_reset
from specclient.types.call import ANSWERING, Call
from specclient.types.call_score import CallScore, ScoreGiver
from specclient.types.criterion import PromptTask

__all__ = ["QualityEstimate", "QualityModel", "ScoreStore"]

logger = logging.getLogger("specclient")

#: The weight of a tier, and of a route's other tasks, in scores; the tier of a model without one.
_PRIOR, _UNKNOWN = 8.0, 0.5
#: Scores after which one weighs half.
_SCORES = 200.0
#: Standard deviations of the ends of an interval that holds the quality with 80 % probability.
_ENDS = 1.28
#: Calls that may be scored, and routes and tasks whose scores are kept; beyond them the oldest are forgotten.
_CALLS, _KEPT = 10_000, 8192
#: Lists of options with learned qualities that are kept.
_LISTS = 256
#: How far back, and how many scores at most, are read from the ledger; calls of several attempts are searched
#: as far back.
_MEMORY, _READ = timedelta(days=90), 20_000
#: Seconds after which the scores of other processes are read again.
_REFRESH_S = 60.0
#: Scores of so long before the last reading are read again: they may be committed later than they are given,
#: and clocks of other machines may differ.
_OVERLAP = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class QualityEstimate:
    """The quality of a route's answers.

    Attributes:
        mean: the expected score, from 0 to 1.
        low, high: the ends of an interval that holds the quality with 80 % probability.
        scores: the number of scores behind it, old ones weighted less.
    """

    mean: float
    low: float
    high: float
    scores: float


class ScoreStore(Protocol):
    """Stores scores, and returns those of all processes: the ledger. See its methods of these names."""

    def submit_score(self, score: CallScore) -> None: ...
    def scores(self, since: datetime, most: int) -> list[CallScore]: ...
    def answered(self, call_id: str, since: datetime) -> tuple[str, str | None] | None: ...


class QualityModel:
    """The scores of answers, and the qualities that follow from them. Safe to use from several threads.

    Args:
        store: keeps the scores; None keeps them in this object only.
        now: returns the time, in UTC.
    """

    def __init__(self, store: ScoreStore | None = None, *, now: Callable[[], datetime] | None = None) -> None:
        self._store = store
        self._now: Callable[[], datetime] = now or (lambda: datetime.now(UTC))
        #: When scores were last asked for, and last read.
        self._asked_at: datetime | None = None
        self._read_at: datetime | None = None
        #: The ids of scores that were learned from and may be read again, with their times.
        self._learned: OrderedDict[str, datetime] = OrderedDict()
        self._reading = threading.Lock()
        self._lock = threading.Lock()
        #: The routes and tasks of calls by their ids, which are also in order; equal pairs are one object.
        self._calls: dict[str, tuple[str, PromptTask | None]] = {}
        self._order: deque[str] = deque()
        self._kinds: dict[tuple[str, PromptTask | None], tuple[str, PromptTask | None]] = {}
        #: Decayed sums of scores, and of their number.
        self._sums: OrderedDict[tuple[str, PromptTask | None], tuple[float, float]] = OrderedDict()
        self._version = 0
        self._applied: dict[
            tuple[int, PromptTask], tuple[int, Sequence[RouteOption], tuple[RouteOption, ...]]
        ] = {}
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the locks in a forked child, as another thread of the parent may have held them."""
        self._lock, self._reading = threading.Lock(), threading.Lock()

    def note(self, call: Call) -> None:
        """Remember a finished call, so that its answer may be scored.

        Of a call that made several attempts, the last one that answered is remembered by the call's id.
        """
        if call.status != "ok" or call.purpose not in ANSWERING:
            return
        with self._lock:
            kind = call.route.chosen, call.route.task
            if len(self._kinds) >= _KEPT:
                self._kinds.clear()
            call_id = call.parent or call.id
            if call_id not in self._calls:
                self._order.append(call_id)
            self._calls[call_id] = self._kinds.setdefault(kind, kind)
            if len(self._order) > _CALLS:
                self._calls.pop(self._order.popleft(), None)

    def feedback(
        self, call_id: str, score: float, *, weight: float = 1.0, giver: ScoreGiver = "feedback"
    ) -> None:
        """Score the answer of a call; a later score of the same call counts in addition.

        The score is stored in the ledger without waiting. A call that is not among the last ones of this
        object is searched in the ledger, which reads a file or asks a server.

        Args:
            call_id: ``meta.id`` of the answer.
            score: from 0 to 1; True and False count as 1 and 0.
            weight: how much it counts; a caller's score counts as 1.
            giver: who gave it.

        Raises:
            ConfigurationError: another score, or a call that is unknown, or was not answered.
            LedgerError: the ledger has to be searched and cannot be read.
        """
        if not isinstance(score, int | float) or not 0 <= score <= 1:
            raise ConfigurationError(f"the score is {score!r}; it must be a number from 0 to 1, or a boolean")
        known = self._calls.get(call_id)
        if known is None and self._store is not None:
            found = self._store.answered(call_id, self._now() - _MEMORY)
            known = None if found is None else (found[0], cast("PromptTask | None", found[1]))
        if known is None:
            raise ConfigurationError(
                f"no answered call {call_id!r} among this client's last {_CALLS:,}, nor in its ledger; pass "
                "the whole meta.id of an answer, and use the ledger of the program that made the call"
            )
        self._learn_and_store(call_id, known, float(score), weight, giver)

    def _learn_and_store(
        self,
        call_id: str,
        kind: tuple[str, PromptTask | None],
        value: float,
        weight: float,
        giver: ScoreGiver,
    ) -> None:
        if self._store is not None:
            score = CallScore(call_id, *kind, value, weight, giver, scored_at=self._now())
            with self._lock:
                self._learned[score.id] = score.scored_at
                if len(self._learned) > 2 * _READ:
                    self._learned.popitem(last=False)
            self._store.submit_score(score)
        self.add(*kind, value, weight)

    def load_scores(self) -> None:
        """Learn from the scores that were stored since the last reading, each once; this reads a file.

        An unreadable ledger is logged, and has no scores.
        """
        if self._store is None or not self._reading.acquire(blocking=False):
            return
        try:
            begun, first = self._now(), self._asked_at is None
            self._asked_at = begun
            since = begun - _MEMORY if self._read_at is None else self._read_at - _OVERLAP
            for score in self._store.scores(since, _READ):
                with self._lock:
                    known = score.id in self._learned
                    self._learned[score.id] = score.scored_at
                if not known:
                    self.add(score.route, cast("PromptTask | None", score.task), score.score, score.weight)
            self._read_at = begun
            with self._lock:
                recent = {id_: at for id_, at in self._learned.items() if at >= begun - 2 * _OVERLAP}
                self._learned = OrderedDict(recent)
        except LedgerError as error:
            logger.log(logging.WARNING if first else logging.DEBUG, "no scores are read: %s", error)
        finally:
            self._reading.release()

    def refresh(self) -> None:
        """Read the scores of other processes in a thread, if they were asked for a minute ago."""
        asked_at, now = self._asked_at, self._now()
        if asked_at is not None and (now - asked_at).total_seconds() >= _REFRESH_S:
            self._asked_at = now  # calls of the meantime start no further thread
            with suppress(RuntimeError):  # no thread starts at interpreter exit, or beyond the system's limit
                threading.Thread(target=self.load_scores, name="specclient-scores", daemon=True).start()

    def add(self, route: str, task: PromptTask | None, score: float, weight: float = 1.0) -> None:
        """Note a score of an answer to a prompt of a task; None where the task is unknown."""
        keep = 2 ** (-weight / _SCORES)
        with self._lock:
            for key in dict.fromkeys(((route, None), (route, task))):
                total, count = self._sums.pop(key, (0.0, 0.0))
                self._sums[key] = total * keep + weight * score, count * keep + weight
            while len(self._sums) > _KEPT:
                self._sums.popitem(last=False)
            self._version += 1

    def of(self, route: str, task: PromptTask | None, tier: float | None) -> QualityEstimate | None:
        """Return the quality of a route for a task.

        Args:
            tier: the route's shipped or configured tier, None without one.

        Returns:
            None without a tier and without scores.
        """
        with self._lock:
            total, count = self._sums.get((route, None), (0.0, 0.0))
            own, scores = self._sums.get((route, task), (0.0, 0.0)) if task is not None else (total, count)
        if tier is None and not count:
            return None
        mean = ((_UNKNOWN if tier is None else tier) * _PRIOR + total) / (_PRIOR + count)
        weight = _PRIOR + count
        if task is not None:
            weight = min(weight, _PRIOR) + scores
            mean = (mean * (weight - scores) + own) / weight
        off = _ENDS * math.sqrt(max(mean * (1 - mean), 0.0) / (weight + 1))
        return QualityEstimate(mean, max(mean - off, 0.0), min(mean + off, 1.0), scores)

    def applied(self, options: tuple[RouteOption, ...], task: PromptTask) -> tuple[RouteOption, ...]:
        """Return options with what was learned of their quality; the same object until it changes."""
        version = self._version
        if not version:
            return options
        known = self._applied.get((id(options), task))
        if known is not None and known[0] == version and known[1] is options:
            return known[2]
        made = []
        for option in options:
            found = self.of(option.route, task, option.quality)
            made.append(option if found is None else replace(option, quality=found.mean))
        if len(self._applied) >= _LISTS:
            self._applied.clear()
        self._applied[id(options), task] = version, options, tuple(made)
        return self._applied[id(options), task][2]
