"""Calls that are billed by other units than tokens: seconds, characters, images, searches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from loopback_server import OpenAIServer, reply

from specclient import OpenAI, Provider, Settings
from specclient.call.billed_units import requested_usage
from specclient.types.api_method import ApiMethod
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.usage import Usage

JSON = {"content-type": "application/json"}
NANO = Decimal("1e-9")


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


def call_of(
    server: OpenAIServer,
    ask: Callable[[OpenAI], Any],
    answer: Any,
    vendor: str = "openai",
    config: Any = None,
) -> Call:
    """Return the record of the call that ``ask`` makes, which gets an answer."""
    body, kind = (answer, {}) if isinstance(answer, bytes) else (json.dumps(answer).encode(), JSON)
    server.script(reply(200, body, kind))
    mine = Provider(name="mine", base_url=server.base_url, key="k", price_provider=vendor)
    found: list[Call] = []
    settings = Settings.model_validate({"prices": config or {}})
    with OpenAI(providers=[mine], ledger="off", config=settings) as client:
        client.core.pipeline.observers.append(lambda call: found.append(call))
        ask(client)
    return found[0]


def transcribe(model: str = "whisper-1") -> Callable[[OpenAI], Any]:
    return lambda client: client.audio.transcriptions.create(model=f"mine/{model}", file=b"RIFF")


@pytest.mark.parametrize(
    ("model", "vendor", "answer", "total", "estimated"),
    [
        ("whisper-1", "openai", {"text": "x", "usage": {"type": "duration", "seconds": 90}}, "0.009", False),
        ("whisper-1", "openai", {"text": "x", "usage": {"type": "duration", "seconds": 7}}, "0.0007", False),
        ("whisper-1", "openai", {"text": "x", "duration": 90.0}, "0.009", True),
        ("whisper-1", "openai", {"text": "x", "duration": "90"}, "0.009", True),
        ("whisper-large-v3", "groq", {"text": "x", "duration": 20}, "0.000616667", True),
    ],
)
def test_transcriptions_by_seconds(
    server: OpenAIServer, model: str, vendor: str, answer: Any, total: str, estimated: bool
) -> None:
    call = call_of(server, transcribe(model), answer, vendor)
    assert (call.cost.total, call.cost.estimated) == (Decimal(total), estimated)
    assert list(call.cost.by_kind) == ["audio_second"]


@pytest.mark.parametrize("seconds", [-1, 10**9, True, "x", None, float("inf")])
def test_invalid_seconds_are_unpriced(server: OpenAIServer, seconds: Any) -> None:
    usage = {"type": "duration", "seconds": seconds}
    call = call_of(server, transcribe(), {"text": "x", "usage": usage})
    assert call.cost.total is None
    assert "count unknown" in call.cost.source


def test_a_transcription_by_tokens_costs_its_tokens(server: OpenAIServer) -> None:
    details = {"audio_tokens": 80, "text_tokens": 20}
    usage = {"type": "tokens", "input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    call = call_of(
        server,
        transcribe("gpt-4o-transcribe"),
        {"text": "x", "usage": usage | {"input_token_details": details}},
    )
    assert call.cost.total
    assert call.usage.audio_prompt == 80


def test_speech_by_characters(server: OpenAIServer) -> None:
    def ask(client: OpenAI, model: str) -> Any:
        return client.audio.speech.create(model=f"mine/{model}", voice="alloy", input="x" * 1000)

    assert call_of(server, lambda client: ask(client, "tts-1"), b"\0").cost.total == Decimal("0.015")
    assert call_of(server, lambda client: ask(client, "tts-1-hd"), b"\0").cost.total == Decimal("0.03")
    by_tokens = call_of(server, lambda client: ask(client, "gpt-4o-mini-tts"), b"\0")
    assert by_tokens.cost.total is None, "the answer reports no tokens"


def test_images_by_size_and_quality(server: OpenAIServer) -> None:
    answer = {"created": 1, "data": [{"b64_json": "eA=="}]}

    def total(**given: Any) -> Decimal | None:
        def ask(client: OpenAI) -> Any:
            return client.images.generate(prompt="x", **given)

        call = call_of(server, ask, answer)
        if call.cost.total is not None:
            assert "https://openai.com/pricing, as of 2023-12-25" in call.cost.source
        return call.cost.total

    assert total(model="mine/dall-e-3") == Decimal("0.04")
    assert total(model="mine/dall-e-3", quality="hd", size="1024x1792") == Decimal("0.12")
    assert total(model="mine/dall-e-2", size="256x256", n=3) == Decimal("0.048")
    assert total(model="mine/dall-e-3", size="999x999") is None
    assert total(model="mine/gpt-image-1") is None, "the answer reports no tokens"


def test_videos_by_seconds_and_size(server: OpenAIServer, recwarn: Any) -> None:
    video = {
        "id": "v", "object": "video", "status": "queued", "model": "sora-2", "created_at": 1, "seconds": "8",
        "size": "1280x720", "progress": 0,
    }  # fmt: skip

    def ask(client: OpenAI) -> Any:
        return client.videos.create(model="mine/sora-2", prompt="x", seconds="8", size="1280x720")

    call = call_of(server, ask, video)
    assert (call.cost.total, call.cost.estimated) == (Decimal("0.80"), True)
    assert "developers.openai.com/api/docs/models/sora-2, as of 2026-11-27" in call.cost.source


def response(*items: Any) -> dict[str, Any]:
    usage = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    head = {"id": "r", "object": "response", "created_at": 1, "model": "gpt-5", "status": "completed"}
    return {**head, "output": list(items), "usage": {**usage, **details}}


SEARCH = {
    "type": "web_search_call",
    "id": "w",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}
OPENED = {**SEARCH, "action": {"type": "open_page", "url": "https://x.example"}}
FILES = {"type": "file_search_call", "id": "f", "status": "completed", "queries": ["x"]}
CODE = {"type": "code_interpreter_call", "id": "c", "status": "completed", "container_id": "a", "code": "1"}
TOKENS = Decimal("0.00225")


def test_tools_that_the_vendor_runs_are_billed(server: OpenAIServer) -> None:
    def ask(client: OpenAI) -> Any:
        return client.responses.create(model="mine/gpt-5", input="x")

    call = call_of(server, ask, response(SEARCH, OPENED, SEARCH, FILES))
    assert call.cost.by_kind["web_search"] == Decimal("0.02")
    assert call.cost.by_kind["file_search"] == Decimal("0.0025")
    assert call.cost.total == TOKENS + Decimal("0.0225")
    assert not call.cost.estimated
    plain = call_of(server, ask, response())
    assert (plain.cost.total, plain.usage.units, plain.usage.searches) == (TOKENS, (), None)
    code = call_of(server, ask, response(CODE, {**CODE, "id": "d"}, {**CODE, "container_id": "b"}))
    assert (code.cost.total, code.cost.estimated) == (TOKENS + Decimal("0.06"), True)
    assert "assumed: 20 minutes a container" in code.cost.source
    assert "https://developers.openai.com/api/docs/pricing, as of 2026-07-30" in code.cost.source


def test_streamed_responses_count_the_same_tools(server: OpenAIServer) -> None:
    body = response(SEARCH, FILES)
    events = [
        {
            "type": "response.created",
            "sequence_number": 0,
            "response": body | {"status": "in_progress", "usage": None},
        },
        {"type": "response.completed", "sequence_number": 1, "response": body},
    ]
    stream = b"".join(
        b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events
    )  # type: ignore[attr-defined]

    def ask(client: OpenAI) -> Any:
        for _ in client.responses.create(model="mine/gpt-5", input="x", stream=True):
            pass

    server.script(reply(200, stream, {"content-type": "text/event-stream"}))
    mine = Provider(name="mine", base_url=server.base_url, key="k", price_provider="openai")
    found: list[Call] = []
    with OpenAI(providers=[mine], ledger="off") as client:
        client.core.pipeline.observers.append(lambda call: found.append(call))
        ask(client)
    assert found[0].cost.total == TOKENS + Decimal("0.0125")


def test_the_memory_of_a_container_decides_its_price(server: OpenAIServer) -> None:
    auto = {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "4g"}}
    shell = {"type": "shell", "environment": {"type": "container_auto", "memory_limit": "64g"}}
    ran = {
        "type": "shell_call", "id": "s", "call_id": "s", "status": "completed",
        "action": {"commands": ["ls"]}, "environment": {"type": "container_reference", "container_id": "c"},
    }  # fmt: skip
    own = {**ran, "environment": {"type": "local"}}

    def ask(client: OpenAI) -> Any:
        return client.responses.create(model="mine/gpt-5", input="x")

    call = call_of(server, ask, response(CODE, ran, own) | {"tools": [auto, shell]})
    assert call.cost.by_kind["code_container"] == Decimal("0.12") + Decimal("1.92")
    assert [unit.kind for unit in call.usage.units] == ["code_container 4g", "code_container 64g"]


def test_a_container_is_billed_once_in_a_session(server: OpenAIServer) -> None:
    body = {"id": "cntr_1", "object": "container", "created_at": 1, "name": "x", "status": "running"}
    answers = [response({**CODE, "container_id": name}) for name in ("q", "q", "w")]
    server.script(*(reply(200, json.dumps(each).encode(), JSON) for each in (body, *answers)))
    mine = Provider(name="openai", base_url=server.base_url, key="k", price_provider="openai")
    found: list[Call] = []
    with OpenAI(providers=[mine], ledger="off") as client:
        client.core.pipeline.observers.append(lambda call: found.append(call))
        client.containers.create(name="x", memory_limit="16g")  # type: ignore[call-arg]
        for _ in range(3):
            client.responses.create(model="openai/gpt-5", input="x")
    costs = [call.cost.by_kind.get("code_container") for call in found]
    assert costs == [Decimal("0.48"), Decimal("0.03"), None, Decimal("0.03")]
    assert [call.operation for call in found] == ["container", *["response"] * 3]


def test_a_tool_without_a_price_is_named_and_never_free(server: OpenAIServer) -> None:
    def ask(client: OpenAI) -> Any:
        return client.responses.create(model="mine/m", input="x")

    prices = {"mine/m": {"input": "1", "output": "1"}}
    used = response(SEARCH, FILES, CODE)
    call = call_of(server, ask, used, "together", prices)
    assert (call.cost.total, call.cost.estimated) == (Decimal("0.0011"), True)
    missing = "without a price for 1 × file_search, 1 × code_container 1g, 1 × web_search"
    assert missing in call.cost.source
    units = {"file_search": "0.1", "code_container": "0.2", "web_search": "0.3"}
    table: dict[str, Any] = {**prices["mine/m"], "units": units}
    call = call_of(server, ask, used, "together", {"mine/m": table})
    assert (call.cost.total, call.cost.estimated) == (Decimal("0.6011"), False)


def test_a_table_of_units_alone_overrides_the_vendors_price_and_leaves_tokens_to_the_catalogue(
    server: OpenAIServer,
) -> None:
    def ask(client: OpenAI) -> Any:
        return client.responses.create(model="mine/gpt-5", input="x")

    units = {"mine/*": {"units": {"code_container 1g": "0.0075"}}}
    call = call_of(server, ask, response(CODE), config=units)
    assert (call.cost.total, call.cost.estimated) == (TOKENS + Decimal("0.0075"), False)


@pytest.mark.parametrize("amount", [-1, 1.5, "many", None, 10**12, True])
def test_an_invalid_count_in_a_request_is_unknown(amount: Any) -> None:
    method = ApiMethod(name="images.generate", verb="POST", path="/images/generations", metered=True)
    assert requested_usage(Request(method, "mine/dall-e-3", {"n": amount})) == Usage()
