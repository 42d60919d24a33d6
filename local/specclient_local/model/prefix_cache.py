"""Turn what the slots of a cache hold into beginnings of new prompts that need not be read again.

A row of keys and values depends on the tokens up to it and, in its last bits, on the rows that went
through the model with it. Prompts are read in chunks that end at the same places in every prompt, so whole
chunks of a common beginning are the same bit for bit, and so are equal prompts to their ends. A runner whose
rows have the same bits in a pass of any size shares to the last common token, answers included. Either way
an answer does not depend on what was shared.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class PrefixCacheSlots(Protocol):
    """What a runner tells of its slots."""

    @property
    def slots(self) -> int:
        """How many there are."""
        ...

    @property
    def prefix_granularity(self) -> int:
        """Rows after which a prompt's rows have the same bits whatever follows; see :class:`PrefixCache`."""
        ...

    def length(self, slot: int) -> int:
        """Positions in use."""
        ...

    def unmoved_length(self, slot: int) -> int:
        """Positions in use, from the first on, that hold rows computed where they stand."""
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Forget positions."""
        ...

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Give a slot positions of another."""
        ...

    def erase(self, slot: int) -> None:
        """Forget a slot's rows for good."""
        ...


@dataclass(slots=True)
class SlotContents:
    """What stands in a slot.

    Attributes:
        tokens: of which its rows are; the request's own growing list while it runs.
        prompt: how many of them, from the first on, were read as a prompt.
        shared: how many of these were there already, or came from another slot.
        used: when it was last read or copied from, in turns.
    """

    tokens: Sequence[int] = ()
    prompt: int = 0
    shared: int = 0
    used: int = -1


class PrefixCache:
    """Which tokens each slot of one runner holds; those of a free slot until it is assigned again.

    Args:
        runner: whose slots. With a ``grain`` of 1 any common beginning is shared, else whole multiples of
            it and equal prompts.
        share: whether anything is shared; without, each prompt is read from its first token.
    """

    def __init__(self, runner: PrefixCacheSlots, *, share: bool = True) -> None:
        self._runner = runner
        self._share = share
        self._held = [SlotContents() for _ in range(runner.slots)]
        self._turns = itertools.count()

    def place(self, tokens: Sequence[int], prompt: int, free: Sequence[int]) -> int:
        """Choose one of the free slots for a prompt.

        That which holds its beginning and nothing more; else the least recently used, into which the
        beginning is then copied from wherever it stands.
        """
        if not self._share:
            return free[-1]
        source, common = self._longest(tokens, prompt, range(len(self._held)))
        grain = self._runner.prefix_granularity
        if source in free and 0 < common >= len(self._held[source].tokens) // grain * grain:
            return source
        others = [slot for slot in free if slot != source] or free
        return min(others, key=lambda slot: self._held[slot].used)

    def done(self, slot: int, tokens: Sequence[int]) -> int:
        """Return how many positions of a request's slot are its own; 0 before it has begun."""
        return self._runner.length(slot) if self._held[slot].tokens is tokens else 0

    def begin(self, slot: int, tokens: Sequence[int], prompt: int) -> int:
        """Have in a slot as much of a prompt's beginning as any slot holds; return how many positions.

        Called before each chunk is read: another request may have come further with the same beginning.

        Args:
            slot: the prompt's own.
            tokens: the request's own list; another list is another request, which begins anew.
            prompt: how many of them are read in chunks.
        """
        held, runner = self._held[slot], self._runner
        if held.tokens is not tokens:
            runner.truncate(slot, self._common(slot, tokens, prompt) if self._share else 0)
            held = self._held[slot] = SlotContents(tokens, prompt, shared=runner.length(slot))
        held.used = next(self._turns)
        done = runner.length(slot)
        if self._share and done < prompt:
            source, common = self._longest(tokens, prompt, [s for s in range(runner.slots) if s != slot])
            if common > done:
                runner.copy(source, slot, done, common)
                self._held[source].used = next(self._turns)
                held.shared += common - done
        return runner.length(slot)

    def begin_alone(self, slot: int, tokens: Sequence[int], prompt: int) -> int:
        """Do as :meth:`begin` for a prompt of which every token is to go through the model.

        Of its rows whole multiples of the grain may be shared: the last of it is not read as a chunk.
        """
        if self._held[slot].tokens is not tokens:
            self._runner.truncate(slot, 0)
            grain = self._runner.prefix_granularity
            self._held[slot] = SlotContents(tokens, prompt // grain * grain, used=next(self._turns))
        return self._runner.length(slot)

    def shared(self, slot: int) -> int:
        """Return how many tokens of a slot's prompt were not read again."""
        return self._held[slot].shared

    def end(self, slot: int) -> None:
        """Let go of a request; what its slot holds may serve others until the slot is assigned again."""
        held = self._held[slot]
        usable = self._usable(slot) if self._share else 0
        self._runner.truncate(slot, usable)
        self._held[slot] = SlotContents(held.tokens[:usable], held.prompt, used=next(self._turns))

    def forget(self, slot: int) -> None:
        """Leave nothing in a slot, for what is there may be broken."""
        self._held[slot] = SlotContents()  # first: a wipe that fails leaves what nobody is to share
        self._runner.erase(slot)

    def _usable(self, slot: int) -> int:
        """Return how many of a slot's positions have the bits that a prompt's would have."""
        held = self._held[slot]
        straight = min(self._runner.unmoved_length(slot), len(held.tokens))
        return straight if self._runner.prefix_granularity == 1 else min(straight, held.prompt)

    def _common(self, slot: int, tokens: Sequence[int], prompt: int) -> int:
        """Return how many of a slot's positions are those of another prompt, bit for bit."""
        held, grain = self._held[slot], self._runner.prefix_granularity
        common = _equal(held.tokens, tokens, min(self._usable(slot), prompt))
        return common if common == held.prompt == prompt else common // grain * grain

    def _longest(self, tokens: Sequence[int], prompt: int, slots: Sequence[int]) -> tuple[int, int]:
        """Return the slot that holds most of a prompt's beginning, and how much; the first of equal ones."""
        best = (-1, 0)
        for slot in slots:
            common = self._common(slot, tokens, prompt)
            if common > best[1]:
                best = (slot, common)
        return best


def _equal(one: Sequence[int], other: Sequence[int], most: int) -> int:
    """Return how many tokens two lists begin with in common, up to ``most``."""
    if most == 0 or one[:most] == other[:most]:
        return most
    low, high = 0, most  # equal up to low, different before high; bisected, since lists compare fast
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle)
    return low
