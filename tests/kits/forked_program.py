"""``specclient`` in processes that are forks of an interpreter which has imported its modules already.

Starting Python and importing the modules takes half a second of processor time, with torch three seconds,
and is the same for every command. :class:`ForkedProgram` is :class:`subprocess.Popen` without it: the process
has the arguments, environment, folder, files and signals that it was given, is a child of the tests, and ends
like any other. What is about starting itself is tested with ``subprocess``.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = "specclient_cli.main"
COMMAND = (sys.executable, "-m", PROGRAM)
_CLIENT = (
    "specclient_cli.batch", "specclient_cli.chat", "specclient_cli.complete", "specclient_cli.cost.group",
    "specclient_cli.cost.report", "specclient_cli.demo", "specclient_cli.local.group",
    "specclient_cli.models.group", "specclient_cli.route.group", "specclient_cli.serve.group",
    "specclient.serving", "aiohttp", "readline", "rich.live", "rich.progress",
)  # fmt: skip
_ENGINE = (*_CLIENT, "torch", "specclient_local.engine.engine", "specclient_local.loading.model_loader")
_INTERPRETER = ("PYTHON", "LC_", "LANG", "OMP_", "MKL_", "LD_")
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST = 2**17


class ForkedProgram(subprocess.Popen):
    """Start :data:`COMMAND` in a fork; any other command, and on other systems, in a new process.

    A command that sets the interpreter up differently, by options, variables or modules in its folder, is
    started in a new process, too.
    """

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
                       cwd: Any, env: Mapping[str, str] | None, *others: Any) -> None:  # fmt: skip
        environment = dict(os.environ if env is None else env)
        *_, new_session, _group = others
        stdin, stdin_end, stdout_end, stdout, stderr_end, stderr = others[3:9]
        plain = executable is None and preexec_fn is None and not pass_fds and not others[2]
        if not (plain and _can_fork(args, environment, Path(cwd or "."))):
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others)
            return
        wanted = {
            "arguments": [str(word) for word in args[len(COMMAND) :]],
            "environment": environment,
            "folder": str(Path(cwd or ".").resolve()),
            "new_session": bool(new_session),
            "parent": os.getpid(),
        }
        files = [
            own if given == -1 else given
            for own, given in zip((0, 1, 2), (stdin, stdout, stderr), strict=True)
        ]
        words = wanted["arguments"]
        engine = words[:1] in (["demo"], ["local"]) or any(word.startswith("local/") for word in words)
        source = _engine() if engine else _client()
        self.pid = source.fork(wanted, files)
        self._child_created = True
        self._close_pipe_fds(stdin, stdin_end, stdout_end, stdout, stderr_end, stderr)


def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a command as :func:`subprocess.run` does with ``capture_output``."""
    timeout, given = options.pop("timeout", None), options.pop("input", None)
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with ForkedProgram(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _can_fork(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> bool:
    return (
        sys.platform == "linux"
        and tuple(arguments[: len(COMMAND)]) == COMMAND
        and "--workers" not in arguments
        and environment.get("OMP_NUM_THREADS") == "1"
        and _interpreter(environment) == _interpreter(_environment())
        and not any(folder.glob("*.py"))
    )


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the interpreter and torch read when they start."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_INTERPRETER) and name != "PYTHONUNBUFFERED"
    }


class _Source:
    """An interpreter with modules imported, which forks on request."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno()), *modules]
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=_environment()
            )
        atexit.register(self._end)

    def fork(self, wanted: Mapping[str, Any], files: Sequence[int]) -> int:
        """Return the id of a new process, which is a child of this one."""
        libc = ctypes.CDLL(None)
        # While this is set, processes whose parent ends become children of this one, which can wait for them.
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._channel, [json.dumps(wanted).encode()], files)
            return int(self._channel.recv(_LONGEST))
        finally:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()


@functools.cache
def _client() -> _Source:
    return _Source(_CLIENT)


@functools.cache
def _engine() -> _Source:
    return _Source(_ENGINE)


def _serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for every request; return in the forks, with the request and its files."""
    while True:
        message, files, *_ = socket.recv_fds(channel, _LONGEST, 3)
        if not message:
            os._exit(0)
        if (between := os.fork()) == 0:
            if os.fork():
                os._exit(0)  # its child becomes a child of the tests
            return json.loads(message), files
        os.waitpid(between, 0)
        for file in files:
            os.close(file)


def _become(wanted: Mapping[str, Any], files: Sequence[int], channel: socket.socket) -> None:
    """Make this process what the request describes."""
    while os.getppid() != wanted["parent"]:
        os.sched_yield()
    if wanted["new_session"]:
        os.setsid()
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        raw = io.FileIO(number, "wb" if number else "rb", closefd=False)
        direct = number == 1 and unbuffered
        buffered = raw if direct else io.BufferedWriter(raw) if number else io.BufferedReader(raw)
        new = io.TextIOWrapper(
            buffered, encoding=old.encoding, errors=old.errors, line_buffering=number == 2 or raw.isatty(),
            write_through=direct,
        )  # fmt: skip
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    sys.path[0] = wanted["folder"]
    sys.argv[:] = ["-m", *wanted["arguments"]]
    sys.modules.pop(PROGRAM, None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel.send(str(os.getpid()).encode())
    channel.close()


def _main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page
    _become(*_serve(channel), channel)
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
