"""The requests to Vertex AI equal those of google-genai and AnthropicVertex, which read the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import anthropic_bodies
import google.oauth2.credentials
import pytest
from anthropic_requests import REQUESTS, USER
from gemini_bodies import BODIES
from gemini_requests import CASES, camel_case
from google import genai
from google.genai import types
from google_cloud import vertex_settings
from loopback_server import OpenAIServer, Received, events, reply

from specclient import OpenAI, Settings

TOKEN = "ya29.plain"
GEMINI = "gemini-2.5-flash"
CLAUDE = "claude-sonnet-4-5@20250929"
VERSION = "vertex-2023-10-16"
HI: Any = [{"role": "user", "content": "hi"}]
_JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def one_server() -> Iterator[OpenAIServer]:
    """The server that all clients of this module share, because clients are slow to make."""
    with OpenAIServer() as server:
        yield server


@pytest.fixture
def server(one_server: OpenAIServer) -> OpenAIServer:
    one_server.requests.clear()
    return one_server


@pytest.fixture(scope="module")
def ours(one_server: OpenAIServer) -> Iterator[OpenAI]:
    with OpenAI(config=vertex_settings(one_server), max_retries=0, ledger="off") as client:
        yield client


@pytest.fixture(scope="module")
def google_package(one_server: OpenAIServer) -> Iterator[Any]:
    with genai.Client(
        vertexai=True,
        project="p-1",
        location="europe-west4",
        credentials=google.oauth2.credentials.Credentials(TOKEN),  # type: ignore[no-untyped-call]
        http_options=types.HttpOptions(base_url=one_server.url),
    ) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic_package(one_server: OpenAIServer) -> Iterator[Any]:
    with anthropic.AnthropicVertex(
        project_id="p-1",
        region="europe-west4",
        access_token=TOKEN,
        base_url=f"{one_server.url}/v1",
        max_retries=0,
    ) as client:
        yield client


def _check_same_target(ours: Received, theirs: Received) -> None:
    assert (ours.method, ours.path, ours.query) == (theirs.method, theirs.path, theirs.query)
    assert ours.headers["authorization"] == theirs.headers["authorization"] == f"Bearer {TOKEN}"
    assert ours.headers.get("content-type") == (theirs.headers["content-type"] if theirs.body else None)
    assert "x-goog-api-key" not in ours.headers
    assert "anthropic-version" not in ours.headers


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stream", [False, True])
def test_chats_with_gemini_equal_those_of_google_genai(
    server: OpenAIServer, ours: OpenAI, google_package: Any, name: str, stream: bool
) -> None:
    params, contents, config = CASES[name]
    params = {**params, "extra_body": params.get("extra")}
    params.pop("extra", None)
    answer = events((BODIES / "text.sse").read_bytes())
    whole = reply(200, json.loads((BODIES / "text.json").read_bytes()))
    server.script(*[answer if stream else whole] * 2)
    received: Any = ours.chat.completions.create(model=f"vertex/{GEMINI}", stream=stream, **params)
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in received)
        pieces = google_package.models.generate_content_stream(model=GEMINI, contents=contents, config=config)
        expected = "".join(piece.text or "" for piece in pieces)
    else:
        text = received.choices[0].message.content
        expected = google_package.models.generate_content(model=GEMINI, contents=contents, config=config).text
    assert text == expected
    first, second = server.requests
    _check_same_target(first, second)
    bodies = first.json, camel_case(second.json)
    for body in bodies:
        body.get("tools", []).sort(key=str)  # the order of tools is irrelevant
    if not bodies[1].get("generationConfig", True):
        del bodies[1]["generationConfig"]  # the package sends an empty one
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("stream", [False, True])
def test_chats_with_claude_equal_those_of_the_anthropic_package(
    server: OpenAIServer, ours: OpenAI, anthropic_package: Any, name: str, stream: bool
) -> None:
    params, native = REQUESTS[name]
    model = "claude-opus-5" if "reasoning_effort" in params else CLAUDE  # the former thinks adaptively
    # Without a timeout the package refuses long requests. By default it asks for a newer version, which
    # rejects parameters that callers of OpenAI's API send.
    native = {"max_tokens": 64_000, "timeout": 9, "extra_body": {"anthropic_version": VERSION}, **native}
    whole = reply(200, anthropic_bodies.body("text.json"), _JSON)
    server.script(*[events(anthropic_bodies.body("text.sse")) if stream else whole] * 2)
    received: Any = ours.chat.completions.create(model=f"vertex/{model}", stream=stream, **params)
    expected = anthropic_package.messages.create(model=model, stream=stream, **native)
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in received)
        deltas = (e.delta for e in expected if e.type == "content_block_delta")
        assert text == "".join(delta.text for delta in deltas if delta.type == "text_delta")
    else:
        texts = (block.text for block in expected.content if block.type == "text")
        assert received.choices[0].message.content == "".join(texts)
    first, second = server.requests
    _check_same_target(first, second)
    sent = {key: value for key, value in second.json.items() if (key, value) != ("stream", False)}
    assert first.json == sent
    assert "model" not in first.json


@pytest.mark.parametrize(
    ("model", "texts", "config", "answer"),
    [
        (
            "text-embedding-005",
            ["a", "b"],
            {"output_dimensionality": 3, "task_type": "RETRIEVAL_QUERY", "auto_truncate": False},
            {
                "predictions": [
                    {"embeddings": {"values": [1.0, 2.0], "statistics": {"token_count": 3}}},
                    {"embeddings": {"values": [0.5, 0.0], "statistics": {"token_count": 2.0}}},
                ]
            },
        ),
        (
            "gemini-embedding-001",
            ["a"],
            {"output_dimensionality": 3},
            {"embedding": {"values": [1.0, 2.0]}, "usageMetadata": {"promptTokenCount": 5}},
        ),
        (
            "gemini-embedding-2",
            ["a", "b"],
            {"output_dimensionality": 3, "task_type": "RETRIEVAL_QUERY"},
            {"embeddings": [{"values": [1.0, 2.0]}, {"values": [0.5, 0.0]}]},
        ),
    ],
)
def test_embeddings_equal_those_of_google_genai(
    server: OpenAIServer,
    ours: OpenAI,
    google_package: Any,
    model: str,
    texts: list[str],
    config: dict[str, Any],
    answer: dict[str, Any],
) -> None:
    server.script(reply(200, answer), reply(200, answer))
    names = {"task_type": "taskType", "auto_truncate": "autoTruncate"}
    extra = {names[name]: value for name, value in config.items() if name in names}
    found = ours.embeddings.create(model=f"vertex/{model}", input=texts, dimensions=3, extra_body=extra)
    contents = [types.Content(role="user", parts=[types.Part(text=text)]) for text in texts]
    given: Any = contents if "gemini" in model else texts
    expected = google_package.models.embed_content(model=model, contents=given, config=config)
    first, second = server.requests
    _check_same_target(first, second)
    assert first.json == second.json
    assert [row.embedding for row in found.data] == [each.values for each in expected.embeddings]
    known = {"text-embedding-005": 5, "gemini-embedding-001": 5}
    assert found.meta.usage.prompt == known.get(model, found.meta.usage.prompt)
    assert found.meta.usage.estimated == (model not in known)


def test_token_counts_equal_those_of_the_packages(
    server: OpenAIServer, google_package: Any, anthropic_package: Any
) -> None:
    server.script(*[reply(200, {"totalTokens": 7})] * 2, *[reply(200, {"input_tokens": 8})] * 2)
    settings = vertex_settings(server).model_copy(update={"default_provider": "vertex"})
    contents = [{"role": "user", "parts": [{"text": "hi"}]}]
    with OpenAI(config=settings) as client:
        body: Any = {"generateContentRequest": {"model": f"models/{GEMINI}", "contents": contents}}
        counted: Any = client.post(f"/models/{GEMINI}:countTokens", body=body, cast_to=object)
        assert counted == {"totalTokens": 7}
        assert google_package.models.count_tokens(model=GEMINI, contents="hi").total_tokens == 7
        messages: Any = {"model": CLAUDE, "messages": USER}
        counted = client.post("/messages/count_tokens", body=messages, cast_to=object)
        assert counted == {"input_tokens": 8}
        version = {"anthropic_version": VERSION}
        theirs = anthropic_package.messages.count_tokens(model=CLAUDE, messages=USER, extra_body=version)
        assert theirs.input_tokens == 8
    one, two, three, four = server.requests
    _check_same_target(one, two)
    assert one.json == two.json
    _check_same_target(three, four)
    assert three.json == four.json


def test_models_equal_those_of_google_genai(server: OpenAIServer, ours: OpenAI, google_package: Any) -> None:
    rows = [{"name": f"publishers/google/models/{GEMINI}", "versionId": "default"}]
    server.script(*[reply(200, {"publisherModels": rows})] * 2)
    found = [model.id for model in ours.models.list(provider="vertex")]
    assert found == [GEMINI]
    assert [each.name for each in google_package.models.list(config={"page_size": 100})] == [rows[0]["name"]]
    first, second = server.requests[:2]
    _check_same_target(first, second)


def test_express_mode_equals_that_of_google_genai(server: OpenAIServer) -> None:
    server.script(*[reply(200, json.loads((BODIES / "text.json").read_bytes()))] * 2)
    options = types.HttpOptions(base_url=server.url)
    with genai.Client(vertexai=True, api_key="AQ.express", http_options=options) as package:
        package.models.generate_content(model=GEMINI, contents="hi")
    settings = vertex_settings(server, api_key="AQ.express", project=None, location=None)
    with OpenAI(config=settings) as client:
        client.chat.completions.create(model=f"vertex/{GEMINI}", messages=HI)
    theirs, ours = server.requests
    assert (ours.path, ours.query) == (theirs.path, theirs.query)
    assert ours.headers["x-goog-api-key"] == theirs.headers["x-goog-api-key"] == "AQ.express"
    assert "authorization" not in ours.headers
    assert ours.json == theirs.json


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("global", "https://aiplatform.googleapis.com"),
        ("us", "https://aiplatform.us.rep.googleapis.com"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com"),
        ("us-east5", "https://us-east5-aiplatform.googleapis.com"),
    ],
)
def test_hosts_of_locations_equal_those_of_the_packages(location: str, host: str) -> None:
    table = {"project": "p-1", "location": location}
    with OpenAI(config=Settings.model_validate({"providers": {"vertex": table}})) as client:
        endpoint = client.pipeline.destinations.endpoints["vertex"]
    assert endpoint.base_url == host
    credentials = google.oauth2.credentials.Credentials(TOKEN)  # type: ignore[no-untyped-call]
    with genai.Client(vertexai=True, project="p-1", location=location, credentials=credentials) as package:
        assert package._api_client._http_options.base_url == f"{host}/"
    with anthropic.AnthropicVertex(project_id="p-1", region=location, access_token=TOKEN) as theirs:
        assert str(theirs.base_url) == f"{host}/v1/"
