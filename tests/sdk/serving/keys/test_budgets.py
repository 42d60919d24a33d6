"""Keys with a budget: the most that a request may cost is reserved, and what has no bound is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from keyed_server import BODY, KeyedServer
from loopback_server import OpenAIServer, Received, Wire, behave, reply

CENT = Decimal("0.01")
MESSAGES = BODY["messages"]
#: Output tokens of an image of high quality, 1024 × 1536 (OpenAI, "Image generation").
IMAGE_TOKENS = 6240


async def media(received: Received, wire: Wire) -> None:
    """Answer as OpenAI: images and transcripts with their usage, speech without any."""
    if received.path.endswith("/images/generations"):
        asked = received.json
        used = IMAGE_TOKENS * int(asked.get("n") or 1)
        usage = {"input_tokens": 10, "output_tokens": used, "total_tokens": used + 10}
        await reply(200, {"created": 1, "data": [{"b64_json": "x"}], "usage": usage})(received, wire)
    elif received.path.endswith("/audio/speech"):
        await reply(200, b"RIFF", {"content-type": "audio/wav"})(received, wire)
    elif received.path.endswith("/audio/transcriptions"):
        usage = {"type": "tokens", "input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
        await reply(200, {"text": "hi", "usage": usage})(received, wire)
    elif received.path.endswith("/responses"):
        answer = {"id": "resp_1", "object": "response", "status": "queued", "output": [], "model": "m-large"}
        await reply(200, answer)(received, wire)
    else:
        await behave(received, wire)


Open = Callable[..., Any]


@pytest.fixture
def open_server(tmp_path: Path) -> Open:
    @contextmanager
    def opened(**tables: Any) -> Iterator[KeyedServer]:
        with OpenAIServer(media) as upstream:
            prices = {"mine/m-large": {"input": 2, "output": 8}, "mine/img": {"input": 5, "output": 40},
                      "mine/tts": {"input": "0.6", "output": 12}, "mine/stt": {"input": 6, "output": 10},
                      "mine/video": {"input": 1, "output": 1}}  # fmt: skip
            home = KeyedServer(upstream, tmp_path / "keys.sqlite3", {"prices": prices, **tables})
            try:
                with home.served:
                    yield home
            finally:
                home.store.close()

    return opened


def _refused(answer: Any) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, "insufficient_quota"), answer.text
    return error


COSTLY: list[dict[str, Any]] = [
    {"prompt": ["x"] * 500, "max_tokens": 1000},
    {"prompt": [[1, 2]] * 500, "max_tokens": 1000},
    {"prompt": "x", "n": 100, "max_tokens": 100},
    {"prompt": "x", "n": 10, "best_of": 100, "max_tokens": 5},
    {"prompt": ["x"] * 40, "n": 10, "best_of": 10, "max_tokens": 1},
    {"prompt": "x", "max_tokens": "100000"},
    {"prompt": "x", "max_tokens": 1e5},
    {"prompt": "x", "n": "100", "max_tokens": 100},
    {"messages": MESSAGES, "max_completion_tokens": 0, "max_tokens": 100_000},
    {"messages": MESSAGES, "max_completion_tokens": 1, "max_tokens": 100_000},
    {"messages": MESSAGES, "max_tokens": 0, "max_completion_tokens": 100_000},
    {"messages": MESSAGES, "max_tokens": 0},
    {"messages": MESSAGES, "max_tokens": 1, "n_predict": 100_000},
    {"messages": MESSAGES, "n": 2},
]


@pytest.mark.parametrize("body", COSTLY, ids=lambda body: str(body)[:60])
def test_a_request_that_may_cost_more_than_the_budget_is_not_sent(
    open_server: Open, body: dict[str, Any]
) -> None:
    with open_server() as home:
        key = home.make(usd=CENT)
        path = "/chat/completions" if "messages" in body else "/completions"
        error = _refused(home.ask(key, path, {"model": "mine/m-large", **body}))
        assert "may take $" in error["message"]
        assert home.upstream.requests == []
        assert home.ask(key).status_code == 200


def test_concurrent_images_never_exceed_the_budget(open_server: Open) -> None:
    body = {"model": "mine/img", "prompt": "a fox", "size": "1024x1536", "quality": "high"}

    with open_server() as home:
        key = home.make(usd=CENT)
        with ThreadPoolExecutor(30) as threads:
            answers = list(threads.map(lambda _: home.ask(key, "/images/generations", body), range(30)))
        for answer in answers:
            _refused(answer)
        assert home.upstream.requests == []
        assert home.standing().spent == 0


def test_a_budget_for_some_images_serves_those(open_server: Open) -> None:
    body = {"model": "mine/img", "prompt": "a fox"}
    each = 10 * 5_000 + IMAGE_TOKENS * 40_000  # nano-dollars
    with open_server() as home:
        key = home.make(usd=Decimal(1))
        with ThreadPoolExecutor(30) as threads:
            answers = list(
                threads.map(lambda _: home.ask(key, "/images/generations", body).status_code, range(30))
            )
        served = answers.count(200)
        assert served == len(home.upstream.requests)
        assert 1 <= served <= 4
        standing = home.standing()
        assert (standing.spent, standing.reserved) == (served * each, 0)
        assert standing.spent <= 10**9
        _refused(home.ask(key, "/images/generations", {**body, "n": 8}))


def test_a_response_in_the_background_is_refused(open_server: Open) -> None:
    """Its answer comes after the call, so that it would not be counted."""
    with open_server() as home:
        key, free = home.make(usd=CENT), home.make("free")
        for background in (True, 1, "true"):
            body = {"model": "mine/m-large", "input": "x", "max_output_tokens": 9, "background": background}
            answer = home.ask(key, "/responses", body)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (403, "background")
            assert error["code"] == "not_permitted"
            assert "omit background" in error["message"]
        assert home.upstream.requests == []
        assert home.ask(free, "/responses", body).status_code == 200


def test_speech_is_charged_with_its_bound(open_server: Open) -> None:
    """Speech comes without a usage; uncounted, any number of calls would fit into a budget."""
    with open_server() as home:
        key = home.make(usd=Decimal("0.05"))
        body = {"model": "mine/tts", "voice": "alloy", "input": "twelve words " * 8}
        codes = [home.ask(key, "/audio/speech", body).status_code for _ in range(8)]
        assert codes[0] == 200
        assert codes[-1] == 429
        assert 0 < home.standing().spent <= 50_000_000
        assert codes.count(200) == len(home.upstream.requests)
        assert home.standing().assumed == codes.count(200)


def test_a_recording_is_charged_by_its_seconds(open_server: Open) -> None:
    with open_server() as home:
        key = home.make(usd=CENT)
        form = {"model": "mine/stt"}
        short, long = ({"file": ("a.mp3", bytes(size), "audio/mpeg")} for size in (2_000, 2_000_000))
        assert home.upload(key, "/audio/transcriptions", form, short).status_code == 200
        assert home.standing().spent == 20 * 6_000 + 5 * 10_000
        _refused(home.upload(key, "/audio/transcriptions", form, long))
        assert len(home.upstream.requests) == 1


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/videos", {"model": "mine/video", "prompt": "x"}, "videos.create"),
        ("/responses", {"input": "x", "previous_response_id": "r"}, "previous_response_id"),
        ("/responses", {"input": "x", "tools": [{"type": "web_search"}]}, "web_search"),
        ("/responses", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
         "input_file"),
        ("/chat/completions", {"messages": MESSAGES, "web_search_options": {}}, "web_search_options"),
        ("/chat/completions", {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
         "file"),
    ],
)  # fmt: skip
def test_what_has_no_bound_is_refused(open_server: Open, path: str, body: dict[str, Any], why: str) -> None:
    with open_server() as home:
        key = home.make(usd=Decimal(100))
        send = home.upload if path == "/videos" else home.ask
        given = {"model": "mine/m-large", "max_output_tokens": 9, **body}
        args = (given, {"input_reference": ("a.png", b"x")}) if path == "/videos" else (given,)
        error = _refused(send(key, path, *args))
        assert why in error["message"]
        assert "a key without a budget" in error["message"]
        assert home.upstream.requests == []
