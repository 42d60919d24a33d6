"""Memory settings of a process that serves: garbage collection, and the C library's allocator."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

__all__ = ["LARGE_BLOCK_BYTES", "freeze_garbage", "return_large_blocks"]

#: Size in bytes from which a freed block is returned to the operating system at once.
LARGE_BLOCK_BYTES = 4 * 2**20
_M_MMAP_THRESHOLD = -3  # of malloc.h


def freeze_garbage() -> None:
    """Exclude all existing objects from garbage collection.

    Modules and the application are several hundred thousand objects that live as long as the process. A full
    collection takes 0.1 s, during which no request is served; without this, collections take a tenth of the
    server's time. Use it only in a process that does nothing else.
    """
    gc.freeze()


def return_large_blocks() -> None:
    """Let glibc return each freed block of :data:`LARGE_BLOCK_BYTES` or more to the operating system.

    glibc allocates large blocks outside its heaps. By default, it raises the size of a large block to that of
    the largest one freed so far, up to 32 MiB, so that each heap keeps the memory of the largest
    request bodies (mallopt(3), M_MMAP_THRESHOLD). Other C libraries are left as they are.
    """
    with suppress(OSError, AttributeError, TypeError):  # no mallopt: another C library, or Windows
        ctypes.CDLL(None).mallopt(ctypes.c_int(_M_MMAP_THRESHOLD), ctypes.c_int(LARGE_BLOCK_BYTES))
