"""Pages of a KV cache: which are free, who holds each, and whether a request can take more.

The pool is bookkeeping on the host; the numbers are kept by :mod:`specclient_local.model.paged_cache`. A page
is held by the slots whose positions it has, and may be stored as part of a prefix that later prompts reuse. A
stored page that no slot holds is available: it is evicted when another one is needed.

Requests that run may need more pages than there are, since each states only the most that it can need. The
pool therefore grants pages by the banker's algorithm (Dijkstra, EWD 623): only if afterwards all requests can
still end one after the other, in the order of their arrival, each with what is free and what earlier ones
have given back. A request that is not granted a page waits. The oldest one never does, so all requests end,
and no request has to be computed again, which could change its last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specclient.errors import EngineError


class PagePool:
    """Assigns pages to slots.

    Args:
        pages: number of pages.
        slots: number of slots.
        first: number of the first page.

    Attributes:
        pages: number of pages.
        evict: removes a stored prefix of which no slot holds a page, the least recently used one first, by
            :meth:`unstore`.
        soiled: pages whose values may not be finite; they are zeroed when they are taken.
    """

    def __init__(self, pages: int, slots: int, first: int = 0) -> None:
        self.pages = pages
        self.evict: Callable[[], None] | None = None
        self.soiled: set[int] = set()
        self._first = first
        self._free = list(range(first + pages - 1, first - 1, -1))
        self._holders = [0] * pages
        self._stored = [False] * pages
        self._idle = 0
        self._held: list[list[int]] = [[] for _ in range(slots)]
        self._claims: dict[int, tuple[int, int]] = {}

    @property
    def available(self) -> int:
        """Number of pages that can be taken: free ones, and stored ones that no slot holds."""
        return len(self._free) + self._idle

    @property
    def free(self) -> int:
        """Number of pages that neither slots hold nor prefixes need."""
        return len(self._free)

    @property
    def held(self) -> int:
        """Number of pages that slots hold, shared ones counted once."""
        return self.pages - self.available

    def pages_of(self, slot: int) -> list[int]:
        """Return the pages that a slot holds, in the order of its positions."""
        return self._held[slot]

    def holders(self, page: int) -> int:
        """Return the number of slots that hold a page."""
        return self._holders[page - self._first]

    def is_idle(self, page: int) -> bool:
        """Return whether a page is stored, but no slot holds it."""
        return self._stored[page - self._first] and not self._holders[page - self._first]

    def claim(self, slot: int, age: int, most: int) -> None:
        """Record the most pages that a slot's request can need.

        Args:
            slot: the slot, which holds no page.
            age: order of arrival of the request.
            most: number of pages.

        Raises:
            ValueError: the pool has fewer pages.
        """
        if most > self.pages:
            raise ValueError(f"a request of {most} pages does not fit a cache of {self.pages} pages")
        self._claims[slot] = age, most

    def unclaim(self, slot: int) -> None:
        """Forget the claim of a slot."""
        self._claims.pop(slot, None)

    def safe(self, slot: int, count: int) -> bool:
        """Return whether all requests can still end after a slot has taken ``count`` more pages.

        A page that several slots share is available again after the last of them has ended.
        """
        left = self.available - count
        if left < 0:
            return False
        needs = {each: self._need(each) for each in self._claims}
        needs[slot] = max(0, needs.get(slot, 0) - count)
        if sum(needs.values()) <= left:
            return True
        holders = self._holders.copy()
        for each in sorted(self._claims, key=lambda own: self._claims[own][0]):
            if needs[each] > left:
                return False
            for page in self._held[each]:
                holders[page - self._first] -= 1
                left += not holders[page - self._first]
            left += count if each == slot else 0
        return True

    def take(self, slot: int, count: int) -> list[int]:
        """Give a slot ``count`` more pages, at the end of those that it holds; return them.

        Raises:
            EngineError: fewer are available.
        """
        if count > self.available:
            raise EngineError(
                f"the KV cache has {self.available} of its {self.pages} pages left, and {count} are needed; "
                "load with a larger cache_tokens, or fewer slots."
            )
        while len(self._free) < count:
            before = len(self._free)
            if self.evict is not None:
                self.evict()
            if len(self._free) == before:
                raise AssertionError("no stored page was evicted")
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._holders[page - self._first] = 1
        self._held[slot] += taken
        return taken

    def share(self, slot: int, pages: Iterable[int]) -> None:
        """Let a slot hold stored pages, too, at the end of those that it holds."""
        for page in pages:
            self._hold(page)
            self._held[slot].append(page)

    def exchange(self, slot: int, index: int, page: int) -> None:
        """Replace a slot's page by a stored page with the same contents."""
        own = self._held[slot][index]
        if own != page:
            self._hold(page)
            self._held[slot][index] = page
            self._release(own)

    def give_back(self, slot: int, kept: int) -> None:
        """Let a slot hold only its first ``kept`` pages."""
        pages = self._held[slot]
        while len(pages) > kept:
            self._release(pages.pop())

    def store(self, page: int) -> None:
        """Keep a page that a slot holds after the slot has given it back."""
        assert self._holders[page - self._first]
        self._stored[page - self._first] = True

    def unstore(self, page: int) -> None:
        """Undo :meth:`store`; a page that no slot holds is free."""
        if self._stored[page - self._first]:
            self._stored[page - self._first] = False
            if not self._holders[page - self._first]:
                self._idle -= 1
                self._free.append(page)

    def unstore_all(self) -> None:
        """Undo all calls of :meth:`store`."""
        for page, stored in enumerate(self._stored, self._first):
            if stored:
                self.unstore(page)

    def _need(self, slot: int) -> int:
        """Return the most pages that a slot's request can still need."""
        return max(0, self._claims[slot][1] - len(self._held[slot]))

    def _hold(self, page: int) -> None:
        assert self._stored[page - self._first]
        self._idle -= not self._holders[page - self._first]
        self._holders[page - self._first] += 1

    def _release(self, page: int) -> None:
        self._holders[page - self._first] -= 1
        if self._holders[page - self._first]:
            return
        if self._stored[page - self._first]:
            self._idle += 1
        else:
            self._free.append(page)
