"""Ollama's own client against the server: the engine, and an upstream on loopback."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from gateway_server import Served
from keyed_server import KeyedServer
from loopback_server import OpenAIServer, broken_stream, events, reply

USER: Any = [{"role": "user", "content": "def f(x):"}]
GREEDY: Any = {"temperature": 0, "num_predict": 12}
ASK: Any = {"model": "local/demo", "messages": USER, "options": GREEDY}
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Bonn"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "sky", "description": "The sky", "parameters": SCHEMA}}
CALLS: Any = [{"id": "c1", "type": "function", "function": {"name": "sky", "arguments": '{"city": "Ulm"}'}}]
Connect = Callable[..., ollama.Client]


@pytest.fixture(scope="module")
def connect_ollama() -> Iterator[Connect]:
    """Create Ollama's clients for a server."""
    with ExitStack() as stack:

        def connected(served: Served, key: str = "any") -> ollama.Client:
            headers = {"authorization": f"Bearer {key}"}
            client = ollama.Client(host=served.url, headers=headers, trust_env=False)
            return stack.enter_context(client)

        yield connected


@pytest.fixture
def client(connect_ollama: Connect, local_server: Served) -> ollama.Client:
    return connect_ollama(local_server)


@pytest.fixture
def hosted(connect_ollama: Connect, gateway: Served) -> ollama.Client:
    """A client whose server's default provider is ``openai_server``."""
    return connect_ollama(gateway)


