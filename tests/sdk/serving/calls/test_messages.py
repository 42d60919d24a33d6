"""Anthropic's official client against the server: the engine, and upstreams of each kind."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic_bodies import body as anthropic_body
from anthropic_bodies import sse
from gateway_server import Served
from gemini_bodies import BODIES as GEMINI_BODIES
from keyed_server import KeyedServer
from loopback_server import OpenAIServer, broken_stream, events, reply

from specclient.config import Settings

MODEL = "local/demo"
USER: Any = [{"role": "user", "content": "def f(x):"}]
ASK: Any = {"model": MODEL, "messages": USER, "max_tokens": 24, "extra_body": {"temperature": 0}}
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Bonn"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {"name": "sky", "description": "The sky", "input_schema": SCHEMA}
FORCED: Any = {
    "model": "local/taught", "max_tokens": 60, "extra_body": {"temperature": 0},
    "tools": [TOOL], "tool_choice": {"type": "tool", "name": "sky"},
}  # fmt: skip
ToUpstream = Callable[..., anthropic.Anthropic]


@pytest.fixture(scope="module")
def connect_anthropic() -> Iterator[ToUpstream]:
    """Create Anthropic's clients for a server, without retries."""
    with ExitStack() as stack:

        def connected(served: Served, key: str = "any") -> anthropic.Anthropic:
            return stack.enter_context(anthropic.Anthropic(base_url=served.url, api_key=key, max_retries=0))

        yield connected


@pytest.fixture
def client(connect_anthropic: ToUpstream, local_server: Served) -> anthropic.Anthropic:
    return connect_anthropic(local_server)


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
        "candidates": ["anthropic/claude-opus-5"],
        "providers": {
            "mine": {"base_url": upstream.base_url, "api_key": "sk-mine"},
            "anthropic": {"base_url": upstream.base_url, "api_key": "sk-ant"},
            "gemini": {"base_url": upstream.base_url, "api_key": "sk-gem"},
            "vertex": {
                "base_url": upstream.url, "api_key": "ya29.gate", "key_header": "authorization",
                "project": "p-1",
            },
        },
    }  # fmt: skip
    with Served(Settings.model_validate(tables)) as served:
        yield served


@pytest.fixture
def passed_on(connect_anthropic: ToUpstream, many: Served, upstream: OpenAIServer) -> anthropic.Anthropic:
    upstream.requests.clear()
    upstream._script.clear()
    return connect_anthropic(many)


def _prompt_tokens(message: anthropic.types.Message) -> int:
    return message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


def _gemini(name: str) -> bytes:
    return (GEMINI_BODIES / name).read_bytes()


def _dicts(blocks: Any) -> list[Any]:
    return [json.loads(block.to_json(exclude_unset=True)) for block in blocks]


def _signatures(parts: list[Any]) -> list[str]:
    return [
        part["thoughtSignature"] for part in parts if "functionCall" in part and "thoughtSignature" in part
    ]


def test_a_message_equals_the_chat_completion_of_its_input(
    client: anthropic.Anthropic, local_server: Served, connect: Callable[[str], openai.OpenAI]
) -> None:
    raw = client.messages.with_raw_response.create(**ASK, system="brief", metadata={"user_id": "u"})
    message = raw.parse()
    chat = connect(local_server.base_url).chat.completions.create(
        model=MODEL, max_tokens=24, temperature=0,
        messages=[{"role": "system", "content": "brief"}, *USER],
    )  # fmt: skip
    (block,) = message.content
    assert block.type == "text"
    assert block.text == chat.choices[0].message.content
    assert chat.usage is not None
    assert _prompt_tokens(message) == chat.usage.prompt_tokens
    assert (message.usage.output_tokens, message.stop_reason, message.model) == (24, "max_tokens", MODEL)
    assert message.id.startswith("msg_")
    assert raw.headers["request-id"] == raw.headers["x-request-id"] == message._request_id


