"""Thousands of connections without a request do not keep the server from serving others."""

from __future__ import annotations

import os
import re
import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from gateway_server import wait_until
from loopback_server import OpenAIServer, events
from served_process import BODY, ServedProcess

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")

#: The first bytes that each kind of client sends: nothing, half a head, or a request whose answer it reads.
KINDS = {
    "silent": b"",
    "half a head": b"GET /health HTTP/1.1\r\nhost: loc",
    "kept alive": b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
}
#: Seconds in which a request of another client is answered, on a machine that may be loaded.
PROMPT_S = 10.0
#: Bytes of memory for each idle connection; docs/deployment.md states the figure.
CONNECTION_BYTES = 16 * 1024

Serve = Callable[..., ServedProcess]


@pytest.fixture
def serve(tmp_path: Path, openai_server: OpenAIServer) -> Iterator[Serve]:
    with ExitStack() as stack:

        def served(*, head_s: float, idle_s: int, files: str = "") -> ServedProcess:
            limit = ("prlimit", f"--nofile={files}") if files else ()
            times = f"[server]\nhead_s = {head_s}\nidle_s = {idle_s}\ngrace_s = 5"
            server = ServedProcess(tmp_path, openai_server, prefix=limit, configuration=times)
            stack.callback(server.end)
            return server

        yield served


class IdleClients:
    """Connections on which no request is running, from several source addresses."""

    def __init__(self, server: ServedProcess) -> None:
        self._address = "127.0.0.1", urlsplit(server.url).port
        self._selector = selectors.DefaultSelector()
        self.open: dict[socket.socket, str] = {}
        self.ended: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def __enter__(self) -> IdleClients:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self.open:
            sock.close()
        self._selector.close()

    def add(self, kind: str) -> None:
        """Open a connection; raise OSError if the server refuses it or does not answer."""
        source = f"127.0.0.{1 + len(self.open) // 4000}", 0
        sock = socket.create_connection(self._address, timeout=30, source_address=source)
        sock.sendall(KINDS[kind])
        if kind == "kept alive":
            received = b""
            while not received.endswith(b"}"):
                piece = sock.recv(4096)
                assert piece, received
                received += piece
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ)
        self.open[sock] = kind

    def count(self, *kinds: str) -> int:
        """Return the number of open connections of these kinds, after noting which the server has closed."""
        for key, _ in self._selector.select(0):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            with suppress(ConnectionResetError):
                assert not sock.recv(4096), "the server has sent something"
            self._selector.unregister(sock)
            self.ended[self.open.pop(sock)].append(time.monotonic())
            sock.close()
        return sum(kind in kinds for kind in self.open.values())


@contextmanager
def _files(count: int) -> Iterator[None]:
    """Raise the limit of open files of this process and those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"needs {count} open files; the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _check_service(server: ServedProcess) -> None:
    """Check that another client gets /health and a whole stream, each promptly."""
    with httpx.Client(base_url=server.url, timeout=PROMPT_S, trust_env=False) as client:
        begun = time.monotonic()
        assert client.get("/health").status_code == 200
        answer = client.post("/v1/chat/completions", json={**BODY, "stream": True})
        assert answer.text.endswith("data: [DONE]\n\n"), answer.text
        assert time.monotonic() - begun < 2 * PROMPT_S


def _resident(server: ServedProcess) -> int:
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _processor_s(server: ServedProcess) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _descriptors(server: ServedProcess) -> int:
    return sum(1 for _ in Path(f"/proc/{server.process.pid}/fd").iterdir())


@pytest.mark.parametrize(
    ("count", "head_s", "idle_s"),
    [
        pytest.param(600, 7.0, 10, id="600"),
        pytest.param(10_000, 60.0, 90, id="10000", marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
    ],
)
def test_others_are_served_while_idle_connections_are_open_until_their_time_is_over(
    serve: Serve, count: int, head_s: float, idle_s: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with _files(count + 500), ExitStack() as stack:
        server = serve(head_s=head_s, idle_s=idle_s)
        _check_service(server)
        before = _resident(server)
        clients = stack.enter_context(IdleClients(server))
        begun = time.monotonic()
        for number in range(count):
            clients.add(list(KINDS)[number % 3])
        opened = time.monotonic()
        assert opened - begun < head_s, "the machine is too slow to have all connections open at once"
        assert _descriptors(server) > count
        each = (_resident(server) - before) / count
        with capsys.disabled():
            print(f"\n{count} idle connections: {each:.0f} bytes each")
        assert each < CONNECTION_BYTES
        while clients.count("silent", "half a head"):
            assert time.monotonic() < opened + head_s + 20, "silent connections are not closed"
            _check_service(server)
            time.sleep(0.2)
        assert clients.count("kept alive") == len(range(2, count, 3)), "closed before idle_s"
        assert min(clients.ended["silent"] + clients.ended["half a head"]) > begun + head_s - 0.5
        while clients.count("kept alive"):
            assert time.monotonic() < opened + idle_s + 20, "kept-alive connections are not closed"
            _check_service(server)
            time.sleep(0.2)
        assert min(clients.ended["kept alive"]) > begun + idle_s - 0.5
        assert _descriptors(server) < 100


def test_at_the_limit_of_files_the_longest_idle_connections_give_way(serve: Serve) -> None:
    server = serve(head_s=60.0, idle_s=60, files="256:256")
    with _files(1200), IdleClients(server) as clients:
        clients.add("kept alive")
        for number in range(600):
            clients.add(list(KINDS)[number % 2])
        _check_service(server)
        assert clients.count(*KINDS) < 256
        assert clients.count("kept alive") == 0, "a newer connection was closed instead of the oldest"
        before = _processor_s(server)
        for _ in range(10):
            time.sleep(0.2)
            _check_service(server)
        assert _processor_s(server) - before < 1.0
        assert _descriptors(server) < 256
        until = time.monotonic() + 10  # the newest row may not be written yet
        while not re.search(r'"calls": 1[12]\b', server.command("cost", "report", "--json")):
            assert time.monotonic() < until, "a row was not written"
        for sock in list(clients.open):
            sock.close()
    _check_service(server)
    status, _, errors = server.end()
    assert status == 0
    assert errors.count("connections are open") == 1
    assert len(errors.splitlines()) < 5, "a flood of log records"


def test_running_requests_keep_their_connections_at_the_limit_of_files(
    serve: Serve, openai_server: OpenAIServer
) -> None:
    frame = (
        b'data: {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}\n\n'
    )
    openai_server.script(*[events(*[frame] * 8, b"data: [DONE]\n\n", gap=0.5)] * 20)
    server = serve(head_s=60.0, idle_s=60, files="256:256")
    url = f"{server.url}/v1/chat/completions"

    def stream(_: int) -> str:
        return httpx.post(url, json={**BODY, "stream": True}, timeout=60, trust_env=False).text

    with _files(1200), IdleClients(server) as clients, ThreadPoolExecutor(20) as threads:
        answers = [threads.submit(stream, number) for number in range(20)]
        assert wait_until(lambda: len(openai_server.requests) == 20)
        for _ in range(600):
            clients.add("silent")
        for answer in answers:
            assert answer.result().endswith("data: [DONE]\n\n")


def test_the_server_raises_its_soft_limit_of_files(serve: Serve) -> None:
    with _files(1200):
        server = serve(head_s=60.0, idle_s=60, files="200:1024")
        with IdleClients(server) as clients:
            for _ in range(400):
                clients.add("silent")
            assert clients.count("silent") == 400
            _check_service(server)
