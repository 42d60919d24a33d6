"""Hostile requests of every route: no 500, no lost worker, no stall, no leak, and no wrong byte for others.

The server runs in processes of its own, with two workers. Two bystanders stream answers of the engine all
the time, and one requests ``/health``. Every test run sends a few requests, the same ones each time; ``make
soak`` sends 100,000, prints the responses by status, and compares the bystanders' waits with the goals.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hostile_requests import HostileRequest, hostile_requests
from hypothesis import HealthCheck, Phase, given, settings
from loopback_server import Forgetful, OpenAIServer
from route_requests import CONTENT
from watched_server import WatchedServer, post

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc")

#: The goals: 99th percentile of /health, and the longest gap in a stream, in milliseconds.
HEALTH_MS, GAP_MS = 100, 250
#: Seconds between two streams of a bystander in a long run.
PAUSE_S = 0.1
#: What a stall is in the ordinary suite, whose machine also runs other tests.
STALL_MS = 2000
GROWTH_MB = 64
#: Requests of one run of hypothesis, which keeps those of a run in memory.
A_ROUND = 1000
#: Seconds after which the client leaves a request that goes on.
PATIENCE_S = 0.5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, native_folder: Path) -> Iterator[WatchedServer]:
    with OpenAIServer() as upstream:
        folder = tmp_path_factory.mktemp("hostile")
        with WatchedServer(folder, native_folder, upstream.base_url) as server:
            upstream.requests = Forgetful()
            yield server


def _completion(**fields: Any) -> bytes:
    return post("/v1/completions", json.dumps({"model": "local/demo", "max_tokens": 2, **fields}).encode())


def _chat(**fields: Any) -> bytes:
    body = {"model": "local/demo", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}], **fields}
    return post("/v1/chat/completions", json.dumps(body).encode())


def _post_json(path: str, **fields: Any) -> bytes:
    return post(path, json.dumps({"model": "local/demo", **fields}).encode())


def _completion_of(prompt: bytes) -> bytes:
    return post("/v1/completions", b'{"model":"local/demo","prompt":%b}' % prompt)


def _form(content: bytes) -> bytes:
    """Return a form with a file."""
    part = b'--X\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    file = part.replace(b'"\r\n', b'"; filename="a.wav"\r\n')
    body = part % (b"model", b"m-large") + file % (b"file", content) + b"--X--\r\n"
    request = post("/v1/audio/transcriptions", body)
    return request.replace(b"application/json", b"multipart/form-data; boundary=X", 1)


TEXT = "a word, " * 1_000_000
USER = {"role": "user", "content": TEXT}
SHORT = {"role": "user", "content": "x"}
CHOICES = [f"choice {i}" for i in range(50_000)]
#: Requests that stalled every client of their process for seconds, and their statuses. They are functions,
#: because some take long to make.
STALLS: dict[str, tuple[Callable[[], bytes], int]] = {
    "prompt": (lambda: _completion(prompt=TEXT), 400),
    "sliding prompt": (lambda: _completion(prompt=TEXT, overflow="slide"), 400),
    "chat": (lambda: _chat(messages=[USER]), 400),
    "prediction": (lambda: _chat(prediction={"type": "content", "content": TEXT}), 400),
    "responses": (lambda: _post_json("/v1/responses", input=TEXT), 400),
    "anthropic": (lambda: _post_json("/v1/messages", max_tokens=2, messages=[USER]), 400),
    "long items": (
        lambda: _post_json(
            "/v1/responses", max_output_tokens=2, input=[{**SHORT, "x": [1] * 300_000}]
        ),
        200,
    ),
    "limits": (
        lambda: _post_json("/v1/responses", input="x", max_output_tokens=[[1e308, 1e308, 1e308]] * 60_000),
        400,
    ),
    "show": (lambda: _post_json("/api/show", x=[1] * 300_000), 200),
    "modalities": (lambda: _post_json(CONTENT, generationConfig={"responseModalities": [[TEXT]]}), 400),
    "gemini": (lambda: _post_json(CONTENT, contents=[{"parts": [{"text": TEXT}]}]), 400),
    "guided_choice": (lambda: _completion(prompt="x", guided_choice=CHOICES), 400),
    "escapes": (lambda: _completion_of(b'"' + rb"\u0041" * 1_500_000 + b'"'), 400),
    "small values": (lambda: _completion_of(b"[" + b"{}," * 8_000_000 + b"1]"), 400),
    "token ids": (lambda: _completion(prompt=[5] * 300_000), 400),
    "messages": (lambda: _chat(messages=[SHORT] * 60_000), 400),
    "bad words": (lambda: _completion(prompt="x", bad_words=["a b " * i for i in range(1, 2000)]), 400),
    "log-probabilities": (lambda: _completion(prompt="a b " * 400, echo=True, logprobs=5, n=128), 400),
    "hosted prompt": (lambda: _chat(model="mine/m-large", messages=[USER]), 200),
    "form": (lambda: _form(b"\r\n--" * 7_500_000), 404),
    "passed on": (lambda: _post_json("/v1/audio/speech", model="m-large", input=TEXT), 404),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(STALLS))
def test_a_large_request_stalls_no_other_client(server: WatchedServer, name: str) -> None:
    make, expected = STALLS[name]
    request = make()
    server.report()
    for _ in range(3):  # the bystanders' connections are not all in the worker that accepts it
        status, body = server.send(request)
        assert status == expected, body[:500]
    _check_bystanders(server.report(), gap_ms=STALL_MS, health_ms=STALL_MS)


#: Fields whose text was kept after the request: by look-ups of names, and in the cost of the recorded call.
KEPT = {
    "anthropic model": ("/v1/messages", "model", {"max_tokens": 2, "messages": [SHORT]}),
    "chat model": ("/v1/chat/completions", "model", {"messages": [SHORT]}),
    "ollama model": ("/api/chat", "model", {"messages": [SHORT]}),
    "service_tier": ("/v1/chat/completions", "service_tier", {"model": "mine/m-large", "messages": [SHORT]}),
}


@pytest.mark.parametrize("name", sorted(KEPT))
def test_long_texts_are_not_kept_after_their_request(server: WatchedServer, name: str) -> None:
    path, field, body = KEPT[name]
    for _ in range(4):  # both workers load what such a request needs
        server.send(post(path, json.dumps(body | {field: "x" * 2000}).encode()))
    server.resident_mb()
    before = sum(server.allocated_mb().values())
    for number in range(4):
        server.send(post(path, json.dumps(body | {field: f"{name}{number}" + "x" * 8_000_000}).encode()))
    server.resident_mb()
    assert sum(server.allocated_mb().values()) - before < 12, "each text has 8 MB"


def test_hostile_requests_harm_nobody(server: WatchedServer) -> None:
    server.report()
    statuses, _ = _bombard(server, 40, seeded=True)
    report = server.report()
    assert len(statuses) > 2, "the requests differ in nothing"
    assert min(report["answers"], report["health_ms"]["count"]) > 0
    _check_bystanders(report, gap_ms=STALL_MS, health_ms=STALL_MS)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_many_hostile_requests_harm_nobody(server: WatchedServer, capsys: pytest.CaptureFixture[str]) -> None:
    count = int(os.environ.get("HOSTILE_REQUESTS", "100000"))
    server.report(PAUSE_S)
    _bombard(server, 200, seeded=True)  # so that what is loaded once is loaded
    _send_large_requests(server)
    before, allocated = server.resident_mb(), server.allocated_mb()
    statuses: Counter[int] = Counter()
    missed: list[str] = []
    while (left := count - sum(statuses.values())) > 0:
        _discard_stalls(server)
        found, sent = _bombard(server, min(left, A_ROUND), seeded=False)
        statuses += found
        report, grown = server.report(), _grown_mb(server, before)
        with capsys.disabled():
            print(f"\n{sum(statuses.values())} hostile requests: {dict(sorted(statuses.items()))}")
            print(f"bystanders of the last: {json.dumps(report)}")
            print(f"memory grown by {grown:.0f} MB; {_grown_by(server, before, allocated)}", flush=True)
        assert grown <= GROWTH_MB, sorted(sent, key=lambda each: each.ended - each.began)[-10:]
        assert report["wrong"] == []
        if report["gap_ms"]["max"] > GAP_MS or report["health_ms"]["p99"] > HEALTH_MS:
            missed.append(f"before request {sum(statuses.values())}: {report}, {_during(sent, report)}")
            with capsys.disabled():
                print(f"missed {missed[-1]}", flush=True)
    assert not missed, "\n".join(missed)  # at the end, so that one stall of the machine does not end the run


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(STALLS))
def test_the_stall_goals_hold_for_large_requests(
    server: WatchedServer, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    request = STALLS[name][0]()
    server.report(PAUSE_S)
    for _ in range(6):  # both workers' allocators then hold what such a request takes
        server.send(request)
    before = server.resident_mb()
    _discard_stalls(server)
    for _ in range(10):
        server.send(request)
    report = server.report()
    grown = _grown_mb(server, before)
    with capsys.disabled():
        print(f"\n{name}: {json.dumps(report)}; memory grown by {grown:.0f} MB")
    assert grown <= GROWTH_MB
    _check_bystanders(report, gap_ms=GAP_MS, health_ms=HEALTH_MS)


class _Sent(NamedTuple):
    """A request that was sent, its begin and end (``time.perf_counter``), and the time stolen by then."""

    began: float
    ended: float
    shown: str
    stolen_s: float


def _during(sent: list[_Sent], report: dict[str, Any]) -> list[str]:
    """Return the requests around the bystanders' longest gap, which begins when a request has arrived."""
    began, ended = report["longest_gap"]
    near = [each for each in sent if each.ended > began - 1.0 and each.began < ended]
    stolen_s = near[-1].stolen_s - near[0].stolen_s if near else 0.0
    return [f"{stolen_s:.2f} s of processor time stolen by the host"] + [
        f"{each.began - began:+.3f} to {each.ended - began:+.3f} s: {each.shown:.300}" for each in near
    ]


