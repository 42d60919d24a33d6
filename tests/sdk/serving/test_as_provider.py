"""A specclient server as a provider: its preset is correct, and callers get only what they requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from gateway_server import Served

from specclient import BadRequestError, OpenAI, Settings
from specclient.providers import PRESETS
from specclient.telemetry.probe import ProbeReply, probe
from specclient.types.capabilities import Capabilities

ASK = [{"role": "user", "content": "def fibonacci(n):"}]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(ledger="off") as server:
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    tables = {"providers": {"specclient": {"base_url": served.base_url}}, "ledger": "off"}
    with OpenAI(config=Settings.model_validate(tables)) as made:
        yield made


@pytest.fixture(autouse=True)
def unpriced_models_warn_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", logger="specclient")


def test_a_response_includes_its_speculation(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="specclient/local/demo", messages=ASK, max_tokens=24)
    reported = answer.meta.speculation
    assert reported is not None
    assert (reported.method, reported.source) == ("draft", "specclient")
    assert reported.steps is not None


@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_includes_speculation_without_an_unrequested_chunk(client: OpenAI, usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    with client.chat.completions.create(
        model="specclient/local/demo", messages=ASK, max_tokens=24, stream=True, **options
    ) as stream:
        chunks = list(stream)
    assert [bool(chunk.choices) for chunk in chunks].count(False) == usage
    reported = stream.meta.speculation
    assert reported is not None
    assert (reported.method, reported.source) == ("draft", "specclient")


def test_the_servers_meta_chunk_is_returned_when_requested(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="specclient/local/demo",
        messages=ASK,
        max_tokens=8,
        stream=True,
        extra_body={"specclient": {"meta": True}},
    )
    reported = [
        chunk.model_extra["specclient"] for chunk in stream if "specclient" in (chunk.model_extra or {})
    ]
    assert len(reported) == 1
    assert reported[0]["speculation"]["method"] == "draft"


def test_a_raw_stream_body_holds_only_what_was_requested(client: OpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(
        model="specclient/local/demo", messages=ASK, max_tokens=8, stream=True
    ) as response:
        body = response.read().decode()
    assert "data: [DONE]" in body
    assert '"specclient"' not in body
    assert '"choices":[]' not in body


def test_a_prediction_is_honoured(client: OpenAI) -> None:
    plain = client.chat.completions.create(
        model="specclient/local/demo-target", messages=ASK, max_tokens=24, temperature=0
    )
    text = plain.choices[0].message.content
    assert text
    predicted = client.chat.completions.create(
        model="specclient/local/demo-target",
        messages=ASK,
        max_tokens=24,
        temperature=0,
        prediction={"type": "content", "content": text},
    )
    assert predicted.choices[0].message.content == text
    assert predicted.meta.speculation is not None
    assert predicted.meta.speculation.predicted_accepted


@pytest.mark.anyio
async def test_a_probe_confirms_the_preset(client: OpenAI) -> None:
    async def ask(kind: str, _purpose: str, params: Mapping[str, Any]) -> ProbeReply:
        create = client.chat.completions.create if kind == "chat" else client.completions.create
        own = {name: value for name, value in params.items() if name in ("messages", "prompt", "max_tokens")}
        tried = {name: value for name, value in params.items() if name not in own}
        try:
            return ProbeReply(create(model="specclient/local/demo-target", extra_body=tried, **own))
        except BadRequestError as error:
            return ProbeReply(refusal=str(error))

    report = await probe(ask, Capabilities())
    found = report.capabilities()
    known = PRESETS["specclient"].capabilities
    assert (found["prediction"], found["verification"]) == (known.prediction, known.verification)
    assert set(found["telemetry"]) <= set(known.telemetry or ())
