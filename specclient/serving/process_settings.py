"""Settings of a process that serves: garbage collection, the C library's allocator, switches of threads."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = [
    "ALLOCATOR_VARIABLE",
    "COLLECTION_THRESHOLDS",
    "HEAPS",
    "LARGE_BLOCK_BYTES",
    "SWITCH_INTERVAL_S",
    "FreedMemory",
    "limit_kept_memory",
    "return_freed_memory",
    "shorten_switch_interval",
    "small_objects_in_glibc",
    "tune_garbage_collection",
]

#: The environment variable by which a Python process chooses its allocator when it starts.
ALLOCATOR_VARIABLE = "PYTHONMALLOC"

#: Number of new containers before the youngest generation is collected, and numbers of collections of a
#: generation before the next one is collected, too (gc.set_threshold). A body may have 400,000 values, and
#: their memory is returned without a collection.
COLLECTION_THRESHOLDS = (10_000, 20, 20)

#: Number of heaps of glibc. With two, memory grew by half as much again over 10,000 hostile requests.
HEAPS = 1
#: Size in bytes from which a freed block is returned to the operating system at once.
LARGE_BLOCK_BYTES = 4 * 2**20
#: Seconds after which a thread that runs Python code lets another one run (sys.setswitchinterval).
SWITCH_INTERVAL_S = 0.0005

_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # of malloc.h


def tune_garbage_collection() -> None:
    """Exclude all existing objects from garbage collection, and collect less often.

    Modules and the application are several hundred thousand objects that live as long as the process. A full
    collection takes 0.1 s, during which no request is served; without this, collections take a tenth of the
    server's time. With Python's own thresholds, 85 collections, some of them full, start while a body of
    180 kB with 60,000 empty arrays is parsed, which takes 0.16 s instead of 0.01 s, and no other thread runs.
    Use it only in a process that does nothing else.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)


def shorten_switch_interval() -> None:
    """Let threads that wait for Python's lock (the GIL) get it ten times sooner than by default.

    Each operation of torch and each call of a compiled pass releases the lock. If other threads run Python
    code meanwhile, such as the checks of a large body, the engine waits a switch interval each time: with
    three of them, parts of a stream came up to 480 ms apart with Python's 5 ms, and 50 ms apart with this
    value, and the streams took a third of the time. Use it only in a process that does nothing else.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def limit_kept_memory() -> None:
    """Let glibc keep little of the memory that requests have used (mallopt(3)). Call it before threads start.

    By default each thread gets a heap of its own, up to eight for each processor. Such a heap becomes
    fragmented and keeps most of what it ever held, and Python's lock lets one thread allocate at a time
    anyway. Large blocks are allocated outside the heaps. By default glibc raises their size to that of
    the largest one freed so far, up to 32 MiB, so that the heaps keep the bodies of the largest requests.
    Other C libraries are left as they are.
    """
    with suppress(OSError, AttributeError, TypeError):  # no mallopt: another C library, or Windows
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(ctypes.c_int(_M_ARENA_MAX), ctypes.c_int(HEAPS))
        mallopt(ctypes.c_int(_M_MMAP_THRESHOLD), ctypes.c_int(LARGE_BLOCK_BYTES))


@contextmanager
def small_objects_in_glibc() -> Iterator[None]:
    """Return a context in which new Python processes allocate small objects by glibc's malloc, too.

    Python's own allocator returns memory in arenas of a mebibyte, and only when an arena is empty. A large
    request fills new arenas, and a single small object that outlives it keeps each of them: memory grew by
    41 MB over 28,000 hostile requests, without bound. glibc returns single pages; memory then stays the same
    after the first 8,000. A request takes about 3 % more processor time. A value that the user has set, and
    other C libraries, are left as they are.
    """
    if ALLOCATOR_VARIABLE in os.environ or platform.libc_ver()[0] != "glibc":
        yield
        return
    os.environ[ALLOCATOR_VARIABLE] = "malloc"
    try:
        yield
    finally:
        del os.environ[ALLOCATOR_VARIABLE]


def return_freed_memory() -> None:
    """Return the unused pages of glibc's heaps to the operating system (malloc_trim(3)).

    It takes milliseconds for each hundred megabytes, in which other threads do not allocate.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


class FreedMemory:
    """Returns the memory of requests to the operating system, some time after they have brought many bytes.

    A body takes up to a hundred times its size while it is parsed and checked, so many bodies of 100 kB leave
    as many unused pages as a few large ones.

    Args:
        returned: returns the memory; called in a thread.
        delay_s: seconds in which the last of these requests ends and others may come.
    """

    #: Bytes of requests, together, after which memory is returned.
    REQUESTS_BYTES = 2**18

    def __init__(self, returned: Callable[[], None] = return_freed_memory, *, delay_s: float = 10.0) -> None:
        self._returned, self._delay_s = returned, delay_s
        self._bytes = 0
        self._waiting: asyncio.AbstractEventLoop | None = None

    def note_request(self, size: int) -> None:
        """Note a request of ``size`` bytes, in the event loop that serves it."""
        self._bytes += size
        loop = asyncio.get_running_loop()
        if self._bytes >= self.REQUESTS_BYTES and self._waiting is not loop:
            self._waiting, self._bytes = loop, 0
            loop.call_later(self._delay_s, self._return)

    def _return(self) -> None:
        """Return the memory, and do so once more if the requests since then may still hold some."""
        assert self._waiting is not None
        self._waiting.run_in_executor(None, self._returned)
        self._waiting = None
        self.note_request(0)
