"""Account marks, which separate accounts of a provider: unique, thread-safe and limited in number."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from specclient.client.shared_state import SharedState


@pytest.fixture
def shared() -> SharedState:
    return SharedState({"ledger": "off"})


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Make the interpreter switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_the_first_account_has_an_empty_mark_and_each_keeps_its_own(shared: SharedState) -> None:
    assert [shared.account_mark(identity) for identity in (7, 8, 7, 9, 8)] == ["", " #1", "", " #2", " #1"]


def test_marks_are_unique_across_threads(shared: SharedState, frequent_switches: None) -> None:
    marks: list[dict[int, str]] = [{} for _ in range(8)]

    def ask(mine: dict[int, str]) -> None:
        for identity in range(2000):
            mine[identity] = shared.account_mark(identity)

    threads = [threading.Thread(target=ask, args=[mine]) for mine in marks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == marks[0] for mine in marks)
    assert len(set(marks[0].values())) == 2000


def test_an_account_in_use_keeps_its_mark_and_unused_accounts_are_removed(shared: SharedState) -> None:
    for identity in range(1, 10_000):
        assert shared.account_mark(0) == ""
        shared.account_mark(identity)
    assert shared.account_mark(0) == ""
    assert len(shared._accounts) <= 4096
    assert shared.account_mark(1) == " #10000"  # a new mark, never used before