def completion(**message: Any) -> dict[str, Any]:
    finish = "tool_calls" if "tool_calls" in message else "stop"
    answer = {"role": "assistant", "content": None, **message}
    return {
        "id": "x", "object": "chat.completion", "created": 1, "model": "m-large",
        "choices": [{"index": 0, "message": answer, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }  # fmt: skip


def chunks(*deltas: dict[str, Any], finish: str = "stop") -> list[bytes]:
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m-large"}
    choices: list[Any] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": finish}])
    lines = [json.dumps({**head, "choices": each}) for each in choices]
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    lines.append(json.dumps({**head, "choices": [], "usage": usage}))
    return [f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"]]


# The engine


def test_a_chat_is_answered_whole_with_counts_and_durations(client: ollama.Client) -> None:
    answer = client.chat(**ASK)
    assert (answer.message.role, answer.done, answer.done_reason) == ("assistant", True, "length")
    assert answer.message.content
    assert answer.model == "local/demo"
    assert answer.eval_count == 12
    assert answer.prompt_eval_count
    assert answer.total_duration
    assert answer.eval_duration
    assert answer.total_duration >= answer.eval_duration > 1000  # nanoseconds
    assert str(answer.created_at).endswith("Z")


def test_a_streamed_chat_is_the_whole_one_in_pieces(client: ollama.Client) -> None:
    whole = client.chat(**ASK)
    parts = list(client.chat(**ASK, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 2
    last = parts[-1]
    assert (last.done_reason, last.eval_count) == ("length", 12)
    assert last.prompt_eval_count == whole.prompt_eval_count
    assert last.total_duration >= last.prompt_eval_duration + last.eval_duration > 0


def test_a_body_without_stream_is_answered_with_lines_of_json(local_server: Served) -> None:
    answer = httpx.post(
        f"{local_server.url}/api/generate",
        content=json.dumps({"model": "demo:latest", "prompt": "def f(x):", "options": GREEDY}),
        headers={"content-type": "application/x-www-form-urlencoded"},  # as curl -d sends it
        trust_env=False,
        timeout=60,
    )
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert {line["model"] for line in lines} == {"demo"}


def test_generate_answers_a_prompt_through_the_template_and_a_raw_one_without(client: ollama.Client) -> None:
    whole = client.generate("local/demo", "def f(x):", system="brief", options=GREEDY)
    turns = [{"role": "system", "content": "brief"}, *USER]
    assert whole.response == client.chat("local/demo", turns, options=GREEDY).message.content
    assert whole.done_reason == "length"
    streamed = client.generate("local/demo", "def f(x):", system="brief", options=GREEDY, stream=True)
    assert "".join(part.response for part in streamed) == whole.response
    raw = client.generate("local/demo", "def f(x):", raw=True, options=GREEDY)
    assert raw.response
    assert raw.prompt_eval_count < whole.prompt_eval_count
    pieces = client.generate("local/demo", "def f(x):", raw=True, options=GREEDY, stream=True)
    assert "".join(part.response for part in pieces) == raw.response


def test_options_change_the_answer(client: ollama.Client) -> None:
    sampled: Any = {"temperature": 1.0, "seed": 5, "top_k": 20, "top_p": 0.9, "num_predict": 12}
    first = client.chat("local/demo", USER, options=sampled).message.content
    assert client.chat("local/demo", USER, options=sampled).message.content == first
    greedy = client.chat(**ASK).message.content
    stop = greedy[4:6]
    stopped = client.chat("local/demo", USER, options={**GREEDY, "stop": [stop]})
    assert stopped.message.content == greedy[: greedy.index(stop)]
    assert stopped.done_reason == "stop"
    penalized = client.chat("local/demo", USER, options={**GREEDY, "num_predict": 40, "repeat_penalty": 1.9})
    plain = client.chat("local/demo", USER, options={**GREEDY, "num_predict": 40})
    assert penalized.message.content != plain.message.content
    unbounded = client.chat(
        "local/demo", USER, options={"num_predict": -1, "num_ctx": 64, "stop": stop}, think=True
    )
    assert unbounded.done


def test_structured_output_matches_its_schema(client: ollama.Client) -> None:
    for stream in (False, True):
        answer = client.chat("local/demo", USER, format=SCHEMA, options={"num_predict": 40}, stream=stream)
        parts = list(answer) if stream else [answer]
        assert json.loads("".join(part.message.content or "" for part in parts))["city"] in ("Ulm", "Bonn")
    answer = client.generate("local/demo", "x", format=SCHEMA, options={"num_predict": 40})
    assert json.loads(answer.response)["city"] in ("Ulm", "Bonn")


def test_log_probabilities_are_returned(client: ollama.Client) -> None:
    answer = client.chat(**ASK, logprobs=True, top_logprobs=2)
    assert answer.logprobs is not None
    assert len(answer.logprobs) == 12
    assert len(answer.logprobs[0].top_logprobs or []) == 2


def test_models_are_listed_and_described(client: ollama.Client) -> None:
    listed = {model.model for model in client.list().models}
    assert {"local/demo", "local/demo-target"} <= listed
    shown = client.show("local/demo")
    assert "completion" in shown.capabilities
    assert shown.modelinfo["specclient.context_length"] > 100
    assert client.show("demo").modelinfo == shown.modelinfo
    version = httpx.get(f"{client._client.base_url}/api/version", trust_env=False).json()
    assert tuple(map(int, version["version"].split("."))) >= (0, 6, 4)
    for name in ("local/nothing", "nowhere/x"):
        with pytest.raises(ollama.ResponseError) as raised:
            client.show(name)
        assert raised.value.status_code == 404


def test_a_request_without_a_prompt_loads_or_unloads(client: ollama.Client) -> None:
    assert client.generate("local/demo", "").done_reason == "load"
    assert client.chat("local/demo", [], keep_alive=0).done_reason == "unload"
    (streamed,) = client.generate("local/demo", "", keep_alive="5m", stream=True)
    assert (streamed.done, streamed.done_reason) == (True, "load")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "local/nothing"}, "is not served here"),
        ({"model": "nowhere/x"}, "unknown provider 'nowhere'"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "must be one of assistant, system, tool, user"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content is 5; it must be a string"),
        ({"messages": "x"}, "it must be an array of objects"),
        ({"options": {"num_predict": "x"}}, "maximum number of tokens"),
        ({"options": {"stop": 5}}, "must be a string or an array"),
        ({"options": {"n": 5}}, "n is a field of OpenAI's API"),
        ({"options": {"temperature": -4}}, "temperature"),
        ({"response_format": {}}, "is a field of OpenAI's API"),
        ({"format": 5}, "must be 'json' or a JSON schema"),
        ({"think": "much"}, "must be true, false or one of low, medium, high, max"),
        ({"keep_alive": []}, "it must be seconds, or a duration"),
        ({"stream": "x"}, "must be true or false"),
        ({"tools": [5]}, "it must be an array of objects"),
    ],
)
def test_errors_are_one_text_that_names_the_field(local_server: Served, changed: Any, message: str) -> None:
    body = {**ASK, "stream": False, **changed}
    answer = httpx.post(f"{local_server.url}/api/chat", json=body, trust_env=False, timeout=60)
    assert answer.status_code in (400, 404)
    fields = answer.json()
    assert list(fields) == ["error"]
    assert message in fields["error"]


def test_unknown_routes_and_verbs_have_ollamas_errors(local_server: Served) -> None:
    for verb, path, status in (
        ("GET", "/api/nothing", 404),
        ("GET", "/api/chat", 405),
        ("POST", "/api/pull", 404),
    ):
        answer = httpx.request(verb, local_server.url + path, trust_env=False)
        assert answer.status_code == status
        assert isinstance(answer.json()["error"], str)


# An upstream


def test_a_chat_is_sent_as_a_chat_completion(hosted: ollama.Client, openai_server: OpenAIServer) -> None:
    picture = base64.b64encode(b"\xff\xd8\xff\xe0" + b"\0" * 8)
    turns: Any = [
        {"role": "system", "content": "brief"},
        {"role": "user", "content": "look", "images": [picture.decode()]},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
            {"function": {"name": "sky", "arguments": {"city": "Ulm"}}},
            {"function": {"name": "sea", "arguments": {}}}]},
        {"role": "tool", "content": "rough", "tool_name": "sea"},
        {"role": "tool", "content": "blue", "tool_name": "sky"},
    ]  # fmt: skip
    answer = hosted.chat(
        "m-large",
        turns,
        tools=[TOOL],
        think="low",
        options={"num_predict": 9, "top_k": 3, "repeat_penalty": 1.2, "stop": "a", "num_ctx": 9},
        keep_alive="5m",
    )
    assert answer.message.content
    sent = openai_server.requests[-1].json
    assert sent["messages"] == [
        {"role": "system", "content": "brief"},
        {"role": "user", "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{picture.decode()}"}}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_2_0", "type": "function",
             "function": {"name": "sky", "arguments": '{"city": "Ulm"}'}},
            {"id": "call_2_1", "type": "function", "function": {"name": "sea", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_2_1", "content": "rough"},
        {"role": "tool", "tool_call_id": "call_2_0", "content": "blue"},
    ]  # fmt: skip
    assert sent["tools"][0]["function"]["name"] == "sky"
    names = ("model", "max_tokens", "top_k", "repetition_penalty", "stop", "reasoning_effort")
    assert [sent[name] for name in names] == ["m-large", 9, 3, 1.2, ["a"], "low"]
    assert {"num_ctx", "keep_alive", "think", "options"}.isdisjoint(sent)


def test_tool_calls_and_thinking_come_back_whole_and_streamed(
    hosted: ollama.Client, openai_server: OpenAIServer
) -> None:
    openai_server.script(reply(body=completion(tool_calls=CALLS, reasoning_content="hm")))
    answer = hosted.chat("m-large", USER, tools=[TOOL])
    (call,) = answer.message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("sky", {"city": "Ulm"})
    assert (answer.message.thinking, answer.done_reason, answer.prompt_eval_count) == ("hm", "stop", 7)
    pieces = chunks(
        {"role": "assistant", "reasoning_content": "hm"},
        {"content": "so"},
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "sky", "arguments": '{"ci'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "Ulm"}'}}]},
        finish="tool_calls",
    )
    openai_server.script(events(*pieces))
    parts = list(hosted.chat("m-large", USER, tools=[TOOL], stream=True))
    assert "".join(part.message.thinking or "" for part in parts) == "hm"
    assert "".join(part.message.content or "" for part in parts) == "so"
    (called,) = [part for part in parts if part.message.tool_calls]
    assert called.message.tool_calls[0].function.arguments == {"city": "Ulm"}
    assert (parts[-1].done, parts[-1].eval_count) == (True, 3)
    openai_server.script(reply(body=completion(content="so", reasoning_content="hm")))
    assert hosted.chat("m-large", USER, think=False).message.thinking is None


