"""A helper process for work that may crash, never end, or take all memory: grammars and chat templates."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specclient.errors import ConfigurationError
from specclient.runtime.json_slices import encode_in_slices
from specclient_local.model import helper_worker
from specclient_local.model.helper_worker import HEADER

__all__ = ["HelperProcess", "signal_name"]

_STACK_BYTES = 2**20
"""Maximum stack of the working thread: an eighth of the usual stack of a thread."""

_CLOSING_S = 1.0
"""Seconds that the process may take to end before it is killed."""

_ENCODER = json.JSONEncoder()


class HelperProcess:
    """A process that answers one message at a time. Not thread-safe: callers hold a lock.

    Args:
        program: path of the program; see :mod:`specclient_local.model.helper_worker`.
        libraries: the packages that the program imports.
        memory_bytes: maximum memory of the process.
        purpose: its purpose in error messages, which begin "the process that <purpose>".

    Attributes:
        overran: whether the last exchange ended the process because it took too long.
    """

    def __init__(self, program: str, libraries: Sequence[str], memory_bytes: int, purpose: str) -> None:
        self._program, self._libraries = program, libraries
        self._memory_bytes, self._purpose = memory_bytes, purpose
        self._process: subprocess.Popen[bytes] | None = None
        self.overran = False

    @property
    def pid(self) -> int | None:
        """The process id; None while there is no process."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def start(self) -> bool:
        """Start the process unless it is running; return whether it was started.

        Raises:
            ConfigurationError: the process cannot be started.
        """
        if self._process is not None and self._process.poll() is not None:
            self.stop()
        if self._process is None:
            self._process = self._started()
            return True
        return False

    def exchange(self, message: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Send a message and return the answer; None if the process has ended.

        Args:
            message: a JSON object.
            seconds: maximum elapsed time; then the process is killed.
        """
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        self.overran = False
        timer = threading.Timer(seconds, self._overrun, args=(process,))
        timer.daemon = True
        timer.start()
        try:
            body = encode_in_slices(_ENCODER, message).encode()
            helper_worker.write_all(process.stdin.fileno(), HEADER.pack(len(body)) + body)
            head = helper_worker.read_exactly(process.stdout.fileno(), HEADER.size)
            if head is None:
                return None
            answer = helper_worker.read_exactly(process.stdout.fileno(), HEADER.unpack(head)[0])
            return None if answer is None else dict(json.loads(answer))
        except OSError:  # the process has ended
            return None
        except BaseException:
            process.kill()  # otherwise its answer would be read as the answer to another message
            raise
        finally:
            timer.cancel()

    def stop(self) -> int | None:
        """End the process and return its exit status; None if there is none."""
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            return process.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def kill(self) -> None:
        """End the process at once, even while it works."""
        process = self._process
        if process is not None:
            process.kill()

    def abandon(self) -> None:
        """Leave the process to the parent, after a fork."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()  # unbuffered, so that nothing is written
            process.returncode = 0  # it is not a child of this process, so it is not waited for

    def _overrun(self, process: subprocess.Popen[bytes]) -> None:
        self.overran = True
        process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        found = [find_spec(name) for name in self._libraries]
        folders = [folder for spec in found if spec for folder in spec.submodule_search_locations or ()]
        settings = {
            "program": self._program,
            "path": list(dict.fromkeys(str(Path(folder).parent) for folder in folders)),
            "memory_bytes": self._memory_bytes,
            "stack_bytes": _stack_bytes(),
        }
        try:
            return subprocess.Popen(  # noqa: S603 - this interpreter, and a file of this package
                [sys.executable, "-I", helper_worker.__file__, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},  # arenas count as memory
            )
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the process that {self._purpose} cannot be started ({sys.executable}: {error})."
            ) from error


def signal_name(code: int | None) -> str:
    """Return the name of the signal that ended a process, or its exit status."""
    return signal.Signals(-code).name if code is not None and -code in set(signal.Signals) else str(code)


def _stack_bytes() -> int:
    """Return the stack size of the working thread: at most half of the stack of a thread of this process."""
    own = threading.stack_size()
    if own == 0:
        try:
            import resource  # noqa: PLC0415 - not on Windows
        except ImportError:
            own = 2**20
        else:
            soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
            own = 2 * 2**20 if soft == resource.RLIM_INFINITY else soft
    return max(min(_STACK_BYTES, own // 2 // 4096 * 4096), 2**16)
