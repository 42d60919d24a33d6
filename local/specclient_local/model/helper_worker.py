"""The program of a helper process: serves messages, with limits of time and memory.

It imports nothing of the package, so that the process starts fast and stays small. Its argument is a JSON
object: ``program`` is the path of a module with the functions ``prepare(settings)`` and ``answer(message)``,
``path`` holds folders of modules, ``memory_bytes`` limits the memory once the program is prepared, and
``stack_bytes`` the stack. A message is a JSON object after its length of four bytes in network order. Its
field ``seconds``, if any, limits the processor time of the answer, which is sent in the same form.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

HEADER = struct.Struct("!I")
"""The length of a message."""


def read_exactly(source: int, count: int) -> bytes | None:
    """Read ``count`` bytes; return None if the input ends before."""
    parts = bytearray()
    while len(parts) < count:
        part = os.read(source, count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def write_all(target: int, data: bytes) -> None:
    """Write all of the data."""
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def _limit_memory(count: int) -> None:
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    count = count if hard == resource.RLIM_INFINITY else min(count, hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (count, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (OSError, ValueError):
        return  # macOS refuses it; the limit of time remains


def _limit_time(seconds: float) -> None:
    """End the process after so many seconds of processor time in all of its threads; 0 for no limit."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _loaded(path: str) -> Any:
    spec = spec_from_file_location("program", path)
    assert spec is not None
    assert spec.loader is not None
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def _answer_within(program: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a message, computed in a thread, whose stack is limited."""
    found: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: found.append(program.answer(message)))
    _limit_time(message["seconds"])
    thread.start()
    thread.join()
    _limit_time(0)
    return found[0]


def main() -> None:
    """Serve the parent until it closes the standard input."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C in a terminal reaches the whole process group
    sys.path += settings["path"]
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is not an answer
    program = _loaded(settings["program"])
    program.prepare(settings)
    _limit_memory(settings["memory_bytes"])
    threading.stack_size(settings["stack_bytes"])
    while (head := read_exactly(0, HEADER.size)) is not None:
        body = read_exactly(0, HEADER.unpack(head)[0])
        if body is None:
            return
        message = json.loads(body)
        answer = _answer_within(program, message) if "seconds" in message else program.answer(message)
        written = json.dumps(answer).encode()
        write_all(answers, HEADER.pack(len(written)) + written)


if __name__ == "__main__":
    main()
