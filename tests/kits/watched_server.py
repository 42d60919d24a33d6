"""``specclient serve`` with worker processes, its memory, and bystanders that notice stalls.

with WatchedServer(folder, compiled, upstream) as server:
    server.send(b"GET /health HTTP/1.1\\r\\n...")     # the status, and the body
    server.report()                                   # of the bystanders; see bystanders.py
    server.resident_mb()                              # of each worker, after a garbage collection

Run as a script, it is ``specclient serve`` whose processes collect garbage at SIGUSR1.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

_COLLECTED = "TESTS_COLLECTED"


class _MallocFigures(ctypes.Structure):
    """The struct of mallinfo2(3), with its names."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd",
                     "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]  # fmt: skip


def _collect(_number: int, _frame: FrameType | None) -> None:
    """Collect garbage, and note it in a file, with the megabytes that are in use by glibc's figures."""
    gc.collect()
    libc, used_mb = ctypes.CDLL(None), 0.0
    with suppress(AttributeError):  # another C library, or one before 2.33
        libc.mallinfo2.restype = _MallocFigures
        figures = libc.mallinfo2()
        used_mb = (figures.uordblks + figures.hblkhd) / 2**20
    with Path(os.environ[_COLLECTED]).open("a") as file:
        file.write(f"{os.getpid()} {used_mb}\n")


if _COLLECTED in os.environ:  # also in workers, which import the module of the program
    signal.signal(signal.SIGUSR1, _collect)


