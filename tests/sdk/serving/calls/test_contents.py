"""Google's official client against the server: the engine, and upstreams of each kind."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest
from anthropic_bodies import body as anthropic_body
from gateway_server import Served
from gemini_bodies import BODIES
from google import genai
from google.genai import errors, types
from keyed_server import KeyedServer
from loopback_server import OpenAIServer, events, reply

from specclient.config import Settings

MODEL = "local/demo"
PROMPT = "def f(x):"
SLOW = {"error": {"message": "slow"}}
SCHEMA: Any = {
    "type": "OBJECT",
    "properties": {"city": {"type": "STRING", "enum": ["Ulm", "Bonn"]}},
    "required": ["city"],
}
SKY = types.Tool(function_declarations=[types.FunctionDeclaration(name="sky", parameters=SCHEMA)])


def _client(served: Served, key: str = "any") -> genai.Client:
    options = types.HttpOptions(base_url=served.url, api_version="v1beta")
    return genai.Client(api_key=key, http_options=options)


def _config(**fields: Any) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(**{"temperature": 0, "max_output_tokens": 24, **fields})


def _recorded(name: str) -> bytes:
    return (BODIES / name).read_bytes()


@pytest.fixture
def client(local_server: Served) -> genai.Client:
    return _client(local_server)


@pytest.fixture(scope="module")
def upstream() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
def many(upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose providers of all kinds are ``upstream``."""
    tables = {
        "ledger": str(tmp_path_factory.mktemp("ledger") / "calls.db"),
        "default_provider": "mine",
        "candidates": ["gemini/gemini-3-pro"],
        "aliases": {"quick": "gemini/gemini-3-pro"},
        "providers": {
            "mine": {"base_url": upstream.base_url, "api_key": "sk-mine"},
            "anthropic": {"base_url": upstream.base_url, "api_key": "sk-ant"},
            "gemini": {"base_url": f"{upstream.url}/v1beta", "api_key": "sk-gem"},
            "vertex": {
                "base_url": upstream.url, "api_key": "ya29.gate", "key_header": "authorization",
                "project": "p-1",
            },
        },
    }  # fmt: skip
    with Served(Settings.model_validate(tables)) as served:
        yield served


@pytest.fixture
def passed_on(many: Served, upstream: OpenAIServer) -> genai.Client:
    upstream.requests.clear()
    upstream._script.clear()
    return _client(many)


def test_content_equals_the_chat_completion_of_its_input(
    client: genai.Client, local_server: Served, connect: Callable[[str], openai.OpenAI]
) -> None:
    found = client.models.generate_content(
        model=MODEL, contents=PROMPT, config=_config(system_instruction="brief", candidate_count=2)
    )
    chat = connect(local_server.base_url).chat.completions.create(
        model=MODEL, max_tokens=24, temperature=0, n=2,
        messages=[{"role": "system", "content": "brief"}, {"role": "user", "content": PROMPT}],
    )  # fmt: skip
    assert found.candidates is not None
    texts = [candidate.content.parts[0].text for candidate in found.candidates]  # type: ignore[index,union-attr]
    assert texts == [choice.message.content for choice in chat.choices]
    assert found.candidates[0].finish_reason == "MAX_TOKENS"
    assert chat.usage is not None
    assert found.usage_metadata is not None
    assert found.usage_metadata.prompt_token_count == chat.usage.prompt_tokens
    assert found.usage_metadata.candidates_token_count == 48
    assert found.model_version == MODEL


def test_streamed_events_add_up_to_the_content(client: genai.Client) -> None:
    whole = client.models.generate_content(model=MODEL, contents=PROMPT, config=_config())
    pieces = list(client.models.generate_content_stream(model=MODEL, contents=PROMPT, config=_config()))
    assert len(pieces) > 2
    assert "".join(piece.text or "" for piece in pieces) == whole.text
    assert {piece.response_id for piece in pieces} == {pieces[0].response_id}
    last = pieces[-1]
    assert last.candidates[0].finish_reason == "MAX_TOKENS"  # type: ignore[index]
    assert last.usage_metadata.candidates_token_count == 24  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
