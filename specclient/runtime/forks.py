"""Resets objects in forked child processes.

A child has one thread. A lock that another thread held during the fork, such as an import lock, is never
released in the child, and a wait for another thread never ends.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class SupportsForkReset(Protocol):
    """An object with state that a forked child must not use."""

    def reset_after_fork(self) -> None:
        """Replace locks, and forget work that only the parent's threads can finish."""
        ...


#: Held during imports at run time. A fork waits for it, so that no import lock is held in the child.
import_lock = threading.RLock()

#: The registered objects by ``id``, because equal objects are reset each for itself.
_live: weakref.WeakValueDictionary[int, SupportsForkReset] = weakref.WeakValueDictionary()


def register_fork_reset(thing: SupportsForkReset) -> None:
    """Call an object's ``reset_after_fork`` in every child forked while it lives; it is held weakly."""
    _live[id(thing)] = thing


def _in_child() -> None:
    import_lock.release()
    for thing in list(_live.values()):
        thing.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=import_lock.acquire, after_in_parent=import_lock.release, after_in_child=_in_child
    )
