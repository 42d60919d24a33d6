"""Turn a queue of waiting sequences into running ones: slots granted first come, first served."""

from __future__ import annotations

from collections import deque

from specclient_local.sequence import Sequence


class Scheduler:
    """Who runs and who waits.

    Args:
        slots: sequences that may take turns.
    """

    def __init__(self, slots: int) -> None:
        self._free = list(range(slots))[::-1]
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self.waiting.append(sequence)

    def admit(self) -> list[Sequence]:
        """Grant free slots in the order of arrival; return the sequences that got one."""
        granted: list[Sequence] = []
        while self._free and self.waiting:
            sequence = self.waiting.popleft()
            sequence.slot = self._free.pop()
            self.running.append(sequence)
            granted.append(sequence)
        return granted

    def release(self, sequence: Sequence) -> None:
        """Take a sequence out, whether it runs or waits, and free its slot."""
        if sequence.slot is None:
            self.waiting.remove(sequence)
            return
        self.running.remove(sequence)
        self._free.append(sequence.slot)
        sequence.slot = None
