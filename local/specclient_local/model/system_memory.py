"""Memory taken from the system directly, and freed memory returned to it."""

from __future__ import annotations

import ctypes
import mmap
import sys
from contextlib import suppress

import torch
from torch import Tensor

__all__ = ["mapped_zeros", "release_free_memory", "release_pages", "untouched_zeros"]

_LEAST_MAPPED = 1 << 20
"""Bytes from which on memory is taken from the system directly."""


def mapped_zeros(size: int, advice: int | None = None) -> Tensor | None:
    """Return ``[size]`` zero bytes whose pages take memory once they are written.

    Args:
        size: number of bytes.
        advice: for ``madvise``.

    Returns:
        The bytes; None if the system has no such memory, or not enough of it.
    """
    flags = getattr(mmap, "MAP_PRIVATE", None)
    if flags is None:
        return None
    try:
        memory = mmap.mmap(-1, size, flags=flags | mmap.MAP_ANONYMOUS)
    except OSError:
        return None
    if advice is not None:
        with suppress(OSError):  # a kernel that does not know the advice: its pages are correct, too
            memory.madvise(advice)
    return torch.frombuffer(memory, dtype=torch.uint8)


def untouched_zeros(size: int) -> Tensor:
    """Return ``[size]`` zero bytes; large memory whose pages take memory once they are written.

    Raises:
        RuntimeError: there is not enough memory.
    """
    mapped = mapped_zeros(size) if size >= _LEAST_MAPPED else None
    return torch.zeros(size, dtype=torch.uint8) if mapped is None else mapped


def release_pages(memory: Tensor) -> None:
    """Zero :func:`untouched_zeros`, and return its pages to the system where it can be asked to.

    Elsewhere, and if the memory is not mapped, zeros are written.
    """
    size = memory.numel() * memory.itemsize
    if sys.platform.startswith("linux") and size >= _LEAST_MAPPED:
        first, dropped = ctypes.c_void_p(memory.data_ptr()), mmap.MADV_DONTNEED
        if ctypes.CDLL(None).madvise(first, ctypes.c_size_t(size), dropped) == 0:
            return
    memory.zero_()


def release_free_memory() -> None:
    """Return freed memory to the system where the C library can be asked to (glibc).

    glibc keeps freed blocks of up to 32 MiB for later allocations. After a model has been loaded, these are
    the tensors that were packed.
    """
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have no such function
    if trim is not None:
        trim(0)
