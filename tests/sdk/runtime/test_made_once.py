"""Properties that are made once, by many threads and across forks."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from specclient.runtime.made_once import made_once


class Owner:
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.made = 0

    @made_once
    def value(self) -> object:
        """A value."""
        self.begun.set()
        time.sleep(0.05)
        self.made += 1
        if self.made == 1 and not isinstance(self, Whole):
            raise RuntimeError("the first one fails")
        return object()


class Whole(Owner):
    """An owner whose first value succeeds."""


def test_threads_that_ask_at_once_get_one_value() -> None:
    owner = Whole()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: owner.value, range(4)))
    assert (len(set(map(id, found))), owner.made) == (1, 1)


def test_a_failure_is_raised_and_the_next_caller_tries_again() -> None:
    owner = Owner()
    with pytest.raises(RuntimeError, match="the first one fails"):
        _ = owner.value
    assert owner.value is owner.value
    del owner.value
    _ = owner.value
    assert owner.made == 3
    assert Owner.value.__doc__ == "A value."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_forked_while_a_thread_makes_a_value_can_make_others() -> None:
    owner, other = Whole(), Whole()
    maker = threading.Thread(target=lambda: owner.value)
    maker.start()
    owner.begun.wait()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not that of a plugin for timeouts
        signal.alarm(10)  # ends a child that waits for the thread, which only the parent has
        _ = other.value
        os._exit(0)
    maker.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