@pytest.mark.anyio
async def test_the_asynchronous_client(local_server: Served) -> None:
    client = _client(local_server).aio
    whole = await client.models.generate_content(model=MODEL, contents=PROMPT, config=_config())
    stream = await client.models.generate_content_stream(model=MODEL, contents=PROMPT, config=_config())
    assert "".join([piece.text or "" async for piece in stream]) == whole.text
    counted = await client.models.count_tokens(model=MODEL, contents=PROMPT)
    assert counted.total_tokens == whole.usage_metadata.prompt_token_count  # type: ignore[union-attr]


def test_output_follows_a_schema_and_log_probabilities_are_returned(client: genai.Client) -> None:
    config = _config(response_mime_type="application/json", response_schema=SCHEMA, max_output_tokens=60)
    found = client.models.generate_content(model=MODEL, contents=PROMPT, config=config)
    assert json.loads(found.text or "")["city"] in ("Ulm", "Bonn")
    scored = client.models.generate_content(
        model=MODEL, contents=PROMPT, config=_config(response_logprobs=True, logprobs=2, max_output_tokens=3)
    )
    result = scored.candidates[0].logprobs_result  # type: ignore[index]
    assert result is not None
    assert [len(top.candidates or []) for top in result.top_candidates or []] == [2, 2, 2]


def test_a_function_is_called_and_its_result_is_in_the_prompt(tool_server: Served) -> None:
    client, model = _client(tool_server), "local/taught"
    calling = types.ToolConfig(
        function_calling_config=types.FunctionCallingConfig(mode="ANY", allowed_function_names=["sky"])  # type: ignore[arg-type]
    )
    config = _config(tools=[SKY], tool_config=calling, max_output_tokens=60)
    first = client.models.generate_content(model=model, contents="The sky?", config=config)
    (call,) = first.function_calls or []
    assert (call.name, call.args) in (("sky", {"city": "Ulm"}), ("sky", {"city": "Bonn"}))
    pieces = list(client.models.generate_content_stream(model=model, contents="The sky?", config=config))
    assert [call.args for piece in pieces for call in piece.function_calls or []] == [call.args]
    answered = types.Part.from_function_response(name="sky", response={"result": "blue"})
    turns: Any = [
        types.Content(role="user", parts=[types.Part(text="The sky?")]),
        first.candidates[0].content,  # type: ignore[index]
        types.Content(role="user", parts=[answered]),
    ]
    second = client.models.generate_content(model=model, contents=turns, config=_config())
    assert second.text
    assert second.usage_metadata.prompt_token_count > first.usage_metadata.prompt_token_count  # type: ignore


