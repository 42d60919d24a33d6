"""Python programs in processes that are forks of an interpreter which has imported the modules already.

Starting Python and importing the modules takes half a second of processor time, with torch three seconds,
and is the same for every program. :class:`ForkedProgram` is :class:`subprocess.Popen` without it: the process
has the arguments, environment, folder, files and signals that it was given, is a child of the tests, and ends
like any other. What is about starting itself is tested with ``subprocess``.
"""

from __future__ import annotations

import atexit
import ctypes
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
import tempfile
import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

PROGRAM = "specclient_cli.main"
COMMAND = (sys.executable, "-m", PROGRAM)
#: Options of the interpreter with which programs may be started.
STRICT = ("-W", "error")
DEVELOPMENT = ("-X", "dev", *STRICT)
_CLIENT = (
    "specclient_cli.batch", "specclient_cli.chat", "specclient_cli.complete", "specclient_cli.cost.group",
    "specclient_cli.cost.report", "specclient_cli.demo", "specclient_cli.local.group",
    "specclient_cli.models.group", "specclient_cli.route.group", "specclient_cli.serve.group",
    "specclient.ledger.ledger", "specclient.resources.chat", "specclient.resources.completions",
    "specclient.serving", "aiohttp", "anyio._backends._asyncio", "readline", "rich.live", "rich.progress",
)  # fmt: skip
_ENGINE = (
    *_CLIENT, "numpy.random", "torch", "specclient_local.api.backend", "specclient_local.engine.engine",
    "specclient_local.loading.model_loader", "transformers.tokenization_utils_tokenizers",
)  # fmt: skip
_INTERPRETER = ("PYTHON", "LC_", "LANG", "OMP_", "MKL_", "LD_")
_CLOCK = "FAKETIME"
#: The command before a program that is to run in the user and mount namespaces of a process, in a folder.
_ENTER = ("nsenter", "--preserve-credentials", "-U", "-m", "-t")
_PRELOADED = "LD_PRELOAD"
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST = 2**17
#: Python's own filters of warnings; modules add theirs.
_FILTERS = len(warnings.filters)


class _Command(NamedTuple):
    """A program for Python to run.

    Attributes:
        options: of the interpreter: none, :data:`STRICT` or :data:`DEVELOPMENT`. Warnings become errors in
            the fork alone, so that one interpreter serves both kinds of programs.
        flag: ``-m``, ``-c``, or nothing for a file.
        name: the module, the program's text, or the file.
        arguments: of the program.
        namespaces: the process whose user and mount namespaces it runs in; None for this one's.
        folder: where it runs, if the command says it.
    """

    options: tuple[str, ...]
    flag: str
    name: str
    arguments: tuple[str, ...]
    namespaces: int | None = None
    folder: str = ""

    @classmethod
    def parsed(cls, words: Sequence[Any]) -> Self | None:
        """Return the parts of a command line; None if it does not start Python, or with other options."""
        rest = tuple(str(word) for word in words)
        if rest[: len(_ENTER)] == _ENTER and rest[len(_ENTER) + 1].startswith("--wd="):
            process, folder = rest[len(_ENTER) : len(_ENTER) + 2]
            inner = cls.parsed(rest[len(_ENTER) + 2 :])
            return inner and inner._replace(namespaces=int(process), folder=folder.removeprefix("--wd="))
        if rest[0] != sys.executable:
            return None
        rest = rest[1:]
        options = next((each for each in (STRICT, DEVELOPMENT) if rest[: len(each)] == each), ())
        rest = rest[len(options) :]
        if rest[:1] in (("-m",), ("-c",)):
            return cls(options, rest[0], rest[1], rest[2:])
        return cls(options, "", rest[0], rest[1:]) if rest and rest[0].endswith(".py") else None

    def needs_engine(self) -> bool:
        """Return whether a command of ``specclient`` uses the engine."""
        words = self.arguments
        return words[:1] in (("demo",), ("local",)) or any(word.startswith("local/") for word in words)