def test_streamed_events_add_up_to_the_message(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**ASK)
    with client.messages.stream(**ASK) as stream:
        kinds = [event.type for event in stream if event.type != "text"]
        found = stream.get_final_message()
    assert list(dict.fromkeys(kinds)) == [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert _dicts(found.content) == _dicts(whole.content)
    assert (found.stop_reason, found.usage.output_tokens) == ("max_tokens", 24)
    assert _prompt_tokens(whole) == _prompt_tokens(found) > 0


def test_a_streams_bytes_are_named_events_with_a_ping(local_server: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", local_server.port, timeout=60)
    body = {"model": MODEL, "messages": USER, "max_tokens": 2, "stream": True, "specclient": {"meta": True}}
    connection.request("POST", "/v1/messages", json.dumps(body), {"anthropic-version": "2023-06-01"})
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    *frames, rest = answer.read().split(b"\n\n")
    connection.close()
    assert rest == b""
    names = []
    for frame in frames:
        name, data = frame.split(b"\n")
        assert name == b"event: " + json.loads(data.removeprefix(b"data: "))["type"].encode()
        names.append(name.removeprefix(b"event: ").decode())
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["message_delta", "message_stop", "specclient.meta"]


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    text = client.messages.create(**ASK).content[0].text  # type: ignore[union-attr]
    stop = text.strip()[4:6]
    message = client.messages.create(**ASK, stop_sequences=["never", stop])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    with client.messages.stream(**ASK, stop_sequences=[stop]) as stream:
        found = stream.get_final_message()
    assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", stop)
    assert _dicts(found.content) == _dicts(message.content)


def test_a_tool_is_called_and_its_result_is_in_the_prompt(
    connect_anthropic: ToUpstream, tool_server: Served
) -> None:
    client = connect_anthropic(tool_server)
    first = client.messages.create(messages=[{"role": "user", "content": "The sky?"}], **FORCED)
    (call,) = first.content
    assert call.type == "tool_use"
    assert call.name == "sky"
    assert call.input in ({"city": "Ulm"}, {"city": "Bonn"})
    assert first.stop_reason == "tool_use"
    with client.messages.stream(messages=[{"role": "user", "content": "The sky?"}], **FORCED) as stream:
        kinds = {event.type for event in stream}
        found = stream.get_final_message()
    assert "input_json" in kinds
    assert [block.input for block in found.content if block.type == "tool_use"] == [call.input]
    turns: Any = [
        {"role": "user", "content": "The sky?"},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "blue"}]},
    ]
    second = client.messages.create(messages=turns, **{**FORCED, "tool_choice": {"type": "none"}})
    assert second.content[0].type == "text"


@pytest.mark.anyio
async def test_the_asynchronous_client(local_server: Served) -> None:
    async with anthropic.AsyncAnthropic(base_url=local_server.url, api_key="any", max_retries=0) as client:
        whole = await client.messages.create(**ASK)
        async with client.messages.stream(**ASK) as stream:
            text = "".join([text async for text in stream.text_stream])
        with pytest.raises(anthropic.BadRequestError):
            await client.messages.create(**{**ASK, "max_tokens": -1})
    assert text == whole.content[0].text  # type: ignore[union-attr]


def test_errors_have_anthropics_form_and_status(client: anthropic.Anthropic) -> None:
    upload: Any = [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]
    with pytest.raises(anthropic.BadRequestError, match="take blocks of the types text") as bad:
        client.messages.create(**{**ASK, "messages": upload})
    body: Any = bad.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert bad.value.request_id == body["request_id"]
    with pytest.raises(anthropic.NotFoundError, match="nowhere") as missing:
        client.messages.create(**{**ASK, "model": "nowhere/m"})
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.APIStatusError) as method:
        client.get("/v1/messages", cast_to=object)
    assert method.value.status_code == 405
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        client.messages.create(**{**ASK, "extra_body": {"temperature": -1}})


def test_a_key_in_x_api_key_has_its_models_limits_and_ledger_rows(
    connect_anthropic: ToUpstream, openai_server: OpenAIServer, tmp_path: Path
) -> None:
    keyed = KeyedServer(openai_server, tmp_path / "calls.db")
    alice = keyed.make(models=("mine/m-large",), requests_per_minute=3)
    poor = keyed.make("poor", usd=Decimal("0.000001"))
    ask = {"max_tokens": 9, "messages": USER}
    with keyed.served as served:
        client = connect_anthropic(served, alice)
        assert client.messages.create(model="m-large", **ask).usage.output_tokens > 0
        with pytest.raises(anthropic.NotFoundError):
            client.messages.create(model="m-small", **ask)
        with pytest.raises(anthropic.AuthenticationError, match="not a key of this server") as wrong:
            connect_anthropic(served, "sk-wrong").messages.create(model="m-large", **ask)
        assert wrong.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
        with pytest.raises(anthropic.RateLimitError) as refused:
            connect_anthropic(served, poor).messages.create(model="m-large", **ask)
        assert refused.value.response.headers["x-should-retry"] == "false"
        with client.messages.stream(model="m-large", **ask) as stream:
            stream.until_done()
        with pytest.raises(anthropic.RateLimitError) as limited:
            [client.messages.create(model="m-large", **ask) for _ in range(3)]
        assert int(limited.value.response.headers["retry-after"]) > 0
        rows = keyed.rows()
    assert len([row for row in rows if row.tags == {"key": "alice"}]) >= 2
    assert all("model" in received.json for received in openai_server.requests)


