"""The scheduler: assigns slots to sequences, and chooses the prompts that a step prefills."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq

from specclient_local.request.sequence import Sequence

PROMPT_ROWS_PER_STEP = 256
"""Prompt tokens prefilled in one step. It bounds the delay that a long prompt causes to other requests."""


class Scheduler:
    """Assigns slots first come, first served, and prefills prompts in turn.

    Args:
        slots: the number of sequences that run at once.

    Attributes:
        waiting: sequences without a slot, in the order of arrival.
        running: sequences with a slot.
        ready: running sequences whose prompts are prefilled; they take part in rounds.
    """

    def __init__(self, slots: int) -> None:
        self._free = list(range(slots))
        self._prefilling: deque[Sequence] = deque()
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.ready: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self.waiting.append(sequence)

    def admit(self, place: Callable[[Sequence, Seq[int]], int | None]) -> list[Sequence]:
        """Assign free slots in the order of arrival and return the sequences that received one.

        Args:
            place: chooses one of the free slots for a sequence; None if the sequence, and all behind it, have
                to wait.
        """
        granted: list[Sequence] = []
        while self._free and self.waiting:
            sequence = self.waiting[0]  # stays queued if `place` raises
            slot = place(sequence, self._free)
            if slot is None:
                break
            sequence.slot = slot
            self.waiting.popleft()
            self._free.remove(slot)
            self.running.append(sequence)
            self._prefilling.append(sequence)
            granted.append(sequence)
        return granted

    def next_prefills(self, rows: Callable[[Sequence], int]) -> list[Sequence]:
        """Return the sequences of which this step prefills a chunk of the prompt, in turn; at least one.

        Args:
            rows: returns the number of rows of a sequence's next chunk. The sum is at most
                ``PROMPT_ROWS_PER_STEP``, unless the first chunk alone exceeds it.
        """
        chosen: list[Sequence] = []
        left = PROMPT_ROWS_PER_STEP
        while self._prefilling and (not chosen or rows(self._prefilling[0]) <= left):
            left -= rows(self._prefilling[0])
            chosen.append(self._prefilling.popleft())
        self._prefilling += chosen
        return chosen

    def begin(self, sequence: Sequence) -> None:
        """Add a sequence whose prompt is prefilled to the rounds."""
        self._prefilling.remove(sequence)
        self.ready.append(sequence)

    def prefill_again(self, sequence: Sequence) -> None:
        """Remove a sequence from the rounds until its changed prompt is prefilled."""
        self.ready.remove(sequence)
        self._prefilling.append(sequence)

    def place_again(self, sequence: Sequence) -> None:
        """Free the slot of a sequence, which then is the first one to receive a slot."""
        self.release(sequence)
        self.waiting.appendleft(sequence)

    def release(self, sequence: Sequence) -> None:
        """Remove a running or waiting sequence and free its slot."""
        if sequence.slot is None:
            self.waiting.remove(sequence)
            return
        for group in (self.running, self._prefilling, self.ready):
            if sequence in group:
                group.remove(sequence)
        self._free.append(sequence.slot)
        sequence.slot = None
