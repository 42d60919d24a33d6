"""Turn a fork into a fresh start, in the child, for whatever cannot be used there as it was.

A child has one thread. A lock that another thread held stays locked in it for ever, those of the import
system among them, and whoever waits for another thread waits for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class SupportsForkReset(Protocol):
    """What must not be used in a child as the parent left it."""

    def reset_after_fork(self) -> None:
        """Replace locks, and forget what only the parent's threads could bring to an end."""
        ...


#: Held while another thread than the one that forks may be importing something of ours; a fork waits for it.
import_lock = threading.RLock()

_live: weakref.WeakSet[SupportsForkReset] = weakref.WeakSet()


def register_fork_reset(thing: SupportsForkReset) -> None:
    """Call an object's ``reset_after_fork`` in every child forked while it lives; it is held weakly."""
    _live.add(thing)


def _in_child() -> None:
    import_lock.release()
    for thing in list(_live):
        thing.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=import_lock.acquire, after_in_parent=import_lock.release, after_in_child=_in_child
    )