def test_an_openai_upstream_gets_a_chat_and_its_cached_tokens_and_reasoning_return(
    passed_on: anthropic.Anthropic, upstream: OpenAIServer
) -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57,
             "prompt_tokens_details": {"cached_tokens": 30}}  # fmt: skip
    call = {"id": "call_1", "type": "function", "function": {"name": "sky", "arguments": '{"city":"Ulm"}'}}
    said = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "stop", "message": said}
    frame = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    upstream.script(*[reply(200, {**frame, "choices": [choice], "usage": usage})] * 2)
    message = passed_on.messages.create(
        model="mine/m",
        max_tokens=9,
        messages=USER,
        tools=[TOOL],
        thinking={"type": "enabled", "budget_tokens": 1024},
    )
    sent = upstream.requests[0].json
    assert (sent["reasoning_effort"], sent["max_tokens"]) == ("low", 9)
    assert sent["tools"][0]["function"]["parameters"] == SCHEMA
    thought, used = message.content
    assert (thought.type, used.type, message.stop_reason) == ("thinking", "tool_use", "tool_use")
    assert (used.id, used.input) == ("call_1", {"city": "Ulm"})  # type: ignore[union-attr]
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (20, 30)
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "blue"}
    turns: Any = [
        *USER,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result]},
    ]
    passed_on.messages.create(model="mine/m", max_tokens=9, messages=turns, tools=[TOOL])
    assert upstream.requests[1].json["messages"][1]["reasoning_content"] == "hm"

    def chunk(delta: Any, finish: Any = None, **more: Any) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        piece = {**frame, "object": "chat.completion.chunk", "choices": choices, **more}
        return b"data: %b\n\n" % json.dumps(piece).encode()

    begun = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "sky", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"city":"Ulm"}'}}
    upstream.script(
        events(
            chunk({"role": "assistant", "reasoning_content": "h"}), chunk({"reasoning_content": "m"}),
            chunk({"content": "so"}), chunk({"tool_calls": [begun]}), chunk({"tool_calls": [more]}),
            chunk({}, "tool_calls", usage=usage), b"data: [DONE]\n\n",
        )
    )  # fmt: skip
    with passed_on.messages.stream(model="mine/m", max_tokens=9, messages=USER, tools=[TOOL]) as stream:
        found = stream.get_final_message()
    assert [block.type for block in found.content] == ["thinking", "text", "tool_use"]
    assert _dicts(found.content[:1]) == _dicts(message.content[:1])
    assert found.content[2].input == {"city": "Ulm"}  # type: ignore[union-attr]
    assert (found.usage.input_tokens, found.usage.cache_read_input_tokens, found.usage.output_tokens) == (
        20,
        30,
        7,
    )


