"""Settings of a process that serves: garbage collection, the C library's allocator, switches of threads."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys

import pytest

from specclient.serving.process_settings import ALLOCATOR_VARIABLE, FreedMemory, small_objects_in_glibc

#: Frees blocks that lie between small ones that are kept, and prints the memory that the process still holds.
PROGRAM = """
import os, sys
from pathlib import Path
from specclient.serving.process_settings import limit_kept_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

if sys.argv[1] == "set":
    limit_kept_memory()
bytes(30 * 2**20)  # glibc now expects blocks of this size, and would keep them
before = resident()
blocks = [(bytearray(b"x" * (8 * 2**20)), [bytearray(2000) for _ in range(50)]) for _ in range(8)]
kept = [small for _, small in blocks]
del blocks
print((resident() - before) // 2**20)
"""


#: Allocates in many threads at once; glibc then prints its heaps on stderr.
THREADS = """
import ctypes, sys, threading
from specclient.serving.process_settings import limit_kept_memory

if sys.argv[1] == "set":
    limit_kept_memory()
libc, barrier = ctypes.CDLL(None), threading.Barrier(12)
libc.malloc.restype = ctypes.c_void_p

def allocate():
    barrier.wait()
    for _ in range(1000):
        libc.malloc(1000)  # without Python's lock
    barrier.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_stats()
"""

#: Parses a body of many arrays, and prints the number of collections of each generation meanwhile.
COLLECTIONS = """
import gc, sys
from specclient.openai_http.json_body import json_object
from specclient.serving.process_settings import tune_garbage_collection

if sys.argv[1] == "set":
    tune_garbage_collection()
body = b'{"model":[' + b"[]," * 60_000 + b"1]}"
began = [0, 0, 0]

def note(phase, info):
    began[info["generation"]] += phase == "start"

gc.callbacks.append(note)
json_object(body)
print(*began)
"""

#: Keeps a few of many small objects, and prints the memory that the process still holds.
SMALL_OBJECTS = """
import os
from pathlib import Path
from specclient.serving.process_settings import return_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = resident()
objects = [bytes(300) for _ in range(200_000)]
kept = objects[::3000]
del objects
return_freed_memory()
print((resident() - before) // 2**20)
"""

#: Releases the GIL many times beside a thread that runs Python code; prints how often this thread counted.
SWITCHES = """
import sys, threading, time
from specclient.serving.process_settings import shorten_switch_interval

if sys.argv[1] == "set":
    shorten_switch_interval()
counted, ended = 0, False

def count():
    global counted
    while not ended:
        counted += 1

thread = threading.Thread(target=count)
thread.start()
waits, ends_at = [], time.monotonic() + 30
while len(waits) < 100 and time.monotonic() < ends_at:
    before = counted
    time.sleep(0)
    if counted != before:  # otherwise the other thread had no processor, so there was nothing to wait for
        waits.append(counted - before)
ended = True
thread.join()
print(sorted(waits)[50])  # the others may have waited for a processor, too
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets glibc's allocator")


def _run(program: str, setting: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, setting]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)


def test_threads_share_one_heap() -> None:
    heaps = {name: _run(THREADS, name).stderr.count("Arena ") for name in ("default", "set")}
    assert heaps["set"] == 1 < heaps["default"], heaps


def test_freed_large_blocks_are_returned() -> None:
    kept_mb = {name: int(_run(PROGRAM, name).stdout) for name in ("default", "set")}
    assert kept_mb["set"] <= 4, kept_mb
    assert kept_mb["default"] >= kept_mb["set"] + 8, kept_mb


def test_freed_small_objects_are_returned_where_glibc_allocates_them() -> None:
    def kept_mb() -> int:
        done = subprocess.run(
            [sys.executable, "-c", SMALL_OBJECTS], capture_output=True, text=True, check=True, timeout=60
        )
        return int(done.stdout)

    own = kept_mb()
    with small_objects_in_glibc():
        in_glibc = kept_mb()
    assert in_glibc <= 4
    assert own >= in_glibc + 16


def test_an_allocator_that_the_user_has_chosen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_objects_in_glibc():
        assert os.environ[ALLOCATOR_VARIABLE] == "malloc"
    assert ALLOCATOR_VARIABLE not in os.environ
    monkeypatch.setenv(ALLOCATOR_VARIABLE, "pymalloc")
    with small_objects_in_glibc():
        assert os.environ[ALLOCATOR_VARIABLE] == "pymalloc"
    assert os.environ[ALLOCATOR_VARIABLE] == "pymalloc"


@pytest.mark.anyio
async def test_memory_is_returned_once_after_many_bytes_of_requests() -> None:
    returned = asyncio.Event()
    calls: list[None] = []
    loop = asyncio.get_running_loop()

    def note() -> None:
        calls.append(None)
        loop.call_soon_threadsafe(returned.set)

    freed = FreedMemory(note, delay_s=0.02)
    for _ in range(2):
        for _ in range(3):
            freed.note_request(FreedMemory.REQUESTS_BYTES // 3)
        await asyncio.sleep(0.05)
        assert not returned.is_set(), "too few bytes"
        freed.note_request(FreedMemory.REQUESTS_BYTES)
        await returned.wait()
        returned.clear()
        await asyncio.sleep(0.05)
    assert len(calls) == 2


@pytest.mark.anyio
async def test_memory_of_requests_that_come_just_before_a_return_is_returned_later() -> None:
    calls: list[float] = []
    loop = asyncio.get_running_loop()
    freed = FreedMemory(lambda: calls.append(loop.time()), delay_s=0.2)
    freed.note_request(FreedMemory.REQUESTS_BYTES)
    await asyncio.sleep(0.1)
    freed.note_request(FreedMemory.REQUESTS_BYTES)
    noted = loop.time()
    await asyncio.sleep(0.6)
    assert len(calls) == 2
    assert calls[1] >= noted + 0.2, "such a request may last the whole delay"


@pytest.mark.parametrize(("setting", "most"), [("set", (10, 0, 0)), ("unset", (1000, 1000, 1000))])
def test_parsing_a_large_body_starts_few_collections(setting: str, most: tuple[int, int, int]) -> None:
    run = subprocess.run(
        [sys.executable, "-c", COLLECTIONS, setting], capture_output=True, text=True, check=True, timeout=60
    )
    began = tuple(map(int, run.stdout.split()))
    assert all(count <= limit for count, limit in zip(began, most, strict=True)), began
    if setting == "unset":
        assert began[0] > 50, "the body no longer starts collections, so this test shows nothing"


def test_a_thread_waits_less_for_others_that_run_python_code() -> None:
    counted = {name: int(_run(SWITCHES, name).stdout) for name in ("default", "set")}
    assert counted["set"] * 2 < counted["default"], counted
