"""Circuit breaker: refuses requests to deployments that keep failing, until a probe request succeeds.

HTTP attempts are counted, not calls: attempts are the server's load, and the failure of a call adds no
information to the failures of its attempts. Two rules keep a short outage from opening the circuit. Attempts
that were running when another one failed count as the same failure. And the failures must have lasted for
``CircuitRule.lasting_s``, so that the many retries that follow a burst reach a server that has recovered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeGuard

from specclient.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    CircuitOpenError,
    DeadlineExceededError,
)
from specclient.runtime.forks import register_fork_reset
from specclient.types.limit import CircuitRule

_MAX_FAILING = 1024  # deployments; bounded because names come from callers
_HEALTHY = frozenset({501})  # 5xx statuses of a healthy server


class BreakerPermit(NamedTuple):
    """The permit of an HTTP attempt: its deployment, its start, and whether it is the probe."""

    deployment: str
    at: float
    probe: bool


class _FailureRecord:
    """The state of a deployment from its first failure until it responds."""

    __slots__ = ("count", "last", "last_at", "opens_until", "probe_at", "rest_s", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.last = ""
        self.last_at = since
        self.opens_until: float | None = None  # None while closed; moved on when a probe starts
        self.rest_s = 0.0
        self.probe_at: float | None = None  # when the running probe permit


class CircuitBreaker:
    """Refuses requests to deployments that keep failing.

    A response below 500, even 400 or 429, closes the circuit, because it shows a working server. While
    nothing fails, an attempt costs two look-ups in an empty dictionary.

    Args:
        circuit: when to open; None for never.
        clock: returns monotonic seconds.
    """

    def __init__(self, circuit: CircuitRule | None, *, clock: Callable[[], float]) -> None:
        self._circuit = circuit
        self._clock = clock
        self._failing: dict[str, _FailureRecord] = {}
        self._lock = threading.Lock()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Reset the state in a forked child, because the parent's probes end in the parent."""
        self._failing = {}
        self._lock = threading.Lock()

    def check(self, deployment: str) -> None:
        """Raise CircuitOpenError if a request to ``deployment`` would be refused now."""
        failing = self._failing.get(deployment)
        if failing is not None:
            self._check(deployment, failing, self._clock())

    def is_open(self, deployment: str, seconds: float) -> bool:
        """Return whether the circuit stays open for at least ``seconds`` from now and no probe is running."""
        failing = self._failing.get(deployment)
        if failing is None or failing.opens_until is None or failing.probe_at is not None:
            return False
        return self._clock() + seconds < failing.opens_until

    def enter(self, deployment: str) -> BreakerPermit:
        """Let an attempt through; :meth:`leave` must follow. The first one after a rest is the probe.

        Raises:
            CircuitOpenError: see :meth:`check`.
        """
        now = self._clock()
        if deployment not in self._failing:
            return BreakerPermit(deployment, now, probe=False)
        with self._lock:
            failing = self._failing.get(deployment)
            if failing is None:
                return BreakerPermit(deployment, now, probe=False)
            self._check(deployment, failing, now)
            if failing.opens_until is None:
                return BreakerPermit(deployment, now, probe=False)
            failing.probe_at = now
            failing.opens_until = now + failing.rest_s  # bounds the wait for a probe that hangs
            return BreakerPermit(deployment, now, probe=True)

    def answered(self, permit: BreakerPermit, status: int) -> None:
        """Record the status of a response, before its body has been read."""
        if permit.deployment in self._failing and _is_healthy(status):
            with self._lock:
                self._failing.pop(permit.deployment, None)

    def leave(
        self, permit: BreakerPermit, error: BaseException | None, *, others_serve: bool = False
    ) -> None:
        """Record the outcome of an attempt.

        Args:
            permit: of the attempt.
            error: why it failed; None for a response.
            others_serve: whether the failure is of one server of the deployment whose others answer. It is
                not counted.
        """
        if error is None and permit.deployment not in self._failing:
            return
        with self._lock:
            if error is None or _is_answer(error):
                self._failing.pop(permit.deployment, None)
            elif self._circuit is not None and not others_serve and _is_failure(error):
                self._count(permit, error, self._circuit)
            elif (failing := self._failing.get(permit.deployment)) and _is_probe(permit, failing):
                failing.probe_at = None
                failing.opens_until = permit.at  # it told nothing: the next attempt is the probe

    def _count(self, permit: BreakerPermit, error: APIError, circuit: CircuitRule) -> None:
        now = self._clock()
        failing = self._failing.get(permit.deployment)
        if failing is None:
            if len(self._failing) >= _MAX_FAILING:
                del self._failing[min(self._failing, key=lambda name: self._failing[name].last_at)]
            failing = self._failing[permit.deployment] = _FailureRecord(now)
        elif permit.at <= failing.last_at and not permit.probe:
            return
        failing.count += 1
        failing.last_at = now
        failing.last = error.message
        if _is_probe(permit, failing):
            failing.probe_at = None
        lasted = now - failing.since
        if failing.count >= circuit.failures and lasted >= circuit.lasting_s:
            failing.rest_s = min(lasted, circuit.rest_s) if circuit.lasting_s else circuit.rest_s
            failing.opens_until = now + failing.rest_s

    @staticmethod
    def _check(deployment: str, failing: _FailureRecord, now: float) -> None:
        if failing.opens_until is None or now >= failing.opens_until:
            return
        left = failing.opens_until - now
        probing = "after the running probe, "
        when = f"{probing if failing.probe_at is not None else ''}in {left:.1f} s"
        raise CircuitOpenError(
            f"Connection error. {deployment} has failed {failing.count} times in a row, so it gets no "
            f"requests for now; the next one is sent {when}. The last failure: {failing.last}",
            deployment=deployment,
            retry_after_s=left,
        )


def _is_probe(permit: BreakerPermit, failing: _FailureRecord) -> bool:
    return permit.probe and permit.at == failing.probe_at


def _is_healthy(status: int) -> bool:
    return status < 500 or status in _HEALTHY


def _is_answer(error: BaseException) -> bool:
    return isinstance(error, APIStatusError) and _is_healthy(error.status_code)


def _is_failure(error: BaseException) -> TypeGuard[APIError]:
    if isinstance(error, APIStatusError):
        return not _is_answer(error)
    return isinstance(error, APIConnectionError) and not isinstance(error, DeadlineExceededError)
