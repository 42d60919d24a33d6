"""Reuse of cached prompt prefixes between requests.

A row of keys and values depends on the tokens up to it and, in its last bits, on the other rows of its pass.
Prompts are prefilled in chunks that end at the same positions in every prompt, so whole chunks of a common
prefix are equal bit for bit, and so are equal prompts. If a runner's rows have the same bits in a pass of any
size, all common tokens are shared, those of answers included. In both cases an answer does not depend on the
sharing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

PrefixSharing = Literal["all", "owner", "none"]
"""The requests whose rows a prompt may reuse: all, those of the same owner, or none."""


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """The most that a request can need of a cache that requests share.

    Attributes:
        age: order of arrival.
        positions: the most that its prompt and answer can occupy.
        alone: whether its prompt must be computed, without rows of other requests.
    """

    age: int
    positions: int
    alone: bool = False


class PrefixCacheSlots(Protocol):
    """The slot operations of a runner that the prefix cache uses."""

    @property
    def slots(self) -> int:
        """Number of slots."""
        ...

    @property
    def prefix_granularity(self) -> int:
        """See :class:`~specclient_local.model.model_runner.ModelRunner`."""
        ...

    def length(self, slot: int) -> int:
        """Positions in use."""
        ...

    def unmoved_length(self, slot: int) -> int:
        """Number of leading positions whose rows were computed at that position, not moved there."""
        ...

    def use_adapter(self, slot: int, adapter: int | None) -> None:
        """Change the rows of a slot by an adapter from now on; None for none."""
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Forget the positions from ``length`` on."""
        ...

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Copy positions ``start`` to ``end`` of another slot."""
        ...

    def erase(self, slot: int) -> None:
        """Zero a slot's rows."""
        ...


@dataclass(slots=True)
class SlotContents:
    """The contents of a slot.

    Attributes:
        tokens: the tokens whose rows it holds; the request's own growing list while it runs. For a draft
            head, whose rows are made of two tokens, pairs of them.
        prompt: number of leading tokens that were prefilled as a prompt.
        shared: number of these tokens that were copied from rows of the same owner instead of computed.
        used: number of the turn in which the slot was last used or copied from.
        adapter: number of the adapter that changed the rows; None for none.
        owner: whose request it is.
    """

    tokens: Sequence[object] = ()
    prompt: int = 0
    shared: int = 0
    used: int = -1
    adapter: int | None = None
    owner: str = ""


