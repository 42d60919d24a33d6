"""The pool of pages: no page has two writers, counts return to zero, and requests that run can always end."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specclient_local.model.page_pool import PagePool

from specclient.errors import EngineError

PAGES, SLOTS, FIRST = 10, 4, 4


class Requests:
    """Requests that take pages of a pool, store some of them, and share stored ones.

    Attributes:
        running: by slot, its age, its claim, and whether its first pages are shared.
    """

    def __init__(self):
        self.pool = PagePool(PAGES, SLOTS, first=FIRST)
        self.pool.evict = self.evict
        self.running, self.stored, self.ages = {}, [], 0

    def evict(self):
        page = next(page for page in self.stored if self.pool.is_idle(page))
        self.stored.remove(page)
        self.pool.unstore(page)

    def arrive(self, claim, prompt, shared):
        """Admit a request if it can be, as the engine does; it begins with stored pages of others."""
        free = [slot for slot in range(SLOTS) if slot not in self.running]
        if not free:
            return
        slot, prompt = free[0], min(prompt, claim)
        self.pool.claim(slot, self.ages, claim)
        self.ages += 1
        self.pool.share(slot, self.stored[: min(shared, prompt)])
        missing = prompt - len(self.pool.pages_of(slot))
        if not self.pool.safe(slot, missing):
            self.leave(slot)
            return
        self.pool.take(slot, missing)
        self.running[slot] = claim

    def grow(self, slot):
        if len(self.pool.pages_of(slot)) < self.running[slot] and self.pool.safe(slot, 1):
            self.pool.take(slot, 1)

    def store(self, slot):
        pages = self.pool.pages_of(slot)
        if pages and pages[0] not in self.stored:
            self.stored.append(pages[0])
            self.pool.store(pages[0])

    def leave(self, slot):
        self.pool.give_back(slot, 0)
        self.pool.unclaim(slot)
        self.running.pop(slot, None)

    def check(self):
        """Check counts and writers, and that all requests can end in the order of their arrival."""
        pool = self.pool
        counts = Counter(page for slot in range(SLOTS) for page in pool.pages_of(slot))
        for page in range(FIRST, FIRST + PAGES):
            assert pool.holders(page) == counts[page]
            assert counts[page] <= 1 or page in self.stored, "two slots can write a page"
            assert pool.is_idle(page) == (page in self.stored and not counts[page])
        assert pool.held == len(counts)
        assert pool.available == PAGES - len(counts)
        assert all(pool.safe(slot, 0) for slot in self.running)

    def finish(self):
        """Let all requests end, each after the most that it can need."""
        while self.running:
            slot = min(self.running, key=lambda own: self.pool._claims[own][0])
            missing = self.running[slot] - len(self.pool.pages_of(slot))
            assert self.pool.safe(slot, missing), "the oldest request waits for ever"
            self.pool.take(slot, missing)
            self.leave(slot)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(1, PAGES), st.integers(0, 6), st.integers(0, 3)),
        st.tuples(st.sampled_from(["grow", "store", "leave"]), st.integers(0, SLOTS - 1)),
        st.tuples(st.just("grow"), st.integers(0, SLOTS - 1)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_requests_never_share_a_page_that_one_writes_and_can_always_end(steps):
    requests = Requests()
    for name, *given_values in steps:
        if name == "arrive" or given_values[0] in requests.running:
            getattr(requests, name)(*given_values)
        requests.check()
    requests.finish()
    requests.check()
    assert requests.pool.held == 0
    for page in list(requests.stored):
        requests.pool.unstore(page)
    assert sorted(requests.pool._free) == list(range(FIRST, FIRST + PAGES))


def test_a_request_waits_if_an_older_one_could_not_end_otherwise():
    pool = PagePool(6, 2)
    pool.claim(0, 0, 6)
    pool.take(0, 2)
    pool.claim(1, 1, 4)
    assert not pool.safe(1, 1), "the older request may need the other four"
    pool.unclaim(0)
    pool.claim(0, 0, 3)
    assert pool.safe(1, 3)
    assert not pool.safe(1, 4), "one is left for the older request"


def test_pages_that_do_not_exist_are_refused():
    pool = PagePool(2, 1)
    with pytest.raises(ValueError, match="a request of 3 pages does not fit a cache of 2 pages"):
        pool.claim(0, 0, 3)
    with pytest.raises(EngineError, match="has 2 of its 2 pages left, and 3 are needed"):
        pool.take(0, 3)
