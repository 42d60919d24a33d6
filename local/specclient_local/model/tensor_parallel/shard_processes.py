"""The processes that run the other parts of a tensor-parallel model, as this process sees them."""

from __future__ import annotations

import pickle
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from specclient.errors import ConfigurationError, EngineError

_PROGRAM = "specclient_local.model.tensor_parallel.shard_worker"

_CLOSING_S = 5.0
"""Seconds that a process may take to end before it is killed."""

READY = b"ready\n"
"""The line by which a process tells that its part is loaded."""


class ShardProcesses:
    """Started processes; they end with this object, or with this process.

    Args:
        settings: what each of them loads; they are pickled.
    """

    def __init__(self, settings: Sequence[object]) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._end = weakref.finalize(self, _stop, self._processes)
        for own in settings:
            # A session of its own: an interrupt of the terminal must not end it before this process does.
            process = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of ours
                [sys.executable, "-m", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._processes.append(process)
            _write(process, pickle.dumps(own))

    def wait_until_loaded(self) -> None:
        """Wait until all processes have loaded their parts.

        Raises:
            ConfigurationError: one of them has failed; it says why.
        """
        for rank, process in enumerate(self._processes, 1):
            assert process.stdout is not None
            line = process.stdout.readline()
            if line != READY:
                reason = line.decode(errors="replace").strip() or "it ended without a reason"
                raise ConfigurationError(f"part {rank} of the tensor-parallel model was not loaded: {reason}")

    def send(self, name: str, *arguments: Any) -> None:
        """Let all processes do an operation; they begin at once.

        Raises:
            EngineError: one of them has ended.
        """
        message = pickle.dumps((name, arguments))
        for process in self._processes:
            _write(process, message)

    def stop(self) -> None:
        """End the processes."""
        self._end()


def _write(process: subprocess.Popen[bytes], message: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(message)
        process.stdin.flush()
    except OSError as error:
        raise EngineError(
            "a process of the tensor-parallel model has ended; load the model again."
        ) from error


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
    for process in processes:
        try:
            process.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