class WatchedServer:
    """A served process tree with bystanders, as a context manager.

    Args:
        folder: for the home of the processes, the configuration and logs.
        compiled: the folder of the compiled passes.
        upstream: base URL of the provider ``mine``.
        workers: number of worker processes.
        bystanders: whether they run, which needs a server without keys.

    Attributes:
        ledger: the file of the ledger.
        arguments: further options of ``specclient serve``.
    """

    def __init__(
        self,
        folder: Path,
        compiled: Path,
        upstream: str,
        *arguments: str,
        workers: int = 2,
        bystanders: bool = True,
    ) -> None:
        self._folder = folder
        self._count, self._watched = workers, bystanders
        cache = folder / "cache"
        (cache / "specclient").mkdir(parents=True)
        (cache / "specclient" / "native").symlink_to(compiled, target_is_directory=True)
        self._collected = folder / "collected"
        self._bystanders: subprocess.Popen[str] | None = None
        (folder / "specclient.toml").write_text(
            'default_provider = "mine"\ndefault_model = "local/demo"\ncandidates = ["mine/m-large"]\n'
            f'[providers.mine]\nbase_url = "{upstream}"\napi_key = "sk-up"\nmodels = ["m-large"]\n'
            '[prices."mine/*"]\ninput = 2\noutput = 8\n[local]\nthreads = 1\n'
            '[aliases]\nquick = "local/demo"\n'
        )
        keep = {name: text for name, text in os.environ.items() if not name.endswith("_API_KEY")}
        homes = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(folder))
        keep |= {**homes, "XDG_CACHE_HOME": str(cache)}
        self.ledger = folder / "ledger.sqlite3"
        keep["SPECCLIENT_LEDGER"] = str(self.ledger)
        self._environment = {**keep, _COLLECTED: str(self._collected), "PYTHONUNBUFFERED": "1"}
        self._command = [
            sys.executable, __file__, "serve", "--port", "0", "--workers", str(workers), "--preload",
            "--model-per-worker", *arguments,
        ]  # fmt: skip

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self._log = (self._folder / "stderr.txt").open("w")
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=self._folder,
            env=self._environment,
        )  # fmt: skip
        assert self._process.stdout is not None
        output = ""
        for line in self._process.stdout:
            output += line
            if found := re.search(r"at http://127\.0\.0\.1:(\d+)/v1", line):
                self.port = int(found.group(1))
            if line.startswith("    try "):
                break
        else:
            raise AssertionError(f"the server ended: {output} {self.log()}")
        end = time.monotonic() + 60
        while len(self.living()) < self._count:
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)
        self.workers = self.living()
        if not self._watched:
            return
        self._bystanders = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "bystanders.py"), str(self.port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._bystanders.stdout is not None
        assert self._bystanders.stdout.readline() == "ready\n", self.log()

    def __exit__(self, *_: object) -> None:
        if self._bystanders is not None:
            self._bystanders.communicate(timeout=30)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=60)
        self._log.close()

    def command(self, *words: str) -> str:
        """Run a command of ``specclient`` with the server's configuration; return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "specclient_cli.main", *words],
            capture_output=True, text=True, check=True, cwd=self._folder, env=self._environment, timeout=60,
        )  # fmt: skip
        return done.stdout.strip()

    def log(self) -> str:
        """Return what the server has written to stderr."""
        return (self._folder / "stderr.txt").read_text()

    def living(self) -> set[int]:
        """Return the process ids of the workers."""
        return worker_ids(self._process.pid)

    def report(self, pause_s: float | None = None) -> dict[str, Any]:
        """Return the bystanders' report since the last one.

        Args:
            pause_s: seconds between two streams of a bystander from now on; None for no change.
        """
        assert self._bystanders is not None
        stdin, stdout = self._bystanders.stdin, self._bystanders.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n" if pause_s is None else f"{pause_s}\n")
        stdin.flush()
        report: dict[str, Any] = json.loads(stdout.readline())
        return report

    def resident_mb(self) -> dict[int, float]:
        """Return the resident memory of each worker after a garbage collection."""
        self._collected.write_text("")
        for pid in self.workers:
            os.kill(pid, signal.SIGUSR1)
        end = time.monotonic() + 60
        while self.allocated_mb().keys() < self.workers:
            assert time.monotonic() < end, "a worker does not collect garbage"
            time.sleep(0.01)
        page = os.sysconf("SC_PAGE_SIZE")
        return {
            pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page / 2**20 for pid in self.workers
        }

    def allocated_mb(self) -> dict[int, float]:
        """Return the memory that each worker had in use of glibc's allocator, at the last collection."""
        lines = self._collected.read_text().splitlines()
        return {int(pid): float(used_mb) for pid, used_mb in map(str.split, lines)}

    def send(self, request: bytes, *, seconds: float = 60.0, then: bytes = b"") -> tuple[int, bytes]:
        """Send bytes on a new connection; return the status and the body.

        The status is 0 if this client left before the answer, and -1 if the server closed without one.

        Args:
            request: the complete HTTP request, which asks for the connection to be closed.
            seconds: after which this client disconnects.
            then: bytes that follow the head of the answer.
        """
        end = time.monotonic() + seconds
        answer, none = bytearray(), 0
        with (
            suppress(ConnectionError, TimeoutError),
            socket.create_connection(("127.0.0.1", self.port), timeout=60) as sock,
        ):
            with suppress(BrokenPipeError, ConnectionResetError):  # a refusal may come before the end
                sock.sendall(request)
            while (left := end - time.monotonic()) > 0:
                sock.settimeout(left)
                if not (piece := sock.recv(65536)):
                    none = -1
                    break
                answer += piece
                if then and b"\r\n\r\n" in answer:
                    sock.sendall(then)
                    then = b""
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        return (int(head.split(b" ")[1]) if head.startswith(b"HTTP/1.1 ") else none), body


def worker_ids(server: int) -> set[int]:
    """Return the process ids of a server's workers."""
    path = Path(f"/proc/{server}/task/{server}/children")
    pids = path.read_text().split() if path.exists() else []
    return {int(pid) for pid in pids if b"spawn_main" in _command_line(pid)}


def _command_line(pid: str) -> bytes:
    """Return a process's command line, or nothing if it has ended since its id was read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def post(path: str, body: bytes, *lines: str, length: int | None = None) -> bytes:
    """Return an HTTP request with a body."""
    size = len(body) if length is None else length
    head = ["host: localhost", "connection: close", f"content-length: {size}"]
    text = "\r\n".join([f"POST {path} HTTP/1.1", *head, "content-type: application/json", *lines, "", ""])
    return text.encode("latin-1") + body


if __name__ == "__main__":
    from specclient_cli.main import main

    main()
