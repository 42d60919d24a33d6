"""Turn a queue of waiting sequences into running ones, and say whose prompt is read on when."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq

from specclient_local.request.sequence import Sequence

PROMPT_ROWS_PER_STEP = 256
"""Rows of prompts read in one step: a longer prompt holds up the others by so much at a time."""


class Scheduler:
    """Who runs and who waits: slots first come, first served; prompts in turn.

    Args:
        slots: sequences that run at once.

    Attributes:
        waiting: those without a slot, in the order of arrival.
        running: those with one.
        ready: of these, those whose prompts are read: they take part in rounds.
    """

    def __init__(self, slots: int) -> None:
        self._free = list(range(slots))
        self._unread: deque[Sequence] = deque()
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.ready: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self.waiting.append(sequence)

    def admit(self, place: Callable[[Sequence, Seq[int]], int]) -> list[Sequence]:
        """Grant free slots in the order of arrival; return the sequences that got one.

        Args:
            place: chooses one of the free slots for a sequence.
        """
        granted: list[Sequence] = []
        while self._free and self.waiting:
            sequence = self.waiting[0]  # it waits until it has a slot, whatever breaks meanwhile
            sequence.slot = place(sequence, self._free)
            self.waiting.popleft()
            self._free.remove(sequence.slot)
            self.running.append(sequence)
            self._unread.append(sequence)
            granted.append(sequence)
        return granted

    def readers(self, rows: Callable[[Sequence], int]) -> list[Sequence]:
        """Return whose prompts a chunk is read of in this step, by turns: at least one, if any is unread.

        Args:
            rows: of a sequence's next chunk. Together they are ``PROMPT_ROWS_PER_STEP`` at most, unless the
            first
                has more.
        """
        chosen: list[Sequence] = []
        left = PROMPT_ROWS_PER_STEP
        while self._unread and (not chosen or rows(self._unread[0]) <= left):
            left -= rows(self._unread[0])
            chosen.append(self._unread.popleft())
        self._unread += chosen
        return chosen

    def begin(self, sequence: Sequence) -> None:
        """Let a sequence whose prompt is read take part in rounds."""
        self._unread.remove(sequence)
        self.ready.append(sequence)

    def reread(self, sequence: Sequence) -> None:
        """Take a sequence out of the rounds, until its prompt, another one now, is read."""
        self.ready.remove(sequence)
        self._unread.append(sequence)

    def release(self, sequence: Sequence) -> None:
        """Take a sequence out, whether it runs or waits, and free its slot."""
        if sequence.slot is None:
            self.waiting.remove(sequence)
            return
        for group in (self.running, self._unread, self.ready):
            if sequence in group:
                group.remove(sequence)
        self._free.append(sequence.slot)
        sequence.slot = None