def test_errors_have_googles_form_and_status(client: genai.Client, local_server: Served) -> None:
    search = types.Tool(google_search=types.GoogleSearch())
    with pytest.raises(errors.ClientError, match="which only Gemini's models have") as bad:
        client.models.generate_content(model=MODEL, contents="x", config=_config(tools=[search]))
    assert (bad.value.code, bad.value.status) == (400, "INVALID_ARGUMENT")
    with pytest.raises(errors.ClientError) as missing:
        client.models.generate_content(model="nowhere/m", contents="x")
    assert (missing.value.code, missing.value.status) == (404, "NOT_FOUND")
    for verb, path, status in (
        ("POST", "/v1beta/models/local/demo:predict", 404),
        ("POST", "/v1beta/models/local/demo:streamGenerateContent", 400),
        ("PUT", "/v1beta/models/local/demo:generateContent", 405),
        ("GET", "/v1beta/files", 404),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", local_server.port, timeout=60)
        connection.request(verb, path, "{}")
        answer = connection.getresponse()
        error = json.loads(answer.read())["error"]
        connection.close()
        assert (answer.status, error["code"]) == (status, status)
        assert set(error) == {"code", "message", "status"}


def test_a_key_has_its_models_and_budget(openai_server: OpenAIServer, tmp_path: Path) -> None:
    keyed = KeyedServer(openai_server, tmp_path / "calls.db")
    alice, poor = keyed.make(models=("mine/m-large",)), keyed.make("poor", usd=Decimal("0.000001"))
    config = types.GenerateContentConfig(max_output_tokens=9)
    with keyed.served as served:
        client, clients = _client(served, alice), [_client(served, key) for key in (poor, "sk-wrong")]
        found = client.models.generate_content(model="mine/m-large", contents="x", config=config)
        assert found.text
        assert [model.name for model in client.models.list()] == ["models/mine/m-large"]
        assert client.models.count_tokens(model="mine/m-large", contents="x").total_tokens
        for refused in (client.models.generate_content, client.models.count_tokens):
            with pytest.raises(errors.ClientError) as missing:
                refused(model="m-small", contents="x")
            assert missing.value.code == 404
        with pytest.raises(errors.ClientError) as limited:
            clients[0].models.generate_content(model="m-large", contents="x", config=config)
        assert (limited.value.code, limited.value.status) == (429, "RESOURCE_EXHAUSTED")
        with pytest.raises(errors.ClientError) as wrong:
            clients[1].models.generate_content(model="m-large", contents="x")
        assert (wrong.value.code, wrong.value.status) == (401, "UNAUTHENTICATED")
        rows = keyed.rows()
    assert [(row.tags, row.model) for row in rows if row.status == "ok"] == [
        ({"key": "alice"}, "mine/m-large")
    ]


def test_models_are_listed_in_geminis_form(client: genai.Client, local_server: Served) -> None:
    names = [model.name for model in client.models.list()]
    assert names == [f"models/{name}" for name in local_server.service.catalogue.names()]
    assert client.models.get(model=MODEL).name == f"models/{MODEL}"
    with pytest.raises(errors.ClientError, match="not served"):
        client.models.get(model="local/nothing")


def test_an_openai_upstream_gets_a_chat_and_its_reasoning_returns(
    passed_on: genai.Client, upstream: OpenAIServer
) -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57,
             "completion_tokens_details": {"reasoning_tokens": 3},
             "prompt_tokens_details": {"cached_tokens": 30}}  # fmt: skip
    said = {"role": "assistant", "content": "so", "reasoning_content": "hm"}
    frame = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    whole = {**frame, "choices": [{"index": 0, "finish_reason": "stop", "message": said}], "usage": usage}
    upstream.script(reply(200, whole), reply(200, whole), reply(429, SLOW, {"retry-after": "900"}))
    shown = _config(thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=1024))
    found = passed_on.models.generate_content(model="mine/m", contents="x", config=shown)
    assert upstream.requests[0].json["reasoning_effort"] == "low"
    parts = found.candidates[0].content.parts  # type: ignore[index,union-attr]
    assert [(part.text, part.thought) for part in parts or []] == [("hm", True), ("so", None)]
    counts = found.usage_metadata
    assert counts is not None
    assert (counts.thoughts_token_count, counts.candidates_token_count) == (3, 4)
    assert (counts.cached_content_token_count, counts.total_token_count) == (30, 57)
    plain = passed_on.models.generate_content(model="mine/m", contents="x", config=_config())
    assert [part.text for part in plain.candidates[0].content.parts] == ["so"]  # type: ignore
    with pytest.raises(errors.ClientError, match="slow") as limited:
        passed_on.models.generate_content(model="mine/m", contents="x", config=_config())
    assert limited.value.status == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("name", ["text", "thinking_tools", "signed_text", "two", "structured", "blocked"])
