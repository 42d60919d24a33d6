"""The guard: the parent of a server. It writes the server's log, and no process of the server outlives it.

It is a fork of the supervisor, whose death it notices at once by a pipe. It ends the server first with
SIGTERM, then all processes below it with SIGKILL. If the guard itself is killed, the kernel kills the server
(Linux), and the supervisor all processes that the server had started.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from specclient_local.managed.process_tree import (
    adopt_orphans,
    end_with_parent,
    kill_below,
    reap_all,
)
from specclient_local.managed.server_log import ServerLog

GRACE_S = 10.0
"""Seconds that a server may take to end after SIGTERM."""
ORPHAN_GRACE_S = 2.0
"""The same if the supervisor has been killed."""
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class GuardTask:
    """The server that a guard runs.

    Attributes:
        command, env: of the server.
        folder: the server's working folder.
        log: the file of its output.
        secrets: texts that are not written to the log.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    log: Path
    secrets: Sequence[str]


class Guard:
    """A supervisor's connection to its guard.

    Args:
        task: what the guard runs.

    Attributes:
        pid: the guard's process id.
        server: the server's process id; 0 until it has been started.
        ended: why there is no server any more, as text; None while it runs.
    """

    def __init__(self, task: GuardTask) -> None:
        commands, self._commands = os.pipe()
        self._reports, reports = os.pipe()
        os.set_blocking(self._reports, False)
        self.server, self._buffer, self._asked = 0, b"", False
        self.ended: str | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._commands)
            os.close(self._reports)
            _run(task, commands, reports)
        os.close(commands)
        os.close(reports)

    def look(self) -> None:
        """Read the guard's reports."""
        try:
            while data := os.read(self._reports, 4096):
                self._buffer += data
        except BlockingIOError:
            pass
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            report = json.loads(line)
            self.server = report.get("pid", self.server)
            self.ended = report.get("ended", self.ended)

    def stop(self) -> None:
        """Let the guard end the server gently. :meth:`look` tells when that is done."""
        if not self._asked:
            self._asked = True
            with suppress(OSError):  # the guard has ended
                os.write(self._commands, b"s")

    def note_killed(self) -> None:
        """Note that the guard has ended without a report."""
        if self.ended is None:
            self.ended = "its guard was killed, and the server with it"


def _run(task: GuardTask, commands: int, reports: int) -> NoReturn:
    """Run the server in this process, the fork, and end it."""
    code = 1
    try:
        os.setsid()
        adopt_orphans()
        code = _guard(task, commands, reports)
    finally:
        os._exit(code)


def _guard(task: GuardTask, commands: int, reports: int) -> int:
    def report(**values: object) -> None:
        with suppress(OSError):  # the supervisor has been killed
            os.write(reports, json.dumps(values).encode() + b"\n")

    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _: stopping.append(received))
    guard = os.getpid()
    output, output_write = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            list(task.command),
            env=dict(task.env),
            cwd=task.folder,
            stdin=subprocess.DEVNULL,
            stdout=output_write,
            stderr=output_write,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(guard),  # noqa: PLW1509 - this process has one thread
        )
    except (OSError, ValueError) as error:
        report(ended=f"{task.command[0]} cannot be run: {getattr(error, 'strerror', None) or error}")
        return 1
    os.close(output_write)
    report(pid=process.pid)
    running = _GuardedServer(process.pid, output, ServerLog(task.log, task.secrets))
    running.wait(commands, stopping)
    asked = running.status is None
    if asked:
        running.end_gently()
    whole = kill_below(guard, process.pid)
    running.close()
    process.returncode = 0  # its status has been taken
    reason = "stopped" if asked else _described(running.status)
    report(ended=reason if whole else f"{reason}; some of its processes do not end")
    return 0


class _GuardedServer:
    """The server as its guard sees it: its process, its output, its status.

    Args:
        pid: its process id.
        output: the pipe that it writes to.
        log: the log that its output is written to.

    Attributes:
        status: its exit status as of ``os.wait``; None while it runs.
        orphaned: whether the supervisor has been killed.
    """

    def __init__(self, pid: int, output: int, log: ServerLog) -> None:
        self._pid, self._output, self._log = pid, output, log
        self.status: int | None = None
        self.orphaned = False
        self._wake, wake = os.pipe()  # readable after a signal, so that the end of a process is noted at once
        for pipe in (self._wake, wake):
            os.set_blocking(pipe, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def wait(self, commands: int, stopping: Sequence[int]) -> None:
        """Write the log until the server ends or is to be ended.

        Args:
            commands: the pipe of the supervisor; closed when it is killed.
            stopping: the signals that this process has received.
        """
        inputs = [commands, self._output, self._wake]
        while self._runs() and not stopping:
            ready, _, _ = select.select(inputs, [], [], _LOOK_S)
            if self._output in ready and not self._read():
                inputs.remove(self._output)
            if self._wake in ready:
                os.read(self._wake, 4096)
            if commands in ready and self._runs():
                self.orphaned = not os.read(commands, 1)
                return

    def end_gently(self) -> None:
        """Send SIGTERM to the server, and wait for its end for some seconds."""
        end = time.monotonic() + (ORPHAN_GRACE_S if self.orphaned else GRACE_S)
        if self._runs():
            os.kill(self._pid, signal.SIGTERM)
        while self._runs() and time.monotonic() < end:
            self._pump(0.05)

    def close(self) -> None:
        """Write the rest of the output, and close the log."""
        self._pump(0.2)
        self._log.close()

    def _runs(self) -> bool:
        self.status = reap_all().get(self._pid, self.status)
        return self.status is None

    def _read(self) -> bool:
        """Write available output to the log; return False at its end."""
        data = os.read(self._output, 65536)
        self._log.write(data)
        return bool(data)

    def _pump(self, seconds: float) -> None:
        """Write output to the log for some seconds, or until its end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._output], [], [], left)[0]:
                return
            if not self._read():
                time.sleep(min(left, 0.05))
                return


def _described(status: int | None) -> str:
    """Return how a server ended, in words."""
    if status is None:
        return "it ended"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        why = ", as the kernel does when memory runs out" if number == signal.SIGKILL else ""
        return f"it was ended by {signal.Signals(number).name}{why}"
    return f"it ended with status {os.waitstatus_to_exitcode(status)}"