def _stolen_s() -> float:
    """Return the seconds that the host of this virtual machine has taken from its processors (proc(5))."""
    with Path("/proc/stat").open() as figures:
        return int(figures.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def _bombard(server: WatchedServer, count: int, *, seeded: bool) -> tuple[Counter[int], list[_Sent]]:
    """Send hostile requests; return their number by status (:meth:`WatchedServer.send`), and the requests."""
    statuses: Counter[int] = Counter()
    sent: list[_Sent] = []

    @settings(
        max_examples=count,
        derandomize=seeded,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(request=hostile_requests())
    def send(request: HostileRequest) -> None:
        patience_s = 0 if request.leaves else PATIENCE_S
        began = time.perf_counter()
        status, body = server.send(request.content, seconds=patience_s, then=request.then)
        sent.append(_Sent(began, time.perf_counter(), request.shown, _stolen_s()))
        statuses[status] += 1
        assert status not in (500, 501), (request.shown, body[:500])
        assert server.living() == server.workers, (request.shown, server.log()[-2000:])

    send()
    return statuses, sent


def _send_large_requests(server: WatchedServer) -> None:
    """Send each of the large requests to both workers, several at once.

    The workers' allocators then hold the most that requests take at one time. They keep it, because a few
    long-lived objects lie between the freed ones, and reuse it. What grows afterwards is not returned.
    """
    requests = [make() for make, _ in STALLS.values()]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            list(pool.map(server.send, requests))


def _discard_stalls(server: WatchedServer) -> None:
    """Discard what the bystanders have noticed of a measurement of the memory.

    It collects garbage, which stalls a worker for 0.2 s, and returns before the worker's streams go on. A gap
    is noticed at its end, so a second report, which waits for a complete stream, is discarded, too.
    """
    server.report()
    server.report()


def _check_bystanders(report: dict[str, Any], *, gap_ms: float, health_ms: float) -> None:
    assert report["wrong"] == []
    assert report["gap_ms"]["max"] <= gap_ms, report
    assert report["health_ms"]["p99"] <= health_ms, report


def _grown_by(server: WatchedServer, before: dict[int, float], allocated: dict[int, float]) -> str:
    """Return how much more each worker has; memory that is not allocated was freed and not returned."""
    now, used = server.resident_mb(), server.allocated_mb()
    return ", ".join(
        f"{pid}: resident {now[pid] - before[pid]:+.0f} MB, allocated {used[pid] - allocated[pid]:+.0f} MB"
        for pid in before
    )


def _grown_mb(server: WatchedServer, before: dict[int, float]) -> float:
    """Return the growth of the workers' memory once abandoned requests have ended."""
    end = time.monotonic() + 30
    while True:
        after = server.resident_mb()
        grown = max(after[pid] - before[pid] for pid in before)
        if grown <= GROWTH_MB or time.monotonic() > end:
            return grown
        time.sleep(1)
