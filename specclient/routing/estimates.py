"""Turn the calls that have finished on a route into a forecast of the next: its tokens and its seconds.

Medians over the newest calls of a route, so that one slow call or a model's first load does not
decide. They come from the ledger at the first question, then from each call as it finishes.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from specclient.errors import LedgerError
from specclient.forks import restart_in_child, uncut
from specclient.types.call import Call

if TYPE_CHECKING:
    from specclient.costs.row import Row

__all__ = ["PRIORS", "Estimates", "Forecast", "Prior", "expected_length", "forecast"]

logger = logging.getLogger("specclient")

#: Newest calls of a route that count.
WINDOW = 50
#: How far back, and how many calls in all, are read from the ledger.
MEMORY = timedelta(days=7)
WARM_ROWS = 500
#: Routes remembered; beyond it the one first seen is forgotten.
ROUTES = 512
#: Tokens of an answer where nothing is known of a route.
COMPLETION_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Prior:
    """What is assumed of a route before its first call: seconds to the first token and for each token."""

    ttft_s: float
    token_s: float


#: The bundled pair on two CPU cores, as ``benchmarks/pair.py`` measured it. Other routes have no prior: a
#: hosted model or a checkpoint of the user's own can be of any speed.
PRIORS: Mapping[str, Prior] = {
    "local/demo": Prior(ttft_s=0.02, token_s=0.0026),
    "local/demo-target": Prior(ttft_s=0.02, token_s=0.0048),
}


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the next call on a route is expected to take.

    Attributes:
        completion_tokens: length of the answer.
        ttft_s: seconds to its first token; ``latency_s``: to its end; None where nothing is known.
        engine_s: seconds of the local engine, None for hosted routes or where nothing is known.
        acceptance_rate: of draft tokens over these calls, None where none was reported.
        evidence: finished calls behind it; 0 means priors only.
    """

    completion_tokens: int
    ttft_s: float | None = None
    latency_s: float | None = None
    engine_s: float | None = None
    acceptance_rate: float | None = None
    evidence: int = 0


class History(Protocol):
    """Where finished calls can be read: the ledger."""

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[Row]: ...


class Estimates:
    """The newest finished calls of every route, as an observer of calls sees them.

    Args:
        history: where earlier calls are read from, once, at the first forecast; None starts empty.
        priors: by route.
        now: the clock.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        priors: Mapping[str, Prior] = PRIORS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._history = history
        self._priors = priors
        self._now = now
        self._lock = threading.Lock()
        self._routes: dict[str, dict[str, Row]] = {}
        self._fresh: deque[Call] = deque(maxlen=WINDOW * 20)  # finished, and not asked about since
        restart_in_child(self)

    def start_afresh(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.Lock()

    def observe(self, call: Call) -> None:
        """Note a finished call; what it teaches is worked out when a forecast is asked for."""
        self._fresh.append(call)

    def warm(self) -> None:
        """Read earlier calls from the ledger, if that has not been done; reads a file."""
        with self._lock:
            history, self._history = self._history, None
            seen, self._routes = self._routes, ({} if history else self._routes)
        if history is None:
            return
        try:
            earlier = history.rows(since=self._now() - MEMORY, limit=WARM_ROWS)
        except LedgerError as error:
            logger.warning("routing starts without earlier calls: %s", error)
            earlier = []
        for row in (*earlier, *(row for rows in seen.values() for row in rows.values())):
            self._learn(row)

    def predict(self, route: str, *, max_tokens: int | None = None) -> Forecast:
        """Forecast the next call on a route; see :meth:`compare`."""
        return self.compare([route], max_tokens=max_tokens)[0]

    def compare(self, routes: Sequence[str], *, max_tokens: int | None = None) -> list[Forecast]:
        """Forecast one call on each of several routes: the same answer, so the same length, on all of them.

        Args:
            routes: each ``provider/model``.
            max_tokens: the longest answer that was asked for.
        """
        self._catch_up()
        with self._lock:
            seen = [tuple(self._routes.get(route, {}).values()) for route in routes]
        length = expected_length([row for rows in seen for row in rows], max_tokens)
        return [
            forecast(rows, length=length, prior=self._priors.get(route))
            for route, rows in zip(routes, seen, strict=True)
        ]

    def longest(self, route: str) -> int | None:
        """Return the tokens of the longest answer among a route's newest calls, None without any."""
        self._catch_up()
        with self._lock:
            rows = self._routes.get(route, {}).values()
            return max((row.completion_tokens or 0 for row in rows), default=None)

    def _catch_up(self) -> None:
        with uncut:
            from specclient.costs.row import Row  # noqa: PLC0415 - where routes are compared, not on a call's way

        self.warm()
        while self._fresh:
            with suppress(IndexError):  # another thread took the last one
                self._learn(Row.of(self._fresh.popleft()))

    def _learn(self, row: Row) -> None:
        if row.status != "ok" or not row.completion_tokens:
            return
        with self._lock:
            newest = self._routes.setdefault(row.route, {})
            newest[row.id] = row  # a call that is also in the ledger counts once
            if len(newest) > WINDOW:
                del newest[next(iter(newest))]
            if len(self._routes) > ROUTES:
                del self._routes[next(iter(self._routes))]


