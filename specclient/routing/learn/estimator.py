"""The estimator: learns from finished calls and predicts the next one on each route, in tokens and seconds.

Finished calls are only queued; learning happens when an estimate is read. Earlier calls are read from the
ledger at the first estimate.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from specclient.routing.learn.adaptive_percentile import AdaptivePercentile, kept_limits
from specclient.routing.learn.answer_length import AnswerLengths, cap_length
from specclient.routing.learn.call_history import CallHistory, earlier_calls
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.cold_start import cold_start_estimate
from specclient.routing.learn.destination_loads import LOAD_S, DestinationLoads
from specclient.routing.learn.estimate_cache import EstimateCache, EstimateView
from specclient.routing.learn.expiry_queue import ExpiryQueue
from specclient.routing.learn.ledger_forecast import LedgerForecast, forecast_of_estimate, typical_length
from specclient.routing.learn.policy_promises import PolicyPromises
from specclient.routing.learn.priors import PRIORS, PriorSource, RoutePrior
from specclient.routing.learn.recent_answers import RecentAnswers
from specclient.routing.learn.route_estimate import (
    AnswerLength,
    RouteEstimate,
    RouteStatistics,
    representative_length,
)
from specclient.routing.learn.route_model import RouteModel
from specclient.routing.learn.session_caches import HeldPrefix, SessionCaches
from specclient.routing.learn.similar_routes import SimilarRoutes
from specclient.routing.learn.task_statistics import ErrorsByTask
from specclient.runtime.forks import import_lock, register_fork_reset
from specclient.types.call import Call
from specclient.types.criterion import PromptTask
from specclient.types.policy import Policy
from specclient.types.server_load import ServerLoad

__all__ = ["Estimator", "RouteStatistics"]

#: Finished calls that are queued until an estimate is read.
PENDING = 1000
#: Routes remembered; beyond it the least recently called one is forgotten.
ROUTES = 2048


class Estimator:
    """Learns from finished calls and estimates the next call on every route.

    It is safe to use from several threads. Memory is bounded by :data:`ROUTES`.

    Args:
        history: the source of earlier calls, read once at the first estimate; None starts without any.
        priors: assumptions by route.
        now: returns the time.
    """

    def __init__(
        self,
        history: CallHistory | None = None,
        *,
        priors: PriorSource = PRIORS,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._history = history
        self._priors = priors
        self._seconds: Callable[[], float] = time.time if now is None else lambda: now().timestamp()
        self._lock = threading.RLock()
        self._routes: OrderedDict[str, RouteModel] = OrderedDict()
        self._lengths = AnswerLengths()
        self._caches = SessionCaches()
        self._over = ErrorsByTask()
        self._promises = PolicyPromises()
        self._similar = SimilarRoutes()
        self._loads = DestinationLoads()
        self._fresh: deque[Call] = deque(maxlen=PENDING)  # finished, not learned from yet
        self._unread: deque[Call] = deque(maxlen=PENDING)  # finished, not among the answers yet
        self._answers = RecentAnswers()
        self._known_ids: frozenset[str] = frozenset()
        self._cache = EstimateCache()
        self._expiries = ExpiryQueue()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock in a forked child, as another thread of the parent may have held it."""
        self._lock = threading.RLock()

    def observe(self, call: Call) -> None:
        """Queue a finished call; it is learned from when an estimate is read."""
        self._fresh.append(call)
        self._unread.append(call)

    def load_history(self) -> None:
        """Read earlier calls from the ledger, once; this reads a file.

        The ledger imports modules, and a caller may hold ``import_lock``, so that one is acquired first.
        """
        if self._history is None:  # the usual case, without a lock
            return
        with import_lock, self._lock:
            history = self._take_history()
            if history is None:  # another thread has read it meanwhile
                return
            # Some of the earlier calls may also be in the queue; their ids keep them from counting twice.
            self._known_ids, samples = earlier_calls(history, self._seconds())
            for sample in samples:
                self.learn(sample)

    def _take_history(self) -> CallHistory | None:
        history, self._history = self._history, None
        return history

    def learn(self, sample: CallSample) -> None:
        """Learn from a finished call now. Calls of one route must come in the order in which they ended."""
        with self._lock:
            self._answers.note_sample(sample)
            self._learn(sample)

    def _learn(self, sample: CallSample) -> None:
        with self._lock:
            learned = self._routes.get(sample.route)
            if learned is None:
                learned = self._routes[sample.route] = RouteModel(self._prior_of(sample.route))
                if len(self._routes) > ROUTES:
                    self._cache.drop(self._routes.popitem(last=False)[0])
            else:
                self._routes.move_to_end(sample.route)
            expected = self._lengths.expected(sample.task, sample.prompt_tokens, sample.session)
            shared = self._over.of(sample.task)
            if learned.learn(sample, expected.median, shared):
                self._cache.drop(sample.route)
            for other in self._similar.note(sample.route, learned.calls, learned.typical()):
                self._cache.drop(other)
            answered = not sample.failed and not sample.warm_up and (sample.completion_tokens or 0) > 0
            if answered and sample.completion_tokens is not None:
                self._lengths.add(
                    sample.task, sample.prompt_tokens, sample.completion_tokens, sample.session, sample.at
                )
            self._caches.add(sample)
            if sample.policy is not None and (limits_kept := kept_limits(sample, sample.policy)) is not None:
                self.margin(sample.policy, sample.task, sample.prompt_tokens).add(limits_kept)

    def _prior_of(self, route: str) -> RoutePrior | None:
        """Return the prior of a route that has not answered: published, implied, or of similar routes."""
        return self._priors.get(route) or self._similar.prior(route)

    def margin(
        self, policy: Policy, task: PromptTask | None = None, prompt_tokens: int | None = None
    ) -> AdaptivePercentile:
        """Return the adapted percentile of such calls of a policy; equal policies share one object."""
        with self._lock:
            return self._promises.of(policy, task, prompt_tokens)

    def note_load(self, place: str, load: ServerLoad | None) -> None:
        """Note the current load of a destination; None if it is no longer known.

        Args:
            place: ``provider``, or ``provider/model`` if each of its models has a load of its own.
        """
        with self._lock:
            now = self._seconds()
            changed = self._loads.note(place, load, now)
            if load is not None:
                self._expiries.add((True, place), now + LOAD_S)
            if changed:
                self._cache.drop_place(place)

    def load(self, route: str) -> ServerLoad | None:
        """Return the load of a route's destination, None without a recent reading."""
        return self._loads.of(route, self._seconds())

    def of(
        self,
        route: str,
        task: PromptTask | None = None,
        percentile: float = 0.95,
        prompt_tokens: int | None = None,
    ) -> RouteEstimate:
        """Return the estimate for the next call on a route; see :meth:`all_of`."""
        if not self._fresh and self._history is None and self._seconds() < self._expiries.next_at:
            found = self._cache.get((task, percentile, representative_length(prompt_tokens)), route)
            if found is not None:
                return found
        return self.all_of((route,), task, percentile, prompt_tokens)[0]

    def all_of(
        self,
        routes: Sequence[str],
        task: PromptTask | None = None,
        percentile: float = 0.95,
        prompt_tokens: int | None = None,
    ) -> list[RouteEstimate]:
        """Return the estimates for the next call on each of several routes.

        Args:
            routes: each ``provider/model``.
            task: the kind of prompt, None for any.
            percentile: the share of calls that keep the limits in the estimates, above 0 and below 1.
            prompt_tokens: of the prompt; on some routes long prompts delay the first token.
        """
        if self._fresh or self._history is not None or self._seconds() >= self._expiries.next_at:
            self._catch_up()
        view = (task, percentile, representative_length(prompt_tokens))
        known = self._cache.get_all(view, routes)
        if known is not None:
            return known
        with self._lock:
            return [self._estimate(route, view) for route in routes]

    def current_version(self) -> int:
        """Return a number that grows whenever an estimate may change, after learning from queued calls."""
        if self._fresh or self._history is not None or self._seconds() >= self._expiries.next_at:
            self._catch_up()
        return self._cache.version

    def length(
        self,
        task: PromptTask | None,
        prompt_tokens: int | None,
        max_tokens: int | None = None,
        *,
        session: str | None = None,
    ) -> AnswerLength:
        """Return the expected length of an answer, learned from answers to similar prompts.

        Args:
            max_tokens: the greatest length that the caller allows.
            session: the session of the call, whose own answers weigh most.
        """
        self._catch_up()
        with self._lock:
            return cap_length(self._lengths.expected(task, prompt_tokens, session), max_tokens)

    def held(self, session: str, prompt_tokens: int) -> Mapping[str, HeldPrefix]:
        """Return what routes hold of the next prompt of a session; see :meth:`SessionCaches.held`."""
        self._catch_up()
        with self._lock:
            return self._caches.held(session, prompt_tokens, self._seconds())

    def stats(self, percentile: float = 0.95) -> list[RouteStatistics]:
        """Return the learned figures, sorted by route; the row of all tasks precedes those of each task."""
        self._catch_up()
        with self._lock:
            now, rows = self._seconds(), list[RouteStatistics]()
            for route, learned in sorted(self._routes.items()):
                made = {task: self._estimate(route, (task, percentile, None)) for task in learned.tracks}
                rows += learned.statistics(route, made, now)
            return rows

    def predict(self, route: str, *, max_tokens: int | None = None) -> LedgerForecast:
        """Forecast the next call on a route; see :meth:`compare`."""
        return self.compare([route], max_tokens=max_tokens)[0]

    def compare(self, routes: Sequence[str], *, max_tokens: int | None = None) -> list[LedgerForecast]:
        """Forecast one call on each of several routes, with an answer of the same length on all of them.

        Args:
            routes: each ``provider/model``.
            max_tokens: the greatest length that the caller allows.
        """
        estimates = self.all_of(routes)
        with self._lock:
            models = [self._routes.get(route) for route in routes]
            tracks = [None if model is None else model.tracks[None] for model in models]
        length = typical_length([track.tokens for track in tracks if track is not None], max_tokens)
        return [
            forecast_of_estimate(each, length, calls=0 if track is None else track.calls)
            for track, each in zip(tracks, estimates, strict=True)
        ]

    def longest(self, route: str) -> int | None:
        """Return the tokens of the longest answer among a route's newest calls, None without any."""
        self._read_answers()
        with self._lock:
            return self._answers.longest(route)

    def prompt_pace(self, route: str) -> float | None:
        """Return the slowest prompt pace among a route's newest calls without an answer, None without any.

        It is in seconds of the engine per prompt token.
        """
        self._read_answers()
        with self._lock:
            return self._answers.prompt_pace(route)

    def _read_answers(self) -> None:
        """Note the answers of finished calls, without learning from them."""
        if self._history is not None:
            self.load_history()
        while self._unread:
            with self._lock, suppress(IndexError):  # another thread took the last one
                call = self._unread.popleft()
                if call.id not in self._known_ids:
                    self._answers.note_call(call)

    def _catch_up(self) -> None:
        """Learn from queued calls, and expire estimates that are due."""
        if self._history is not None:
            self.load_history()
        while self._fresh:
            with self._lock, suppress(IndexError):  # another thread took the last one
                call = self._fresh.popleft()
                if call.id not in self._known_ids and (sample := CallSample.of(call)) is not None:
                    self._learn(sample)
        now = self._seconds()
        if now >= self._expiries.next_at:
            with self._lock:
                for is_load, name in self._expiries.expired(now):
                    if is_load:
                        self._expire_load(name, now)
                    else:
                        self._cache.drop(name)

    def _expire_load(self, place: str, now: float) -> None:
        left = self._loads.expire(place, now)
        if left:  # a newer reading has replaced the one that was due
            self._expiries.add((True, place), now + left)
        else:
            self._cache.drop_place(place)

    def _estimate(self, route: str, view: EstimateView) -> RouteEstimate:
        """Return a route's estimate, from the cache or computed. The caller holds the lock."""
        found = self._cache.get(view, route)
        if found is not None:
            return found
        task, percentile, prompt_tokens = view
        load, learned = self.load(route), self._routes.get(route)
        if learned is None:
            prior = self._prior_of(route)
            found = cold_start_estimate(prior, task, percentile, load=load, prompt_tokens=prompt_tokens)
        else:
            now = self._seconds()
            found = learned.estimate(
                task,
                percentile,
                now,
                prompt_tokens=prompt_tokens,
                load=load,
                shared=self._over.get(task),
                prior=self._priors.get(route),
            )
            self._expiries.add((False, route), now + learned.expires_s(now))
        self._cache.keep(view, route, found)
        return found
