"""Settings of the C library's allocator in a process that serves."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

#: Frees blocks that lie between small ones that are kept, and prints the memory that the process still holds.
PROGRAM = """
import os, sys
from pathlib import Path
from specclient.serving.process_memory import return_large_blocks

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

if sys.argv[1] == "set":
    return_large_blocks()
bytes(30 * 2**20)  # glibc now expects blocks of this size, and would keep them
before = resident()
blocks = [(bytearray(b"x" * (8 * 2**20)), [bytearray(2000) for _ in range(50)]) for _ in range(8)]
kept = [small for _, small in blocks]
del blocks
print((resident() - before) // 2**20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets glibc's allocator")
def test_freed_large_blocks_are_returned() -> None:
    kept_mb = {}
    for setting in ("default", "set"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, setting], capture_output=True, text=True, check=True, timeout=60
        )
        kept_mb[setting] = int(done.stdout)
    assert kept_mb["set"] <= 4, kept_mb
    assert kept_mb["default"] >= kept_mb["set"] + 8, kept_mb
