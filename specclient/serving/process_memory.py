"""Memory settings of a process that serves: garbage collection, and the C library's allocator."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

__all__ = ["HEAPS", "LARGE_BLOCK_BYTES", "freeze_garbage", "limit_kept_memory"]

#: Number of heaps of glibc. With two, memory grew by half as much again over 10,000 hostile requests.
HEAPS = 1
#: Size in bytes from which a freed block is returned to the operating system at once.
LARGE_BLOCK_BYTES = 4 * 2**20
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # of malloc.h


def freeze_garbage() -> None:
    """Exclude all existing objects from garbage collection.

    Modules and the application are several hundred thousand objects that live as long as the process. A full
    collection takes 0.1 s, during which no request is served; without this, collections take a tenth of the
    server's time. Use it only in a process that does nothing else.
    """
    gc.freeze()


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
