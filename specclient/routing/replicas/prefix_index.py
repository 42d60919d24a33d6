"""The index of the blocks of prompts that were sent to replicas, and so are in their caches.

Each replica has a list of its blocks, the least recently used first, as servers keep theirs. A prompt's
blocks are noted from its end to its beginning, as vLLM frees them, so that a block is never older than those
that follow it: a replica that holds a block holds all blocks before it. Servers evict blocks unseen; the
length of a replica's list follows what its answers report of cached tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["PrefixIndex"]

#: The blocks of a replica of which nothing is known yet, and the least number.
_USUAL, _LEAST = 4096, 16
#: The factors of a replica's length when it held less, or more, than its list says.
_SHRINK, _GROW = 0.7, 1.1


class _ReplicaBlocks:
    """The blocks of one replica.

    Attributes:
        blocks: the least recently used first, with the count of noted blocks when each was noted.
        length: the most blocks that are kept.
        noted: the count of noted blocks.
        reported: whether its server reports the length.
    """

    __slots__ = ("blocks", "length", "noted", "reported")

    def __init__(self, length: float) -> None:
        self.blocks: OrderedDict[int, int] = OrderedDict()
        self.length = length
        self.noted = 0
        self.reported = False


class PrefixIndex:
    """Which replicas hold which blocks. It is not safe to use from several threads.

    Args:
        limit: the most blocks of all replicas together. An entry takes about 250 bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._replicas: dict[int, _ReplicaBlocks] = {}
        self._holders: dict[int, set[int] | int] = {}

    def __len__(self) -> int:
        """Return the number of entries, one for each block of a replica."""
        return sum(len(each.blocks) for each in self._replicas.values())

    def longest(self, blocks: Sequence[int], most: int) -> dict[int, int]:
        """Return the replicas that hold the most of a prompt, and the number of its first blocks they hold.

        Args:
            blocks: the hashes of the prompt.
            most: the number of replicas.
        """
        low, high = 0, len(blocks)  # the first `low` blocks have a holder
        while low < high:
            middle = (low + high + 1) // 2
            if blocks[middle - 1] in self._holders:
                low = middle
            else:
                high = middle - 1
        found: dict[int, int] = {}
        for depth in range(low, 0, -1):
            holders = self._holders[blocks[depth - 1]]
            if isinstance(holders, int):
                found.setdefault(holders, depth)
            else:
                for replica in holders:
                    found.setdefault(replica, depth)
                    if len(found) >= most:
                        break
            if len(found) >= most:
                break
        return found

    def held(self, replica: int, blocks: Sequence[int]) -> int:
        """Return the number of the first blocks of a prompt that a replica holds."""
        known = self._replicas.get(replica)
        if known is None:
            return 0
        low, high = 0, len(blocks)
        while low < high:
            middle = (low + high + 1) // 2
            if blocks[middle - 1] in known.blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def is_full(self, replica: int) -> bool:
        """Return whether a replica evicts blocks for others."""
        known = self._replicas.get(replica)
        return known is not None and len(known.blocks) >= min(known.length, self._share()) - 1

    def note(self, replica: int, blocks: Sequence[int]) -> None:
        """Note that a prompt is sent to a replica."""
        known = self._replicas.get(replica)
        if known is None:
            known = self._replicas[replica] = _ReplicaBlocks(_USUAL)
        own = known.blocks
        known.noted = at = known.noted + len(blocks)
        for block in reversed(blocks):
            if block in own:
                own.move_to_end(block)
            else:
                self._add(block, replica)
            own[block] = at
        self._trim(replica, known)

    def age(self, replica: int, block: int) -> int:
        """Return the number of blocks that were noted for a replica since it got a block that it holds."""
        known = self._replicas[replica]
        return known.noted - known.blocks[block]

    def learn(self, replica: int, expected: int, actual: float, age: int) -> None:
        """Learn from an answer how many blocks of its prompt a replica held.

        Args:
            replica: the replica that served the call.
            expected: the number of first blocks that it was to hold.
            actual: the number that it held, by the cached tokens of its usage.
            age: of the last expected block when the call was sent. If the replica had evicted it, its cache
                has no room for more blocks than that.
        """
        known = self._replicas.get(replica)
        if known is None or known.reported:
            return
        if actual < expected - 1:
            known.length = max(min(known.length, max(known.length * _SHRINK, age)), _LEAST)
            self._trim(replica, known)
        elif actual > expected + 1 and len(known.blocks) >= known.length - 1:
            known.length *= _GROW

    def resize(self, replica: int, length: float) -> None:
        """Note the number of blocks that a replica's cache holds, as its server reports it."""
        known = self._replicas.setdefault(replica, _ReplicaBlocks(_USUAL))
        known.length, known.reported = max(length, _LEAST), True
        self._trim(replica, known)

    def drop(self, replica: int) -> None:
        """Forget a replica that is gone, or that has been started anew."""
        known = self._replicas.pop(replica, None)
        for block in () if known is None else known.blocks:
            self._remove(block, replica)

    def _share(self) -> float:
        """Return the most blocks of one replica by the limit of all."""
        return max(self._limit / max(len(self._replicas), 1), _LEAST)

    def _trim(self, replica: int, known: _ReplicaBlocks) -> None:
        most = min(known.length, self._share())
        while len(known.blocks) > most:
            block, _ = known.blocks.popitem(last=False)
            self._remove(block, replica)

    def _add(self, block: int, replica: int) -> None:
        holders = self._holders.get(block)
        if holders is None:
            self._holders[block] = replica
        elif isinstance(holders, int):
            self._holders[block] = {holders, replica}
        else:
            holders.add(replica)

    def _remove(self, block: int, replica: int) -> None:
        holders = self._holders[block]
        if isinstance(holders, int):
            del self._holders[block]
            return
        holders.discard(replica)
        if len(holders) == 1:
            self._holders[block] = holders.pop()