class ForkedProgram(subprocess.Popen):
    """Start Python in a fork; any other command, and on other systems, in a new process.

    A command that sets the interpreter up differently, by options, variables or modules in its folder, is
    started in a new process, too. ``LD_PRELOAD`` may differ.

    Args:
        args: the command.
        others: see :class:`subprocess.Popen`.
        engine: whether torch and the engine are imported already; by default, if a command of
            ``specclient`` names a model of the engine.
        options: see :class:`subprocess.Popen`.
    """

    def __init__(self, args: Any, *others: Any, engine: bool | None = None, **options: Any) -> None:
        self._engine = engine
        super().__init__(args, *others, **options)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
                       cwd: Any, env: Mapping[str, str] | None, *others: Any) -> None:  # fmt: skip
        environment = dict(os.environ if env is None else env)
        *_, new_session, _group = others
        stdin, stdin_end, stdout_end, stdout, stderr_end, stderr = others[3:9]
        plain = executable is None and preexec_fn is None and not pass_fds and not others[2]
        command = _Command.parsed(args) if plain else None
        if command is None or not _can_fork(command, environment, Path(cwd or ".")):
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others)
            return
        wanted = {
            "flag": command.flag,
            "name": command.name,
            "arguments": command.arguments,
            "environment": environment,
            "namespaces": command.namespaces,
            "folder": command.folder or str(Path(cwd or ".").resolve()),
            "new_session": bool(new_session),
            "parent": os.getpid(),
            "strict": command.options[-len(STRICT) :] == STRICT,
        }
        files = [
            own if given == -1 else given
            for own, given in zip((0, 1, 2), (stdin, stdout, stderr), strict=True)
        ]
        engine = command.needs_engine() if self._engine is None else self._engine
        options = command.options[: -len(STRICT)] if wanted["strict"] else command.options
        self.pid = _source(options, environment, engine=engine).fork(wanted, files)
        self._child_created = True
        self._close_pipe_fds(stdin, stdin_end, stdout_end, stdout, stderr_end, stderr)


def run(command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[Any]:
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


def _can_fork(command: _Command, environment: Mapping[str, str], folder: Path) -> bool:
    given, own = _interpreter(environment), _interpreter(_environment())
    given.pop(_PRELOADED, None)
    own.pop(_PRELOADED, None)
    return (
        sys.platform == "linux"
        and environment.get("OMP_NUM_THREADS") == "1"
        and given == own
        and not (command.flag and any(folder.glob("*.py")))
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

    def __init__(
        self, options: Sequence[str], environment: Mapping[str, str], modules: Sequence[str]
    ) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, *options, __file__, str(theirs.fileno()), *modules]
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment
            )
        atexit.register(self._end)

    def fork(self, wanted: Mapping[str, Any], files: Sequence[int]) -> int:
        """Return the id of a new process, which is a child of this one."""
        libc = ctypes.CDLL(None)
        with self._lock:
            # While this is set, processes whose parent ends become children of this one, which can wait for
            # them.
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._channel, [json.dumps(wanted).encode()], files)
                return int(self._channel.recv(_LONGEST))
            finally:
                libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()


_sources: dict[tuple[Any, ...], _Source] = {}


def _source(options: tuple[str, ...], environment: Mapping[str, str], *, engine: bool) -> _Source:
    """Return the interpreter for these options and this ``LD_PRELOAD``, which is started once."""
    preloaded = environment.get(_PRELOADED, "")
    key = (options, engine, preloaded)
    if key not in _sources:
        clock = {name: value for name, value in environment.items() if name.startswith(_CLOCK)}
        own = {**_environment(), **clock, _PRELOADED: preloaded}
        _sources[key] = _Source(options, own, _ENGINE if engine else _CLIENT)
    return _sources[key]


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


def _enter(process: int) -> None:
    """Enter the user and mount namespaces of a process, as ``nsenter`` does."""
    libc = ctypes.CDLL(None, use_errno=True)
    opened = [os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY) for kind in ("user", "mnt")]
    for file in opened:
        if libc.setns(file, 0):
            raise OSError(ctypes.get_errno(), "cannot enter a namespace")
        os.close(file)


def _become(wanted: Mapping[str, Any], files: Sequence[int], channel: socket.socket) -> None:
    """Make this process what the request describes."""
    while os.getppid() != wanted["parent"]:
        os.sched_yield()
    if wanted["new_session"]:
        os.setsid()
    if wanted["namespaces"] is not None:
        _enter(wanted["namespaces"])
    if wanted["strict"]:
        # Where -W error puts it: before Python's own filters, and after those that modules have added since.
        warnings.filters.insert(len(warnings.filters) - _FILTERS, ("error", None, Warning, None, 0))
        warnings.simplefilter("error", append=True)  # this also makes the change known
        sys.warnoptions.append("error")  # for the interpreters that the program starts
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    tempfile.tempdir = None  # by the variables of before
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
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel.send(str(os.getpid()).encode())
    channel.close()


def _run(wanted: Mapping[str, Any]) -> None:
    """Run a module, a program text or a file as Python's command line does."""
    flag, name = wanted["flag"], wanted["name"]
    sys.argv[:] = [flag or name, *wanted["arguments"]]
    if flag == "-m":
        sys.path[0] = wanted["folder"]
        sys.modules.pop(name, None)
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    file = "<string>" if flag else name
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.path[0] = ""
    if not flag:
        main.__file__, sys.path[0] = file, str(Path(file).parent.resolve())
    text = name if flag else Path(file).read_text(encoding="utf-8")
    exec(compile(text, file, "exec"), main.__dict__)


def _main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page
    wanted, files = _serve(channel)
    _become(wanted, files, channel)
    _run(wanted)


if __name__ == "__main__":
    _main()
