"""Equal calls in flight: one of them, the leader, is made; the others wait for its answer.

If the leader fails or is cancelled, one of those that wait becomes the leader. If that one fails, too, the
upstream is in trouble, and the rest make their calls by themselves, so that they do not fail one after the
other. A cancelled leader says nothing about the upstream and may be followed any number of times. Calls may
be in different event loops and threads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from specclient.runtime.forks import register_fork_reset

__all__ = ["ALONE", "LEADS", "STALLED_S", "Flight", "FlightOutcome", "Flights"]

#: Outcomes for a call that has waited, besides the answer: it is the leader now, or goes on by itself.
LEADS: Final = "leads"
ALONE: Final = "alone"
FlightOutcome: TypeAlias = bytes | Literal["leads", "alone"]

#: Failures of leaders after which the waiting calls go on by themselves.
_MOST_FAILURES = 2
#: Seconds after which a leader whose caller does not read its stream is left.
STALLED_S = 5.0
_LOOK_S = 1.0


class _Waiter:
    """A call that waits in its event loop."""

    __slots__ = ("_loop", "future")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[FlightOutcome] = self._loop.create_future()

    def tell(self, outcome: FlightOutcome) -> bool:
        """Give the call its outcome; return False if its event loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._settle, outcome)
        except RuntimeError:
            return False
        return True

    def _settle(self, outcome: FlightOutcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


class Flight:
    """The calls in flight with one key.

    Attributes:
        key: the key.
        answer: the leader's answer, from when it is known until the flight ends; None before.
        paused_at: since when the leader waits for the caller that reads its stream, in monotonic seconds;
            None while it does not.
    """

    __slots__ = ("answer", "failures", "heir", "key", "paused_at", "waiters")

    def __init__(self, key: str) -> None:
        self.key = key
        self.answer: bytes | None = None
        self.paused_at: float | None = None
        self.failures = 0
        self.waiters: list[_Waiter] = []
        self.heir: _Waiter | None = None  # was told to lead, and has not begun


class Flights:
    """The calls in flight of one cache.

    Args:
        clock: returns monotonic seconds.
        stalled_s: see :data:`STALLED_S`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, stalled_s: float = STALLED_S) -> None:
        self._clock, self._stalled_s = clock, stalled_s
        self.reset_after_fork()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Forget the calls in flight, which are the parent's."""
        self._lock = threading.Lock()
        self._flights: dict[str, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def join(self, key: str, patience_s: float) -> tuple[Flight, FlightOutcome]:
        """Join the calls with a key; wait for the leader's answer, or lead.

        Args:
            patience_s: seconds to wait at most.

        Returns:
            The flight, and the leader's answer; :data:`LEADS` if the caller is the leader, who must end the
            flight by :meth:`land` or :meth:`fail`; or :data:`ALONE` if it must go on by itself.
        """
        ends = self._clock() + patience_s
        while True:
            with self._lock:
                flight = self._flights.get(key)
                if flight is None:
                    flight = self._flights[key] = Flight(key)
                    return flight, LEADS
                if flight.answer is not None:
                    return flight, flight.answer
                waiter = _Waiter()
                flight.waiters.append(waiter)
            outcome = await self._outcome(flight, waiter, ends)
            if outcome is not None:
                return flight, outcome

    async def _outcome(self, flight: Flight, waiter: _Waiter, ends: float) -> FlightOutcome | None:
        """Wait for the outcome of a flight; None to join anew, as its leader has stalled."""
        try:
            while True:
                left_s = ends - self._clock()
                await asyncio.wait([waiter.future], timeout=max(min(left_s, _LOOK_S), 0.0))
                if waiter.future.done():
                    return self._accepted(flight, waiter)
                if left_s <= 0:
                    return self._left(flight, waiter) or ALONE
                if self.has_stalled(flight):
                    self._drop(flight)
                    return self._left(flight, waiter)
        except BaseException:
            self._left(flight, waiter, accepts=False)
            raise

    def _accepted(self, flight: Flight, waiter: _Waiter) -> FlightOutcome:
        with self._lock:
            if flight.heir is waiter:
                flight.heir = None
        return waiter.future.result()

    def _left(self, flight: Flight, waiter: _Waiter, *, accepts: bool = True) -> FlightOutcome | None:
        """Stop waiting; return the outcome that has come meanwhile, or pass the lead on."""
        with self._lock:
            if waiter in flight.waiters:
                flight.waiters.remove(waiter)
                return None
            is_heir = flight.heir is waiter
            if is_heir:
                flight.heir = None
        if is_heir and accepts:
            return LEADS
        if is_heir:
            self.fail(flight, cancelled=True)
        return flight.answer if accepts else None

    def has_stalled(self, flight: Flight) -> bool:
        """Return whether the leader's caller has not read its stream for long."""
        return flight.paused_at is not None and self._clock() - flight.paused_at > self._stalled_s

    def _drop(self, flight: Flight) -> None:
        """Let the next caller with the key lead; those that wait notice it by themselves."""
        with self._lock:
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]

    # For the leader

    def publish(self, flight: Flight, answer: bytes) -> None:
        """Give the answer to all who wait, and to those who join until :meth:`land`."""
        with self._lock:
            flight.answer = answer
            waiters, flight.waiters = flight.waiters, []
        for waiter in waiters:
            waiter.tell(answer)

    def land(self, flight: Flight) -> None:
        """End a flight; calls that still wait, as there is no answer for them, go on by themselves."""
        self._drop(flight)
        with self._lock:
            waiters, flight.waiters = flight.waiters, []
        for waiter in waiters:
            waiter.tell(ALONE)

    def fail(self, flight: Flight, *, cancelled: bool) -> None:
        """End the lead of a call that has failed, or was cancelled; another one takes it over."""
        with self._lock:
            flight.paused_at = None
            flight.failures += not cancelled
            while flight.waiters and flight.failures < _MOST_FAILURES:
                flight.heir = flight.waiters.pop(0)
                if flight.heir.tell(LEADS):
                    return
                flight.heir = None
        self.land(flight)

    def pause(self, flight: Flight) -> None:
        """Note that the leader waits for the caller that reads its stream."""
        flight.paused_at = self._clock()

    def resume(self, flight: Flight) -> None:
        """Note that the leader's caller reads on."""
        flight.paused_at = None