def test_an_upstreams_refusal_and_broken_stream_are_errors(
    passed_on: anthropic.Anthropic, upstream: OpenAIServer
) -> None:
    upstream.script(reply(429, {"error": {"message": "slow", "type": "tokens"}}, {"retry-after": "900"}))
    with pytest.raises(anthropic.RateLimitError, match="slow") as limited:
        passed_on.messages.create(model="mine/m", max_tokens=9, messages=USER)
    assert limited.value.response.headers["retry-after"] == "900"
    assert limited.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
    upstream.script(broken_stream(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'))
    with pytest.raises(anthropic.APIStatusError) as broken:
        for _ in passed_on.messages.create(model="mine/m", max_tokens=9, messages=USER, stream=True):
            pass
    assert broken.value.body["error"]["type"] == "api_error"  # type: ignore[index]


@pytest.mark.parametrize("name", ["text", "tools", "thinking", "web_search", "refusal"])
def test_an_anthropic_upstreams_answer_is_passed_on_unchanged(
    passed_on: anthropic.Anthropic, upstream: OpenAIServer, many: Served, name: str
) -> None:
    whole, stream = anthropic_body(f"{name}.json"), anthropic_body(f"{name}.sse")
    pieces = [stream[at : at + 97] for at in range(0, len(stream), 97)]
    upstream.script(reply(200, whole), events(*pieces), events(*pieces))
    ask: Any = {"model": "claude-opus-5", "max_tokens": 99, "messages": USER}
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    beta: Any = passed_on.beta.messages.with_raw_response.create(**ask, tools=[search], betas=["new-2030"])
    assert beta.http_response.content == whole
    first = upstream.requests[0]
    assert first.path == "/v1/messages"
    assert first.headers["anthropic-beta"] == "new-2030"
    assert (first.headers["x-api-key"], first.json["tools"]) == ("sk-ant", [search])
    with passed_on.messages.with_streaming_response.create(**ask, stream=True) as response:
        assert b"".join(response.iter_bytes()) == stream
    with passed_on.messages.with_streaming_response.create(
        **ask, stream=True, extra_headers={"x-specclient-meta": "1"}
    ) as response:
        last = b"".join(response.iter_bytes()).removeprefix(stream)
    assert last.startswith(b"event: specclient.meta\ndata: {")
    many.client.ledger.flush()
    rows = many.client.ledger.rows()[-3:]
    usage = json.loads(whole)["usage"]
    assert [row.completion_tokens for row in rows] == [usage["output_tokens"]] * 3


def test_claude_on_vertex_gets_the_clients_request_and_its_answer_is_passed_on(
    passed_on: anthropic.Anthropic, upstream: OpenAIServer, many: Served
) -> None:
    whole, stream = anthropic_body("text.json"), anthropic_body("text.sse")
    upstream.script(reply(200, whole), events(stream), reply(200, {"input_tokens": 7}))
    models = "/v1/projects/p-1/locations/global/publishers/anthropic/models"
    written: Any = {"max_tokens": 99, "messages": USER, "top_k": 3}
    ask: Any = {**written, "model": "vertex/claude-opus-5"}
    top = {"extra_body": {"top_k": written["top_k"]}}
    ask.pop("top_k")
    raw: Any = passed_on.beta.messages.with_raw_response.create(**ask, **top, betas=["new-2030"])
    assert raw.http_response.content == whole
    (first,) = upstream.requests
    assert (first.path, first.query) == (f"{models}/claude-opus-5:rawPredict", "")
    assert first.json == {"anthropic_version": "vertex-2023-10-16", **written}
    assert (first.headers["authorization"], first.headers["anthropic-beta"]) == (
        "Bearer ya29.gate", "new-2030"
    )  # fmt: skip
    assert not {"x-api-key", "anthropic-version"} & first.headers.keys()
    with passed_on.messages.with_streaming_response.create(**ask, stream=True) as response:
        assert b"".join(response.iter_bytes()) == stream
    assert upstream.requests[1].path.endswith(":streamRawPredict")
    assert passed_on.messages.count_tokens(model=ask["model"], messages=USER).input_tokens == 7
    assert upstream.requests[2].path == f"{models}/count-tokens:rawPredict"
    assert upstream.requests[2].json["model"] == "claude-opus-5"
    many.client.ledger.flush()
    assert [row.route for row in many.client.ledger.rows()[-2:]] == ["vertex/claude-opus-5"] * 2


def test_an_anthropic_upstreams_errors_keep_their_type(
    passed_on: anthropic.Anthropic, upstream: OpenAIServer
) -> None:
    ask: Any = {"model": "anthropic/claude-opus-5", "max_tokens": 9, "messages": USER}
    upstream.script(*[reply(529, anthropic_body("overloaded.json"), {"x-should-retry": "false"})])
    with pytest.raises(anthropic.OverloadedError) as full:
        passed_on.messages.create(**ask)
    assert full.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
    upstream.script(broken_stream(anthropic_body("text.sse")[:400]))
    with pytest.raises(anthropic.APIStatusError, match="api_error"):
        for _ in passed_on.messages.create(**ask, stream=True):
            pass
    upstream.script(events(anthropic_body("overloaded.sse")))
    with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
        for _ in passed_on.messages.create(**ask, stream=True):
            pass


def test_auto_reaches_an_anthropic_upstream_with_the_clients_request(
    passed_on: anthropic.Anthropic, upstream: OpenAIServer
) -> None:
    frame = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5"}
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "Sig1"}, {"type": "text", "text": "so"}]
    usage, thought = (
        {"input_tokens": 3, "output_tokens": 2},
        {"type": "thinking", "thinking": "", "signature": ""},
    )
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    deltas = [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "Sig1"}]
    upstream.script(
        reply(200, {**frame, **end, "content": blocks, "usage": usage}),
        events(sse(
            {"type": "message_start", "message": {**frame, "content": [], "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": thought},
            *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "so"}},
            {"type": "content_block_stop", "index": 1},
            {"type": "message_delta", "delta": end, "usage": usage},
            {"type": "message_stop"},
        )),
    )  # fmt: skip
    cached: Any = [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]
    ask: Any = {"model": "auto", "max_tokens": 99, "messages": USER, "system": cached}
    whole = passed_on.messages.create(**ask)
    assert upstream.requests[0].json == {**ask, "model": "claude-opus-5"}
    with passed_on.messages.stream(**ask) as stream:
        found = stream.get_final_message()
    assert found.model == "anthropic/claude-opus-5"
    assert _dicts(found.content) == _dicts(whole.content) == blocks