def test_an_upstreams_error_and_a_broken_stream_are_errors(
    hosted: ollama.Client, openai_server: OpenAIServer
) -> None:
    openai_server.script(reply(422, {"error": {"message": "too odd"}}))
    with pytest.raises(ollama.ResponseError, match="too odd") as raised:
        hosted.chat("m-large", USER)
    assert raised.value.status_code == 422
    openai_server.script(broken_stream(*chunks({"content": "so"})[:1]))
    stream = hosted.chat("m-large", USER, stream=True)
    assert next(stream).message.content == "so"
    with pytest.raises(ollama.ResponseError):
        list(stream)


def test_the_extension_and_suffixes_are_served(gateway: Served, openai_server: OpenAIServer) -> None:
    url = f"{gateway.url}/api/generate"
    body = {"model": "auto", "prompt": "x", "stream": False, "specclient": {"meta": True, "tags": {"a": "b"}}}
    answer = httpx.post(url, json=body, trust_env=False).json()
    assert answer["specclient"]["route"]["chosen"] == answer["model"] == "mine/m-small"
    filled = {"model": "m-large", "prompt": "a", "suffix": "c", "stream": False}
    assert httpx.post(url, json=filled, trust_env=False).json()["response"]
    assert openai_server.requests[-1].json["suffix"] == "c"


def test_keys_budgets_limits_and_the_ledger_apply(
    connect_ollama: Connect, openai_server: OpenAIServer, tmp_path: Path
) -> None:
    home = KeyedServer(openai_server, tmp_path / "keys", {"aliases": {"small": "mine/m-small"}})
    with home.served:
        own = connect_ollama(home.served, home.make("own", models=("mine/m-small",)))
        assert own.chat("small", USER, options={"num_predict": 5}).message.content
        assert [model.model for model in own.list().models] == ["mine/m-small", "small"]
        for refused in (
            lambda: own.chat("m-large", USER),
            lambda: own.show("m-large"),
            lambda: next(own.chat("m-large", USER, stream=True)),
        ):
            with pytest.raises(ollama.ResponseError, match="does not exist") as raised:
                refused()
            assert raised.value.status_code == 404
        paced = connect_ollama(home.served, home.make("paced", requests_per_minute=1))
        paced.chat("m-large", USER)
        poor = connect_ollama(home.served, home.make("poor", usd=Decimal("0.000000001")))
        for late, status in ((paced, 429), (poor, 429), (connect_ollama(home.served, "wrong"), 401)):
            with pytest.raises(ollama.ResponseError) as raised:
                late.chat("m-large", USER)
            assert raised.value.status_code == status
        rows = [(row.model, row.route, row.tags["key"]) for row in home.rows() if row.status == "ok"]
    assert sorted(rows) == [("m-large", "mine/m-large", "paced"), ("small", "mine/m-small", "own")]
    home.store.close()
