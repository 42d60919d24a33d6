"""Our own server as a provider: what its preset says holds, and callers get what they asked for alone."""

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


def test_an_answer_brings_its_speculation(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="specclient/local/demo", messages=ASK, max_tokens=24)
    told = answer.meta.speculation
    assert told is not None
    assert (told.method, told.source) == ("draft", "specclient")
    assert told.steps is not None


@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_brings_it_without_a_chunk_nobody_asked_for(client: OpenAI, usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    with client.chat.completions.create(
        model="specclient/local/demo", messages=ASK, max_tokens=24, stream=True, **options
    ) as stream:
        chunks = list(stream)
    assert [bool(chunk.choices) for chunk in chunks].count(False) == usage
    told = stream.meta.speculation
    assert told is not None
    assert (told.method, told.source) == ("draft", "specclient")


def test_who_asks_for_the_servers_own_words_gets_them(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="specclient/local/demo",
        messages=ASK,
        max_tokens=8,
        stream=True,
        extra_body={"specclient": {"meta": True}},
    )
    told = [chunk.model_extra["specclient"] for chunk in stream if "specclient" in (chunk.model_extra or {})]
    assert len(told) == 1
    assert told[0]["speculation"]["method"] == "draft"


def test_a_body_that_is_handed_on_holds_what_was_asked_for_alone(client: OpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(
        model="specclient/local/demo", messages=ASK, max_tokens=8, stream=True
    ) as response:
        body = response.read().decode()
    assert "data: [DONE]" in body
    assert '"specclient"' not in body
    assert '"choices":[]' not in body


def test_it_honours_a_prediction(client: OpenAI) -> None:
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
async def test_a_probe_of_it_finds_what_the_preset_says(client: OpenAI) -> None:
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