def test_a_gemini_upstreams_answer_is_passed_on_unchanged(
    passed_on: genai.Client, upstream: OpenAIServer, many: Served, name: str
) -> None:
    whole, stream = _recorded(f"{name}.json"), _recorded(f"{name}.sse")
    upstream.script(reply(200, whole), events(*(stream[at : at + 97] for at in range(0, len(stream), 97))))
    body = {"contents": [{"parts": [{"text": "x"}, {"hologram": 1}]}], "cachedContent": "c"}
    for verb, expected in (("generateContent", whole), ("streamGenerateContent?alt=sse", stream)):
        connection = http.client.HTTPConnection("127.0.0.1", many.port, timeout=60)
        connection.request("POST", f"/v1beta/models/gemini-3-pro:{verb}", json.dumps(body))
        assert connection.getresponse().read() == expected
        connection.close()
    assert [received.path for received in upstream.requests] == [
        "/v1beta/models/gemini-3-pro:generateContent", "/v1beta/models/gemini-3-pro:streamGenerateContent"
    ]  # fmt: skip
    assert [received.json for received in upstream.requests] == [body, body]
    assert upstream.requests[0].headers["x-goog-api-key"] == "sk-gem"
    many.client.ledger.flush()
    rows = many.client.ledger.rows()[-2:]
    assert rows[0].completion_tokens == rows[1].completion_tokens
    metrics = many.service.metrics.text().decode()
    assert 'route="/v1beta/models/{model}:generateContent",status="200"' in metrics


def test_a_gemini_provider_counts_the_tokens_of_its_models(
    passed_on: genai.Client, upstream: OpenAIServer
) -> None:
    for model in ("gemini-3-pro", "gemini/gemini-3-pro", "auto", "quick"):
        upstream.script(reply(200, {"totalTokens": 77}))
        assert passed_on.models.count_tokens(model=model, contents="x").total_tokens == 77
        assert upstream.requests[-1].path == "/v1beta/models/gemini-3-pro:countTokens"
        assert set(upstream.requests[-1].json) == {"contents"}


def test_gemini_on_vertex_gets_the_clients_request_and_counts_tokens(
    passed_on: genai.Client, upstream: OpenAIServer
) -> None:
    upstream.script(
        reply(200, _recorded("text.json"), {"content-type": "application/json"}),
        reply(200, {"totalTokens": 7}),
    )
    model = "vertex/gemini-3-pro"
    whole = passed_on.models.generate_content(model=model, contents="x", config=_config(top_k=3))
    assert whole.text == json.loads(_recorded("text.json"))["candidates"][0]["content"]["parts"][0]["text"]
    assert passed_on.models.count_tokens(model=model, contents="x").total_tokens == 7
    models = "/v1beta1/projects/p-1/locations/global/publishers/google/models/gemini-3-pro"
    assert [sent.path for sent in upstream.requests] == [f"{models}:generateContent", f"{models}:countTokens"]
    assert upstream.requests[0].json["generationConfig"]["topK"] == 3
    assert {sent.headers["authorization"] for sent in upstream.requests} == {"Bearer ya29.gate"}
    assert not any("x-goog-api-key" in sent.headers for sent in upstream.requests)
    assert set(upstream.requests[1].json) == {"contents"}


def test_an_anthropic_upstreams_stream_becomes_content(
    passed_on: genai.Client, upstream: OpenAIServer
) -> None:
    upstream.script(events(anthropic_body("tools.sse")), reply(200, anthropic_body("tools.json")))
    ask: Any = {"model": "anthropic/claude-opus-5", "contents": "x", "config": _config(tools=[SKY])}
    pieces = list(passed_on.models.generate_content_stream(**ask))
    whole = passed_on.models.generate_content(**ask)
    streamed = [call.model_dump() for piece in pieces for call in piece.function_calls or []]
    assert streamed == [call.model_dump() for call in whole.function_calls or []] != []


def test_auto_reaches_a_gemini_upstream_with_the_clients_request(
    passed_on: genai.Client, upstream: OpenAIServer
) -> None:
    upstream.script(reply(200, _recorded("signed_text.json")))
    found = passed_on.models.generate_content(model="auto", contents="x", config=_config())
    assert found.model_dump_json(exclude={"sdk_http_response"})
    (received,) = upstream.requests
    assert received.json["generationConfig"]["maxOutputTokens"] == 24
    parts = found.candidates[0].content.parts  # type: ignore[index,union-attr]
    assert any(part.thought_signature for part in parts or [])
