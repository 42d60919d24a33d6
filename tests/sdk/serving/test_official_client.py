"""The official client gets the same responses, chunks and errors from the server as from the upstream."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from gateway_server import Served, upstream_settings
from loopback_server import TEXT, OpenAIServer, events, reply

pytestmark = pytest.mark.anyio

ASK: Any = [{"role": "user", "content": "Say something about foxes."}]
KEY = "any"
Connect = Callable[[str], openai.OpenAI]
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m-large",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
        }
    ],
    "usage": {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 14,
    },
}


@pytest.fixture
def both(
    connect: Connect, gateway: Served, openai_server: OpenAIServer
) -> tuple[openai.OpenAI, openai.OpenAI]:
    """Two clients: one of the server, and one of the upstream itself."""
    return connect(gateway.base_url), connect(openai_server.base_url)


@pytest.mark.parametrize("include_usage", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_responses_equal_the_upstreams(both, kind: str, stream: bool, include_usage: bool) -> None:
    through, direct = both
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream and include_usage else {}

    def ask(client: openai.OpenAI, model: str) -> Any:
        if kind == "chat":
            answer: Any = client.chat.completions.create(
                model=model, messages=ASK, temperature=0.5, stream=stream, **options
            )
        else:
            answer = client.completions.create(model=model, prompt="a b", stream=stream, **options)
        return [chunk.model_dump() for chunk in answer] if stream else answer.model_dump()

    assert ask(through, "mine/m-large") == ask(direct, "m-large")
    assert ask(through, "m-large") == ask(direct, "m-large")  # a bare name belongs to the default provider


def test_request_parameters_are_forwarded(
    connect: Connect, gateway: Served, openai_server: OpenAIServer
) -> None:
    params = {"temperature": 0.25, "seed": 7, "stop": ["\n"], "user": "u"}
    connect(gateway.base_url).chat.completions.create(
        model="mine/m-small",
        messages=ASK,
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
        extra_body={"prediction": {"type": "content", "content": "x"}, "vendor_field": {"a": [1.0, None]}},
        **params,
    )
    sent = openai_server.requests[-1]
    assert sent.json == {
        **params,
        "model": "m-small",
        "messages": ASK,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "prediction": {"type": "content", "content": "x"},
        "vendor_field": {"a": [1.0, None]},
    }
    assert sent.headers["authorization"] == "Bearer sk-upstream"  # the server's key, never the client's


def test_an_unstreamed_response_is_forwarded_byte_for_byte(
    connect: Connect, gateway: Served, openai_server: OpenAIServer
) -> None:
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "odd": 1.0, "choices": []}
    body["choices"] = [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ä"}}
    ]
    raw = json.dumps(body, indent=3, ensure_ascii=False).encode()
    openai_server.script(
        reply(200, raw, {"content-type": "application/json", "x-ratelimit-limit-requests": "9"})
    )
    answer = connect(gateway.base_url).chat.completions.with_raw_response.create(
        model="mine/m-large", messages=ASK
    )
    assert answer.content == raw
    assert answer.headers["x-ratelimit-limit-requests"] == "9"
    assert answer.headers["x-request-id"].startswith("req_")


def test_embeddings_are_forwarded(connect: Connect, gateway: Served, openai_server: OpenAIServer) -> None:
    body = {
        "object": "list",
        "model": "m-large",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    }
    openai_server.script(reply(200, body))
    found = connect(gateway.base_url).embeddings.create(
        model="mine/m-large", input=["a b"], encoding_format="float", dimensions=2
    )
    assert found.data[0].embedding == [0.5, -0.25]
    assert openai_server.requests[-1].json["dimensions"] == 2


def test_a_response_is_forwarded(connect: Connect, gateway: Served, openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, RESPONSE))
    found = connect(gateway.base_url).responses.create(model="mine/m-large", input="foxes?")
    assert found.output_text == TEXT
    assert found.usage is not None
    assert found.usage.output_tokens == 9


def _response_events() -> list[bytes]:
    frames: list[dict[str, Any]] = [
        {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "output": []}},
        *(
            {
                "type": "response.output_text.delta",
                "sequence_number": 1 + i,
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "delta": f"{word} ",
                "logprobs": [],
            }
            for i, word in enumerate(TEXT.split())
        ),
        {"type": "response.completed", "sequence_number": 20, "response": RESPONSE},
    ]
    return [f"event: {f['type']}\ndata: {json.dumps(f)}\n\n".encode() for f in frames]


def test_a_streamed_response_is_forwarded(both, openai_server: OpenAIServer) -> None:
    through, direct = both
    openai_server.script(events(*_response_events()), events(*_response_events()))
    seen, expected = (
        [event.model_dump() for event in client.responses.create(model=model, input="x", stream=True)]
        for client, model in ((through, "mine/m-large"), (direct, "m-large"))
    )
    assert seen == expected
    assert [event["type"] for event in seen][-1] == "response.completed"


def test_response_events_carry_an_event_line(
    connect: Connect, gateway: Served, openai_server: OpenAIServer
) -> None:
    openai_server.script(events(*_response_events()))
    with connect(gateway.base_url).responses.with_streaming_response.create(
        model="mine/m-large", input="x", stream=True
    ) as answer:
        lines = list(answer.iter_lines())
    assert lines[0] == "event: response.created"
    assert json.loads(lines[1].removeprefix("data: "))["type"] == "response.created"
    assert "data: [DONE]" not in lines  # as in OpenAI's API


def test_models_are_listed_and_retrieved(connect: Connect, gateway: Served, local_server: Served) -> None:
    names = [model.id for model in connect(gateway.base_url).models.list()]
    assert names == ["local/demo", "local/demo-target", "mine/m-large", "mine/m-small", "auto"]
    assert connect(gateway.base_url).models.retrieve("mine/m-large").owned_by == "mine"
    with pytest.raises(openai.NotFoundError, match="nothing"):
        connect(gateway.base_url).models.retrieve("mine/nothing")


@pytest.mark.parametrize("model", ["local/demo", "local/demo-target"])
def test_local_models_answer_chat_and_completions(connect: Connect, local_server: Served, model: str) -> None:
    client = connect(local_server.base_url)
    ask: Any = {"model": model, "max_tokens": 16, "temperature": 0}
    whole = client.chat.completions.create(messages=ASK, **ask)
    text = whole.choices[0].message.content
    assert text
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 16
    chunks = list(
        client.chat.completions.create(
            messages=ASK, stream=True, stream_options={"include_usage": True}, **ask
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert not chunks[-1].choices
    assert all(chunk.usage is None for chunk in chunks[:-1])
    continued = client.completions.create(prompt="def f(x):\n", **ask)
    assert continued.choices[0].finish_reason == "length"


async def test_the_asynchronous_client_streams_the_same_answer(local_server: Served) -> None:
    async with openai.AsyncOpenAI(base_url=local_server.base_url, api_key=KEY, max_retries=0) as client:
        ask: Any = {"model": "local/demo", "prompt": "def f(x):\n", "max_tokens": 16, "temperature": 0}
        whole = await client.completions.create(**ask)
        stream = await client.completions.create(stream=True, **ask)
        text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == whole.choices[0].text


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, openai.BadRequestError), (403, openai.PermissionDeniedError), (429, openai.RateLimitError),
     (500, openai.InternalServerError)],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_an_upstreams_error_keeps_its_status_and_body(
    connect: Connect,
    openai_server: OpenAIServer,
    status: int,
    kind: type[openai.APIStatusError],
    stream: bool,
) -> None:
    error = {"message": "no, because", "type": "odd_type", "param": "p", "code": "odd_code"}
    openai_server.script(reply(status, {"error": error}, {"retry-after": "7"}))
    with (
        Served(upstream_settings(openai_server), max_retries=0) as served,
        pytest.raises(kind) as caught,
    ):
        connect(served.base_url).chat.completions.create(model="mine/m-large", messages=ASK, stream=stream)
    assert caught.value.body == error
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.request_id is not None
    assert "sk-upstream" not in caught.value.response.text


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def test_an_error_in_a_stream_is_forwarded_as_an_event(both, openai_server: OpenAIServer) -> None:
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    first = _data({**chunk, "choices": [{"index": 0, "delta": {"content": "a"}}]})
    fault = _data({"error": {"message": "out of luck", "type": "server_error", "param": None, "code": "x"}})
    for client, model in zip(both, ("mine/m-large", "m-large"), strict=True):
        openai_server.script(events(first, fault))
        stream = client.chat.completions.create(model=model, messages=ASK, stream=True)
        assert next(stream).choices[0].delta.content == "a"
        with pytest.raises(openai.APIError, match="out of luck") as caught:
            next(stream)
        assert caught.value.code == "x"