def expected_length(rows: Sequence[Row], max_tokens: int | None = None) -> int:
    """Return the median length of finished answers, cut at ``max_tokens``."""
    with uncut:
        from statistics import median  # noqa: PLC0415 - only who forecasts pays for it

    tokens = [row.completion_tokens for row in rows if row.completion_tokens]
    length = round(median(tokens)) if tokens else COMPLETION_TOKENS
    return length if max_tokens is None else max(min(length, max_tokens), 0)


def forecast(rows: Sequence[Row], *, length: int, prior: Prior | None = None) -> Forecast:
    """Forecast a call from finished ones of the same route.

    Seconds grow in a line with the answer: ``ttft + tokens × seconds per token``, each a median. A call
    that was not streamed has no time of its first token; that of the streamed ones is taken off it. An
    engine in this process is forecast by the seconds it worked: the rest of a call was its weights being
    loaded, or a queue that is gone.

    Args:
        rows: finished calls with a known, positive number of completion tokens.
        length: tokens of the answer.
        prior: used where there are no rows.
    """
    with uncut:
        from statistics import median  # noqa: PLC0415 - as above

    if not rows:
        if prior is None:
            return Forecast(completion_tokens=length)
        total = prior.ttft_s + prior.token_s * length
        return Forecast(completion_tokens=length, ttft_s=prior.ttft_s, latency_s=total, engine_s=total)
    firsts = [row.ttft_s for row in rows if row.ttft_s is not None and row.engine_s is None]
    first = median(firsts) if firsts else None
    per_token = median(_seconds_per_token(row, first or 0.0) for row in rows if row.completion_tokens)
    working = [
        row.engine_s / row.completion_tokens
        for row in rows
        if row.engine_s is not None and row.completion_tokens
    ]
    known = [(row.accepted, row.drafted) for row in rows if row.accepted is not None and row.drafted]
    return Forecast(
        completion_tokens=length,
        ttft_s=first,
        latency_s=(first or 0.0) + per_token * length,
        engine_s=median(working) * length if working else None,
        acceptance_rate=sum(a for a, _ in known) / sum(d for _, d in known) if known else None,
        evidence=len(rows),
    )


def _seconds_per_token(row: Row, typical_ttft_s: float) -> float:
    if row.engine_s is not None:
        return row.engine_s / (row.completion_tokens or 1)
    ttft = typical_ttft_s if row.ttft_s is None else row.ttft_s
    return max(row.latency_s - ttft, 0.0) / (row.completion_tokens or 1)
