"""Turn failures in a row into a rest for the deployment, which ends with one request sent to see.

Tries are counted, not calls: tries are what the server is hit with, and a call that fails at last tells
nothing which its tries have not. Two rules keep a blip from opening anything. Tries that were under way when
one failed count with it: a burst that breaks together is one failure. And the failing must have lasted: the
retries of a burst come a moment later, fast and by the hundred, and must meet the server when it is back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from specclient.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    CircuitOpenError,
    DeadlineExceededError,
)
from specclient.runtime.forks import register_fork_reset
from specclient.types.limit import CircuitRule

_MOST = 1024  # deployments that fail at once: names come from callers
_ALIVE = frozenset({501})  # a server that says so is well, and will say so again


class BreakerPermit(NamedTuple):
    """A try that was let through: to what, when, and whether it is the one sent to see."""

    deployment: str
    at: float
    probe: bool


class _FailureRecord:
    """What is kept of a deployment from its first failure until it answers."""

    __slots__ = ("count", "last", "last_at", "opens_until", "probe_at", "rest_s", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.last = ""
        self.last_at = since
        self.opens_until: float | None = None  # None while closed; a probe that sets out moves it on
        self.rest_s = 0.0
        self.probe_at: float | None = None  # when the probe under way set out


class CircuitBreaker:
    """Refuses requests to deployments that keep failing.

    An answer, even a refusal such as 400 or 429, closes the circuit: something is there and well. While
    nothing fails, a try costs two looks into an empty dictionary.

    Args:
        circuit: when to open; None never opens.
        clock: seconds, monotonic.
    """

    def __init__(self, circuit: CircuitRule | None, *, clock: Callable[[], float]) -> None:
        self._circuit = circuit
        self._clock = clock
        self._failing: dict[str, _FailureRecord] = {}
        self._lock = threading.Lock()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """In a forked child: the parent's probes end in the parent."""
        self._failing = {}
        self._lock = threading.Lock()

    def check(self, deployment: str) -> None:
        """Raise CircuitOpenError where a request to ``deployment`` would be refused now."""
        failing = self._failing.get(deployment)
        if failing is not None:
            self._check(deployment, failing, self._clock())

    def is_open(self, deployment: str, seconds: float) -> bool:
        """Tell whether ``deployment`` rests for at least ``seconds`` from now, and nobody is sent to see."""
        failing = self._failing.get(deployment)
        if failing is None or failing.opens_until is None or failing.probe_at is not None:
            return False
        return self._clock() + seconds < failing.opens_until

    def enter(self, deployment: str) -> BreakerPermit:
        """Let a try through, which must be told of by :meth:`leave`; the first after a rest is the probe.

        Raises:
            CircuitOpenError: as :meth:`check`.
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
            failing.opens_until = now + failing.rest_s  # a probe that hangs is not waited for any longer
            return BreakerPermit(deployment, now, probe=True)

    def answered(self, started: BreakerPermit, status: int) -> None:
        """Tell that an answer has begun, whose body may be long in coming."""
        if started.deployment in self._failing and _is_alive(status):
            with self._lock:
                self._failing.pop(started.deployment, None)

    def leave(self, started: BreakerPermit, error: BaseException | None) -> None:
        """Tell how a try has ended; ``error`` is None for an answer."""
        if error is None and started.deployment not in self._failing:
            return
        with self._lock:
            if error is None or _is_answer(error):
                self._failing.pop(started.deployment, None)
            elif self._circuit is not None and isinstance(error, APIError) and _is_failure(error):
                self._count(started, error, self._circuit)
            elif (failing := self._failing.get(started.deployment)) and _is_probe(started, failing):
                failing.probe_at = None
                failing.opens_until = started.at  # cancelled: the next one is the probe

    def _count(self, started: BreakerPermit, error: APIError, circuit: CircuitRule) -> None:
        now = self._clock()
        failing = self._failing.get(started.deployment)
        if failing is None:
            if len(self._failing) >= _MOST:
                del self._failing[min(self._failing, key=lambda name: self._failing[name].last_at)]
            failing = self._failing[started.deployment] = _FailureRecord(now)
        elif started.at <= failing.last_at and not started.probe:
            return
        failing.count += 1
        failing.last_at = now
        failing.last = error.message
        if _is_probe(started, failing):
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
        probing = "one is under way to see whether it works again, and after that "
        when = f"{probing if failing.probe_at is not None else ''}in {left:.1f} s"
        raise CircuitOpenError(
            f"Connection error. {deployment} has failed {failing.count} times in a row and is given a rest; "
            f"the next request is let through {when}. The last failure: {failing.last}",
            deployment=deployment,
            retry_after_s=left,
        )


def _is_probe(started: BreakerPermit, failing: _FailureRecord) -> bool:
    return started.probe and started.at == failing.probe_at


def _is_alive(status: int) -> bool:
    return status < 500 or status in _ALIVE


def _is_answer(error: BaseException) -> bool:
    return isinstance(error, APIStatusError) and _is_alive(error.status_code)


def _is_failure(error: APIError) -> bool:
    if isinstance(error, APIStatusError):
        return not _is_answer(error)
    return isinstance(error, APIConnectionError) and not isinstance(error, DeadlineExceededError)
