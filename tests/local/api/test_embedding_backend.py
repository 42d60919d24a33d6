"""Embedding models behind local/NAME: the client, the openai package's, the server, budgets, errors."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from gateway_server import Served
from keyed_server import KeyedServer
from loopback_server import OpenAIServer
from specclient_local.api.backend import create
from tiny_embeddings import write_embedding_checkpoint

import specclient
from specclient import AsyncOpenAI, OpenAI
from specclient.config import Settings
from specclient.errors import (
    BadRequestError,
    BudgetExceededError,
    CheckpointError,
    ConfigurationError,
    ContextOverflowError,
    NoRouteError,
    NotFoundError,
    UnsupportedParameterError,
)
from specclient.serving.warmup import preload
from specclient.types import inference_methods
from specclient.types.request import Request

TEXTS = ["def fibonacci(n):", "a", "the quick brown fox"]
LONG = "x y z " * 40
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_embedding_checkpoint(
        tmp_path_factory.mktemp("model"), kind="bert", prompts={"query": "q: ", "document": "d: "}
    )


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Any]:
    row = {"kind": "embedding", "path": str(folder)}
    return {
        "tiny": row,
        "query": {**row, "prompt_name": "query"},
        "cut": {**row, "truncate": True},
        "missing": {**row, "path": str(folder / "1_Pooling")},
    }


@pytest.fixture(scope="module")
def settings(models: dict[str, Any]) -> Settings:
    return Settings.model_validate(
        {"ledger": "off", "local": {"models": models, "threads": 1, "device_cost_per_hour": 3600}}
    )


@pytest.fixture(scope="module")
def client(settings: Settings, tmp_path_factory) -> Iterator[OpenAI]:
    ledger = tmp_path_factory.mktemp("ledger") / "ledger.sqlite3"
    with OpenAI(config=settings, ledger=str(ledger)) as client:
        yield client


def vectors(answer: Any) -> np.ndarray:
    return np.array([each.embedding for each in answer.data], dtype=np.float32)


def test_texts_become_vectors_with_exact_usage_and_cost(client: OpenAI) -> None:
    answer = client.embeddings.create(model="local/tiny", input=TEXTS)
    assert vectors(answer).shape == (3, 32)
    assert [each.index for each in answer.data] == [0, 1, 2]
    np.testing.assert_allclose(np.linalg.norm(vectors(answer), axis=1), 1, atol=1e-6)
    one = client.embeddings.create(model="local/tiny", input=TEXTS[2])
    np.testing.assert_allclose(vectors(one)[0], vectors(answer)[2], atol=1e-6)
    counted = [client.embeddings.create(model="local/tiny", input=text).usage.prompt_tokens for text in TEXTS]
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (sum(counted), sum(counted))
    meta = answer.meta
    assert (meta.usage.prompt, meta.usage.completion, meta.usage.estimated) == (sum(counted), 0, False)
    assert Decimal(0) < meta.cost.total <= Decimal(str(meta.latency_s)) + Decimal("0.000001")  # $1 a second
    assert (meta.cost.estimated, list(meta.cost.by_kind)) == (False, ["engine"])
    row = next(row for row in client.ledger.rows() if row.id == meta.id)
    assert (row.prompt_tokens, row.completion_tokens, row.engine_s > 0) == (sum(counted), 0, True)


def test_encodings_and_dimensions(client: OpenAI) -> None:
    numbers = client.embeddings.create(model="local/tiny", input=TEXTS, encoding_format="float")
    packed = client.embeddings.create(model="local/tiny", input=TEXTS, encoding_format="base64")
    for text, array in zip(packed.data, vectors(numbers), strict=True):
        assert np.frombuffer(base64.b64decode(text.embedding), "<f4").tolist() == array.tolist()
    short = vectors(client.embeddings.create(model="local/tiny", input=TEXTS, dimensions=4))
    head = vectors(numbers)[:, :4]
    np.testing.assert_allclose(short, head / np.linalg.norm(head, axis=1, keepdims=True), atol=1e-6)


def test_token_ids_are_used_as_they_are(client: OpenAI) -> None:
    text = client.embeddings.create(model="local/tiny", input="ab")
    begin, end = 0, 1
    letters = [ord(letter) - ord("!") + 2 for letter in "ab"]
    ids = client.embeddings.create(model="local/tiny", input=[begin, *letters, end])
    several = client.embeddings.create(model="local/tiny", input=[[begin, *letters, end], [5, 6]])
    np.testing.assert_allclose(vectors(ids), vectors(text), atol=1e-6)
    assert (len(several.data), several.usage.prompt_tokens) == (2, 6)


def test_prompts_by_model_and_by_request(client: OpenAI) -> None:
    configured = client.embeddings.create(model="local/query", input="a")
    asked = client.embeddings.create(model="local/tiny", input="a", extra_body={"prompt_name": "query"})
    plain = client.embeddings.create(model="local/tiny", input="q: a")
    assert vectors(configured).tolist() == vectors(asked).tolist() == vectors(plain).tolist()
    other = client.embeddings.create(model="local/query", input="a", extra_body={"prompt_name": "document"})
    assert vectors(other).tolist() != vectors(configured).tolist()


def test_texts_beyond_the_context_are_refused_or_cut(client: OpenAI) -> None:
    with pytest.raises(ContextOverflowError, match="the model takes 64: shorten it, or set truncate_p"):
        client.embeddings.create(model="local/tiny", input=["a", LONG])
    cut = client.embeddings.create(model="local/cut", input=LONG)
    asked = client.embeddings.create(
        model="local/tiny", input=LONG, extra_body={"truncate_prompt_tokens": -1}
    )
    fewer = client.embeddings.create(
        model="local/tiny", input=LONG, extra_body={"truncate_prompt_tokens": 10}
    )
    assert vectors(cut).tolist() == vectors(asked).tolist()
    assert (cut.usage.prompt_tokens, fewer.usage.prompt_tokens) == (64, 10)


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"input": []}, "input", r"input is \[\]; allowed is a string, a list of token ids"),
    ({"input": [[]]}, "input", r"input is \[\]"),
    ({"input": [1.5]}, "input", r"input is 1\.5"),
    ({"input": [5, True]}, "input", r"input is 5"),
    ({"input": ["a", 5]}, "input", r"input is 5"),
    ({"input": [5, 10**9]}, "input", r"token id 1000000000; the model's are 0 to 299"),
    ({"dimensions": 0}, "dimensions", r"dimensions is 0; allowed is an integer of at least 1"),
    ({"dimensions": 33}, "dimensions", r"dimensions is 33; allowed is 1 to 32, the size of this model's"),
    ({"encoding_format": "int8"}, "encoding_format", r"encoding_format is 'int8'; allowed is 'float' or"),
    ({"extra_body": {"truncate_prompt_tokens": 0}}, "truncate_prompt_tokens", r"is 0; allowed is -1"),
    ({"extra_body": {"prompt_name": "passage"}}, "prompt_name", r"the prompts of the model are document, q"),
    ({"extra_body": {"temperature": 1}}, "temperature", r"temperature=1 is not supported by local/tiny"),
]


@pytest.mark.parametrize(("params", "name", "message"), BAD, ids=[str(params) for params, _, _ in BAD])
def test_a_bad_parameter_is_named(client: OpenAI, params: dict[str, Any], name: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        client.embeddings.create(model="local/tiny", **{"input": "a", **params})
    assert caught.value.param == name
    if name == "temperature":
        assert isinstance(caught.value, UnsupportedParameterError)


def test_requests_are_bounded(models: dict[str, Any]) -> None:
    config = Settings.model_validate(
        {
            "ledger": "off",
            "local": {"models": models, "threads": 1},
            "server": {"requests": {"embedding_inputs": 2, "embedding_tokens": 20}},
        }
    )
    with OpenAI(config=config) as client:
        for text, limit in (
            (["a", "b", "c"], "input has 3 texts; allowed are at most 2 in a request.*embedding_inputs"),
            (
                ["a" * 15, "b" * 15],
                "input has more than 20 tokens, which a request may .*embedding_tokens",
            ),
            ("a" * 700, "the size of 700 characters; allowed are at most 640.*embedding_tokens"),
            ([5] * 21, "the size of 672 characters"),
        ):
            with pytest.raises(BadRequestError, match=limit) as caught:
                client.embeddings.create(model="local/cut", input=text)
            assert (caught.value.param, caught.value.code) == ("input", "too_many_inputs")
        assert len(client.embeddings.create(model="local/tiny", input=["a", "b"]).data) == 2


def test_calls_of_the_wrong_kind_are_one_clear_error(client: OpenAI) -> None:
    embeds = "local/tiny is a model of kind 'embedding', which serves embeddings.create; name a model of kind"
    calls = (
        lambda: client.chat.completions.create(model="local/tiny", messages=MESSAGES),
        lambda: list(client.chat.completions.create(model="local/tiny", messages=MESSAGES, stream=True)),
        lambda: client.completions.create(model="local/tiny", prompt="x"),
    )
    for call in calls:
        with pytest.raises(BadRequestError, match=embeds) as caught:
            call()
        assert (caught.value.status_code, caught.value.code) == (400, "wrong_model_kind")
    with pytest.raises(BadRequestError, match="local/demo is a model of kind 'chat'") as caught:
        client.embeddings.create(model="local/demo", input="x")
    assert (caught.value.param, caught.value.code) == ("model", "wrong_model_kind")
    with pytest.raises(NotFoundError, match=r"local/none is unknown; known are .*local/tiny"):
        client.embeddings.create(model="local/none", input="x")


def test_a_folder_is_an_embedding_model_by_its_files(client: OpenAI, folder: Path) -> None:
    answer = client.embeddings.create(model=f"local/{folder}", input="a")
    assert (
        vectors(answer).tolist() == vectors(client.embeddings.create(model="local/tiny", input="a")).tolist()
    )


def test_a_model_that_cannot_be_loaded_fails_with_its_file(client: OpenAI) -> None:
    with pytest.raises(CheckpointError, match=r"1_Pooling has no modules\.json"):
        client.embeddings.create(model="local/missing", input="a")


def test_auto_takes_models_of_the_right_kind(settings: Settings) -> None:
    config = settings.model_copy(update={"candidates": ("local/demo", "local/tiny")})
    with OpenAI(config=config) as client:
        answer = client.embeddings.create(model="auto", input="a")
        assert answer.meta.route.chosen == "local/tiny"
        (other,) = (row for row in answer.meta.route.candidates if row.route == "local/demo")
        assert "kind 'chat'" in other.reason
        router = client.core.pipeline.router
        assert (
            router.decide(Request(inference_methods.COMPLETION, "auto", {"prompt": "a"})).chosen
            == "local/demo"
        )
        only = specclient.Policy(allow=["local/tiny"])
        with pytest.raises(NoRouteError, match="kind 'embedding'"):
            client.chat.completions.create(model="auto", messages=MESSAGES, policy=only)


@pytest.mark.anyio
async def test_async_clients_and_concurrent_calls(settings: Settings) -> None:
    async with AsyncOpenAI(config=settings) as client:
        answers = await asyncio.gather(
            *(client.embeddings.create(model="local/tiny", input=[text] * 3) for text in TEXTS * 4)
        )
        assert len(answers) == 12
        for text, answer in zip(TEXTS * 4, answers, strict=True):
            alone = await client.embeddings.create(model="local/tiny", input=text)
            np.testing.assert_allclose(vectors(answer), np.repeat(vectors(alone), 3, axis=0), atol=1e-6)


def test_the_openai_packages_client(client: OpenAI, settings: Settings) -> None:
    expected = vectors(client.embeddings.create(model="local/tiny", input=TEXTS))
    with openai.OpenAI(
        api_key="x", http_client=httpx.Client(transport=specclient.transport(config=settings))
    ) as plain:
        answer = plain.embeddings.create(model="local/tiny", input=TEXTS)
        np.testing.assert_allclose(vectors(answer), expected, atol=1e-6)
        numbers = plain.embeddings.create(model="local/tiny", input=TEXTS, encoding_format="float")
        np.testing.assert_allclose(vectors(numbers), expected, atol=1e-6)
        with pytest.raises(openai.BadRequestError, match="kind 'embedding'"):
            plain.chat.completions.create(model="local/tiny", messages=MESSAGES)
        with pytest.raises(openai.BadRequestError, match="kind 'chat'"):
            plain.embeddings.create(model="local/demo", input="a")


def test_the_server(client: OpenAI, settings: Settings) -> None:
    expected = vectors(client.embeddings.create(model="local/tiny", input=TEXTS))
    with Served(settings) as served, openai.OpenAI(api_key="x", base_url=served.base_url) as plain:
        answer = plain.embeddings.create(model="local/tiny", input=TEXTS)
        np.testing.assert_allclose(vectors(answer), expected, atol=1e-6)
        assert answer.usage.prompt_tokens > 0
        extra = {"encoding_format": "float", "extra_body": {"specclient": {"meta": True}}}
        numbers = plain.embeddings.create(model="local/tiny", input=TEXTS, **extra)
        np.testing.assert_allclose(vectors(numbers), expected, atol=1e-6)
        assert "local/tiny" in {model.id for model in plain.models.list()}
        with pytest.raises(openai.BadRequestError, match="kind 'embedding'") as caught:
            plain.chat.completions.create(model="local/tiny", messages=MESSAGES)
        assert caught.value.code == "wrong_model_kind"
        with pytest.raises(openai.BadRequestError, match="the model takes 64") as caught:
            plain.embeddings.create(model="local/tiny", input=LONG)
        assert caught.value.code == "context_length_exceeded"
        many = httpx.post(
            f"{served.base_url}/embeddings", json={"model": "local/tiny", "input": ["a"] * 2049}
        )
        assert (many.status_code, many.json()["error"]["code"]) == (400, "too_many_inputs")


@pytest.mark.anyio
async def test_a_model_is_loaded_before_the_first_request_without_a_record(
    settings: Settings, tmp_path: Path
) -> None:
    async with AsyncOpenAI(config=settings, ledger=str(tmp_path / "l.sqlite3")) as client:
        await preload(client, ["local/tiny"])
        backend: Any = client.pipeline.destinations.get("local")
        assert [state.name for state in backend.state()] == ["tiny"]
        assert client.ledger.rows() == []


def test_keys_that_may_not_use_a_model_are_refused(settings: Settings, tmp_path: Path) -> None:
    with OpenAIServer() as upstream:
        tables = settings.model_dump(exclude_unset=True)
        home = KeyedServer(upstream, tmp_path / "keys.sqlite3", tables)
        try:
            key = home.make("web", models=["local/query"])
            with home.served:
                statuses = {
                    model: home.ask(key, "/embeddings", {"model": model, "input": "a"}).status_code
                    for model in ("local/query", "local/tiny")
                }
        finally:
            home.store.close()
    assert statuses == {"local/query": 200, "local/tiny": 404}


def test_budgets_count_and_stop_calls(settings: Settings, tmp_path: Path) -> None:
    tables = settings.model_dump(exclude_unset=True)
    tables |= {"ledger": str(tmp_path / "l.sqlite3"), "budgets": {"all": {"tokens": 44}}}
    with OpenAI(config=Settings.model_validate(tables)) as client:
        client.embeddings.create(model="local/tiny", input="x" * 40)
        with pytest.raises(BudgetExceededError):
            client.embeddings.create(model="local/tiny", input="x" * 40)


def test_the_backend_lists_counts_and_reports_its_models(models: dict[str, Any], folder: Path) -> None:
    backend = create({"models": models, "threads": 1})
    listed = {model.id: model for model in backend.models()}
    assert (listed["demo"].kind, listed["demo"].dimensions) == ("chat", None)
    assert asdict(listed["tiny"]) == {
        "id": "tiny", "target": str(folder), "draft": None, "method": "embedding", "context": 64,
        "options": {"threads": 1}, "kind": "embedding", "dimensions": 32,
    }  # fmt: skip
    assert (listed["missing"].context, listed["missing"].dimensions) == (None, None)
    request = Request(inference_methods.EMBEDDING, "local/tiny", {"input": TEXTS})
    assert (backend.count(request, "tiny"), backend.current_load("tiny"), backend.state()) == (None, None, [])
    answer, telemetry = asyncio.run(backend.complete(request, "tiny"))
    assert backend.count(request, "tiny") == answer.usage.prompt_tokens
    assert telemetry.engine_s > 0
    (state,) = backend.state()
    assert (state.name, state.unfinished, state.busy_s) == ("tiny", 0, telemetry.engine_s)
    assert backend.current_load("tiny").running == 0
    asyncio.run(backend.complete(request, "query"))
    assert len(backend.state()) == 1  # models with the same checkpoint share it
    asyncio.run(backend.aclose())
    assert backend.state() == []
    asyncio.run(backend.complete(request, "tiny"))
    asyncio.run(backend.aclose())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"draft": "x"},
            r"local model 'm' of kind 'embedding' has 'draft'; allowed are kind, path, trunc",
        ),
        ({"kind": "rerank"}, r"kind is 'rerank'; allowed are 'chat' and 'embedding'"),
        ({"dtype": "int8"}, r"local model 'm' of kind 'embedding': dtype is 'int8'; allowed are float32"),
        ({"context": 0}, r"context is 0; allowed is None, or an integer of at least 1"),
        ({"truncate": 1}, r"truncate is 1; allowed are true and false"),
        ({"prompt_name": ""}, r"prompt_name is ''; it must be a prompt's name"),
        ({"path": ""}, r"path is ''; it must be a folder or hub id"),
    ],
)
def test_a_bad_table_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        create({"models": {"m": {"kind": "embedding", "path": "x", **values}}})