def test_a_gemini_upstreams_signature_comes_back_with_the_call(
    passed_on: anthropic.Anthropic, upstream: OpenAIServer
) -> None:
    upstream.script(
        reply(200, _gemini("thinking_tools.json")), events(_gemini("thinking_tools.sse")),
        reply(200, _gemini("text.json")),
    )  # fmt: skip
    ask: Any = {"model": "gemini/gemini-3-pro", "max_tokens": 99, "messages": USER, "tools": [TOOL]}
    whole = passed_on.messages.create(**ask)
    with passed_on.messages.stream(**ask) as stream:
        found = stream.get_final_message()
    calls = [[block for block in each.content if block.type == "tool_use"] for each in (whole, found)]
    assert [call.input for call in calls[0]] == [call.input for call in calls[1]] != []
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"} for call in calls[1]]
    turns = [*USER, {"role": "assistant", "content": found.content}, {"role": "user", "content": results}]
    passed_on.messages.create(**{**ask, "messages": turns})
    (answered,) = json.loads(_gemini("thinking_tools.json"))["candidates"]
    sent = upstream.requests[2].json["contents"][1]["parts"]
    assert _signatures(sent) == _signatures(answered["content"]["parts"]) != []


def test_tokens_are_counted_by_the_engine_and_estimated_for_other_models(
    client: anthropic.Anthropic, passed_on: anthropic.Anthropic, upstream: OpenAIServer
) -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=USER, system="brief")
    message = client.messages.create(**{**ASK, "max_tokens": 1}, system="brief")
    assert counted.input_tokens == _prompt_tokens(message)
    for model in ("mine/m", "gemini/gemini-3-pro"):
        assert passed_on.messages.count_tokens(model=model, messages=USER, tools=[TOOL]).input_tokens > 10
    assert upstream.requests == []
    long: Any = [{"role": "user", "content": "word " * 250_000}]
    assert client.messages.count_tokens(model=MODEL, messages=long).input_tokens > 200_000
    with pytest.raises(anthropic.BadRequestError, match="messages is an array of 0"):
        client.messages.count_tokens(model=MODEL, messages=[])


@pytest.mark.parametrize("model", ["claude-opus-5", "anthropic/claude-opus-5", "auto"])
def test_an_anthropic_provider_counts_the_tokens_of_its_models(
    passed_on: anthropic.Anthropic, upstream: OpenAIServer, model: str
) -> None:
    upstream.script(reply(200, {"input_tokens": 77, "context_management": None}))
    cached: Any = [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]
    assert passed_on.messages.count_tokens(model=model, messages=USER, system=cached).input_tokens == 77
    (received,) = upstream.requests
    assert received.path == "/v1/messages/count_tokens"
    assert received.json == {"model": "claude-opus-5", "messages": USER, "system": cached}
    assert "anthropic-version" in received.headers


def test_a_limited_key_counts_tokens_of_its_models_only(
    connect_anthropic: ToUpstream, openai_server: OpenAIServer, tmp_path: Path
) -> None:
    keyed = KeyedServer(openai_server, tmp_path / "calls.db")
    key = keyed.make(models=("mine/m-large",), tokens_per_minute=40)
    with keyed.served as served:
        client = connect_anthropic(served, key)
        for _ in range(3):  # counting uses none of the key's tokens
            assert client.messages.count_tokens(model="m-large", messages=USER).input_tokens > 0
        with pytest.raises(anthropic.NotFoundError):
            client.messages.count_tokens(model="m-small", messages=USER)
        assert [model.id for model in client.models.list()] == ["mine/m-large"]


def test_models_are_listed_in_anthropics_form(
    client: anthropic.Anthropic, local_server: Served, connect: Callable[[str], openai.OpenAI]
) -> None:
    page = client.models.list(limit=1)
    assert page.has_more
    names = [model.id for model in page]  # requests all pages
    assert names == [model.id for model in connect(local_server.base_url).models.list()]
    assert [model.id for model in client.models.list(before_id=names[-1])] == names[:-1]
    model = client.models.retrieve(MODEL)
    assert (model.type, model.id, model.created_at.year) == ("model", MODEL, 1970)
    with pytest.raises(anthropic.NotFoundError, match="not served"):
        client.models.retrieve("local/nothing")
    for wrong in ({"limit": 0}, {"after_id": "x"}):
        with pytest.raises(anthropic.BadRequestError, match=next(iter(wrong))):
            client.models.list(**wrong)  # type: ignore[arg-type]
