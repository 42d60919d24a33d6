"""The remaining time of a stage of a training run."""

from __future__ import annotations

from collections.abc import Callable


class TimeLeft:
    """Estimates the remaining seconds of a stage, from its pace since the first call.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._of, self._first, self._begun = clock, -1, 0, 0.0

    def left(self, done: int, of: int) -> float | None:
        """Return the remaining seconds; None at a stage's first call.

        Args:
            done: number of finished steps.
            of: number of all steps; another number begins another stage.
        """
        if of != self._of:
            self._of, self._first, self._begun = of, done, self._clock()
        passed = done - self._first
        return None if passed <= 0 else (self._clock() - self._begun) / passed * (of - done)
