"""Turn what answers say of rate limits into pauses before the next requests to the same deployment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from specclient.errors import APIStatusError
from specclient.transport import retry

_SPREAD = 0.25
_LONGEST_SPREAD_S = 5.0
_HELD_STATUSES = (429, 503)

# What is left of a limit, and when it is full again. Names by vendor: OpenAI (also Groq, Azure and most
# others), Cerebras, Anthropic.
_LIMITS: tuple[tuple[str, str], ...] = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining-project-tokens", "x-ratelimit-reset-project-tokens"),
    ("x-ratelimit-remaining-requests-day", "x-ratelimit-reset-requests-day"),
    ("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
)


@dataclass(frozen=True, slots=True)
class _Hold:
    """Requests wait until ``until``, then set out spread over the next ``spread`` seconds (clock time)."""

    until: float
    spread: float


class Pacer:
    """Holds requests back while their deployment's limit is known to be spent.

    Without a hold, :meth:`wait` costs one dictionary lookup. A pause longer than
    :data:`retry.LONGEST_DELAY_S` holds nobody: the request goes out and its caller hears of the limit.

    Args:
        clock: seconds, monotonic.
        now: seconds since the epoch, for limits that are full again at an instant.
        sleep: waits for seconds.
        random: draws from [0, 1); spreads the callers that a hold has gathered.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._random = random
        self._holds: dict[str, _Hold] = {}

    async def wait(self, deployment: str) -> None:
        """Return when a request to ``deployment`` may set out."""
        waited_for = None
        while (hold := self._holds.get(deployment)) is not None and hold is not waited_for:
            start = self._clock()
            if start >= hold.until + hold.spread:
                self._drop(deployment, hold)
                return
            # Who comes during the spread was most likely held by its own retry: it draws from what is left.
            earliest = max(start, hold.until)
            pause = earliest - start + self._random() * (hold.until + hold.spread - earliest)
            await self._sleep(pause)
            waited_for = hold  # a newer hold, set meanwhile, is waited for as well

    def hold(self, deployment: str, seconds: float) -> None:
        """Hold requests to ``deployment`` back for ``seconds``; a longer hold stays as it is."""
        if not deployment or not 0 < seconds <= retry.LONGEST_DELAY_S:
            return
        hold = _Hold(self._clock() + seconds, min(_SPREAD * seconds, _LONGEST_SPREAD_S))
        known = self._holds.get(deployment)
        if known is None or hold.until > known.until:
            self._holds[deployment] = hold

    def learn(self, deployment: str, headers: Mapping[str, str]) -> None:
        """Hold ``deployment`` where an answer's headers say that nothing is left of a limit."""
        for remaining, reset in _LIMITS:
            if headers.get(remaining) == "0" and (text := headers.get(reset)) is not None:
                self.hold(deployment, retry.parse_delay(text, self._now()) or 0.0)

    def refused(self, deployment: str, error: APIStatusError) -> None:
        """Hold ``deployment`` for as long as a 429 or 503 asks for."""
        if error.status_code not in _HELD_STATUSES or retry.is_quota_spent(error):
            return
        self.hold(deployment, retry.delay_of(error, self._now()) or 0.0)

    def _drop(self, deployment: str, hold: _Hold) -> None:
        if self._holds.get(deployment) is hold:
            del self._holds[deployment]