class PrefixCache:
    """Records the tokens that each slot of a runner holds, and copies common prefixes between slots.

    A free slot keeps its contents until it is assigned again.

    Args:
        runner: the runner. If its ``prefix_granularity`` is 1, any common prefix is shared; else whole
            multiples of it, and equal prompts.
        sharing: whose rows are shared; with ``none``, each prompt is read from its first token.
    """

    def __init__(self, runner: PrefixCacheSlots, sharing: PrefixSharing = "all") -> None:
        self._runner = runner
        self._share, self._apart = sharing != "none", sharing == "owner"
        self._held = [SlotContents() for _ in range(runner.slots)]
        self._turns = itertools.count()

    def place(
        self,
        tokens: Sequence[object],
        prompt: int,
        free: Sequence[int],
        adapter: int | None = None,
        owner: str = "",
        *,
        claim: SlotClaim | None = None,  # noqa: ARG002 - every slot has its own memory
    ) -> int:
        """Choose one of the free slots for a prompt.

        It is the slot that holds a prefix of the prompt and nothing more, else the least recently used one.
        The longest prefix in another slot is then copied by :meth:`begin`.
        """
        if not self._share:
            return free[-1]
        source, common = self._longest(tokens, prompt, range(len(self._held)), adapter, owner)
        granularity = self._runner.prefix_granularity
        if source in free and 0 < common >= len(self._held[source].tokens) // granularity * granularity:
            return source
        others = [slot for slot in free if slot != source] or free
        return min(others, key=lambda slot: self._held[slot].used)

    def done(self, slot: int, tokens: Sequence[object]) -> int:
        """Return the number of positions that a request has in its slot; 0 before it begins."""
        return self._runner.length(slot) if self._held[slot].tokens is tokens else 0

    def begin(
        self, slot: int, tokens: Sequence[object], prompt: int, adapter: int | None = None, owner: str = ""
    ) -> int:
        """Copy the longest prefix of a prompt that any slot holds into the prompt's slot.

        Called before each chunk, because another request with the same prefix may have prefilled more of it.

        Args:
            slot: the prompt's slot.
            tokens: the request's own list; another list is another request, which begins anew.
            prompt: number of tokens to prefill in chunks.
            adapter: number of the request's adapter; rows of other adapters are not shared.
            owner: whose request it is. Rows of other owners are copied only if all are shared, and are not
                counted as shared, so that no figure tells what others' prompts are.

        Returns:
            The number of positions that the slot then holds.
        """
        held, runner = self._held[slot], self._runner
        if held.tokens is not tokens:
            common = self._common(slot, tokens, prompt, adapter, owner) if self._share else 0
            runner.truncate(slot, common)
            runner.use_adapter(slot, adapter)
            shared = runner.length(slot) if held.owner == owner else 0
            held = self._held[slot] = SlotContents(
                tokens, prompt, shared=shared, adapter=adapter, owner=owner
            )
        held.used = next(self._turns)
        done = runner.length(slot)
        if self._share and done < prompt:
            others = [s for s in range(runner.slots) if s != slot]
            source, common = self._longest(tokens, prompt, others, adapter, owner)
            if common > done:
                runner.copy(source, slot, done, common)
                self._held[source].used = next(self._turns)
                held.shared += common - done if self._held[source].owner == owner else 0
        return runner.length(slot)

    def begin_alone(
        self, slot: int, tokens: Sequence[object], prompt: int, adapter: int | None = None, owner: str = ""
    ) -> int:
        """Do the same as :meth:`begin` for a prompt whose tokens are scored, so that none may be copied.

        Later prompts may share only whole multiples of the granularity: the rest is not computed as a chunk.
        """
        if self._held[slot].tokens is not tokens:
            self._runner.truncate(slot, 0)
            self._runner.use_adapter(slot, adapter)
            granularity = self._runner.prefix_granularity
            self._held[slot] = SlotContents(
                *(tokens, prompt // granularity * granularity),
                used=next(self._turns),
                adapter=adapter,
                owner=owner,
            )
        return self._runner.length(slot)

    def shared(self, slot: int) -> int:
        """Return the number of prompt tokens of a slot that its owner had computed before."""
        return self._held[slot].shared

    def end(self, slot: int) -> None:
        """End a request. Its slot's contents may serve others until the slot is assigned again."""
        held = self._held[slot]
        usable = self._usable(slot) if self._share else 0
        self._runner.truncate(slot, usable)
        self._held[slot] = SlotContents(
            *(held.tokens[:usable], held.prompt),
            used=next(self._turns),
            adapter=held.adapter,
            owner=held.owner,
        )

    def forget(self, slot: int) -> None:
        """Erase a slot whose values may not be finite."""
        self._held[slot] = SlotContents()  # first, so that nothing is shared even if erasing fails
        self._runner.erase(slot)

    def _usable(self, slot: int) -> int:
        """Return the number of a slot's positions that have the same bits as a prompt's would."""
        held = self._held[slot]
        unmoved = min(self._runner.unmoved_length(slot), len(held.tokens))
        return unmoved if self._runner.prefix_granularity == 1 else min(unmoved, held.prompt)

    def _common(
        self, slot: int, tokens: Sequence[object], prompt: int, adapter: int | None, owner: str
    ) -> int:
        """Return the number of a slot's positions that an owner's prompt may reuse: equal, bit for bit."""
        held, granularity = self._held[slot], self._runner.prefix_granularity
        if held.adapter != adapter or (self._apart and held.owner != owner):
            return 0
        common = _equal(held.tokens, tokens, min(self._usable(slot), prompt))
        return common if common == held.prompt == prompt else common // granularity * granularity

    def _longest(
        self, tokens: Sequence[object], prompt: int, slots: Sequence[int], adapter: int | None, owner: str
    ) -> tuple[int, int]:
        """Return the slot that holds the longest prefix of a prompt, and its length; the first of equal
        ones.
        """
        best = (-1, 0)
        for slot in slots:
            common = self._common(slot, tokens, prompt, adapter, owner)
            if common > best[1]:
                best = (slot, common)
        return best


def _equal(one: Sequence[object], other: Sequence[object], most: int) -> int:
    """Return the length of the common prefix of two lists, up to ``most``."""
    if most == 0 or one[:most] == other[:most]:
        return most
    low, high = 0, most  # equal up to low, different before high; bisected, because comparing slices is fast
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle)
    return low
