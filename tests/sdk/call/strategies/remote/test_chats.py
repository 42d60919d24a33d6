"""Chats by strategy ``remote``: rendered here by the target's template, they equal the server's own chats."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway_server import Served
from loopback_server import Behaviour, OpenAIServer, Received, Wire, reply
from remote_servers import DRAFT, TARGET, Scorer, fireworks, sglang, tgi, together
from specclient_local.api.backend import LocalBackend
from specclient_local.model.config import BUNDLED
from specclient_local.model.tokenizer import Tokenizer

from specclient import (
    AsyncOpenAI,
    BadRequestError,
    ConfigurationError,
    Settings,
    Strategy,
    UnsupportedParameterError,
)

pytestmark = pytest.mark.anyio

MODEL = f"far/local/{TARGET}"
TEMPLATE = str(BUNDLED / "target")
CHATS: tuple[list[Any], ...] = (
    [{"role": "user", "content": "def fibonacci(n):\n"}],
    [
        {"role": "system", "content": "A stack.\nWith tests."},
        {"role": "user", "content": "class Stack:"},
        {"role": "assistant", "content": "    pass"},
        {"role": "user", "content": [{"type": "text", "text": "class Queue:\n    def push(self, item):"}]},
    ],
    [{"role": "user", "content": "# é ü naïve ☃ snow\ndef f(text):\n    return '"}],
)
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {}}}
TOOLS_TEMPLATE = (
    "{{ bos_token }}{% for tool in tools or [] %}<tool_call>{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}{{ m.content }}{% endfor %}"
)


def remote(depth: int | None = 4) -> Strategy:
    return Strategy(kind="remote", draft=DRAFT, depth=depth)


def connected(base_url: str, template: Any = TEMPLATE, form: str = "prompt_logprobs") -> AsyncOpenAI:
    far = {"base_url": base_url, "capabilities": {"verification": form}}
    if template is not None:
        far["template"] = template
    settings = Settings.model_validate({"providers": {"far": far}, "local": {"threads": 1}})
    return AsyncOpenAI(config=settings, ledger="off", max_retries=0)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(Settings.model_validate({"local": {"threads": 1}}), ledger="off") as running:
        yield running


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[AsyncOpenAI]:
    made = connected(served.base_url)
    yield made
    anyio.run(made.close)


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    backend = LocalBackend({"threads": 1})
    yield Scorer(backend)
    anyio.run(backend.aclose)


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


async def chat(client: AsyncOpenAI, messages: Any, **params: Any) -> Any:
    return await client.chat.completions.create(model=MODEL, messages=messages, temperature=0, **params)


def counts(answer: Any) -> tuple[int, int]:
    return answer.usage.prompt_tokens, answer.usage.completion_tokens


@pytest.mark.parametrize("depth", [4, None])
@pytest.mark.parametrize("limit", [{"max_tokens": 20}, {"max_completion_tokens": 24, "stop": ["\n\n", "if"]}])
async def test_a_chat_equals_the_servers_own(client: AsyncOpenAI, depth: int | None, limit: Any) -> None:
    for messages in CHATS:
        own = await chat(client, messages, **limit)
        answer = await chat(client, messages, **limit, strategy=remote(depth))
        assert answer.choices[0].message == own.choices[0].message
        assert answer.choices[0].finish_reason == own.choices[0].finish_reason
        assert counts(answer) == counts(own)
        assert (answer.object, answer.id[:9]) == ("chat.completion", "chatcmpl-")
        assert answer.meta.strategy == answer.meta.speculation.method == "remote"
        assert {part.purpose for part in answer.meta.parts} == {"draft", "verify"}


async def test_a_chat_is_streamed_as_it_is_verified(client: AsyncOpenAI) -> None:
    ask: dict[str, Any] = {"max_tokens": 24, "stream": True, "stream_options": {"include_usage": True}}
    for strategy in (remote(), remote(None)):
        own = [chunk async for chunk in await chat(client, CHATS[0], **ask)]
        stream = await chat(client, CHATS[0], **ask, strategy=strategy)
        chunks = [chunk async for chunk in stream]
        texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert "".join(filter(None, texts)) == "".join(
            chunk.choices[0].delta.content or "" for chunk in own if chunk.choices
        )
        assert chunks[0].choices[0].delta.role == "assistant"
        assert {chunk.choices[0].delta.role for chunk in chunks[1:-1]} == {None}
        assert [chunk.choices[0].finish_reason for chunk in chunks[:-1] if chunk.choices][-1] == "length"
        assert chunks[-1].usage.completion_tokens == 24
        assert len({chunk.id for chunk in chunks}) == 1
        assert stream.meta.speculation.method == "remote"


async def test_a_chat_without_a_limit_ends_with_the_context(client: AsyncOpenAI, monkeypatch: Any) -> None:
    messages = [{"role": "user", "content": "x = [0]\n" * 168}]  # the context holds 1024 tokens
    monkeypatch.setattr("specclient.call.strategies.remote.loop.REST_TOKENS", 7)
    own = await chat(client, messages)
    answer = await chat(client, messages, strategy=remote(8))
    assert 8 < own.usage.completion_tokens < 40
    assert answer.choices[0].message.content == own.choices[0].message.content
    assert answer.choices[0].finish_reason == own.choices[0].finish_reason == "length"
    assert counts(answer) == counts(own)
    assert "the rest was decoded by the target alone" in answer.meta.strategy_reason


FORMS: dict[str, Any] = {"sglang": sglang, "echo_last": fireworks, "echo": together, "tgi": tgi}


@pytest.mark.parametrize("form", FORMS)
async def test_the_start_token_is_there_once_at_every_kind_of_server(
    client: AsyncOpenAI, scorer: Scorer, server: OpenAIServer, form: str
) -> None:
    server.script(*[FORMS[form](scorer)] * 200)
    async with connected(server.base_url, form=form) as far:
        for messages in CHATS[:2]:
            own = await chat(client, messages, max_tokens=12)
            answer = await chat(far, messages, max_tokens=12, strategy=remote())
            assert answer.choices[0].message.content == own.choices[0].message.content
            assert counts(answer) == counts(own)


def scripted(tokens: list[int], texts: list[str], *, bodies: list[Any]) -> Behaviour:
    """Answer as vLLM would if its model generated these tokens, whatever the prompt."""
    prompt: list[int] = []

    async def run(received: Received, wire: Wire) -> None:
        body = received.json
        bodies.append(body)
        sent = body["prompt"]
        if isinstance(sent, str):
            prompt[:] = Tokenizer(BUNDLED / "target").encode(sent, begins=body["add_special_tokens"])
            sent = list(prompt)
        done = len(sent) - len(prompt)
        known = [*prompt, *tokens]
        ranked = None
        if body.get("prompt_logprobs"):
            known += [0] * len(sent)  # after the end, whatever
            ranked = [None] + [
                {str(token): {"rank": 2, "decoded_token": "?"}, str(best): {"rank": 1, "decoded_token": "?"}}
                for token, best in zip(sent[1:], known[1:], strict=False)
            ]
            done = next((i for i in range(len(sent)) if sent[i] != known[i]), len(sent)) - len(prompt)
        new = tokens[done : done + body["max_tokens"]]
        ended = bool(set(new) & set(body.get("stop_token_ids") or ()))
        choice = {
            "index": 0,
            "text": "".join(texts[done : done + len(new)]),
            "finish_reason": "stop" if ended else "length",
            "token_ids": new,
            "prompt_token_ids": prompt,
            "prompt_logprobs": ranked,
        }
        answer = {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        await reply(200, answer)(received, wire)

    return run


async def test_tool_calls_are_read_from_the_text_whole_and_streamed(
    server: OpenAIServer, tmp_path: Path
) -> None:
    words = Tokenizer(BUNDLED / "target")
    said = 'I add.\n<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    tokens = [*words.encode(said, begins=False), 1]  # 1 ends the turn
    texts = [words.decode([token]) for token in tokens]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((BUNDLED / "target" / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text(TOOLS_TEMPLATE)
    bodies: list[Any] = []
    server.script(*[scripted(tokens, texts, bodies=bodies)] * 400)
    async with connected(server.base_url, str(tmp_path)) as far:
        ask: dict[str, Any] = {"tools": [TOOL], "strategy": remote(2)}
        answer = await chat(far, CHATS[0], **ask)
        message = answer.choices[0].message
        assert message.content == "I add."
        assert answer.choices[0].finish_reason == "tool_calls"
        [call] = message.tool_calls
        assert (call.type, call.function.name, json.loads(call.function.arguments)) == (
            "function", "add", {"a": 1}
        )  # fmt: skip
        assert answer.usage.completion_tokens == len(tokens)
        assert bodies[0]["prompt"] == f"<|bos|><tool_call>{json.dumps(TOOL)}def fibonacci(n):\n"
        assert bodies[0]["add_special_tokens"] is False
        assert all(body["stop_token_ids"] == [1] for body in bodies)
        assert not any({"messages", "tools"} & body.keys() for body in bodies)
        chunks = [chunk async for chunk in await chat(far, CHATS[0], **ask, stream=True)]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == "I add."
    parts = [part for delta in deltas for part in delta.tool_calls or ()]
    assert [part.function.name for part in parts if part.id] == ["add"]
    assert json.loads("".join(part.function.arguments or "" for part in parts)) == {"a": 1}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_text_ends_before_a_character_that_vllm_never_completes(
    server: OpenAIServer, stream: bool
) -> None:
    words = Tokenizer(BUNDLED / "target")
    part = words.encode("日", begins=False)[0]
    tokens, texts = [*words.encode("x", begins=False), part, part, part], ["x", "", "", ""]
    server.script(*[scripted(tokens, texts, bodies=[])] * 50)
    async with connected(server.base_url) as far:
        ask: dict[str, Any] = {"max_tokens": 4, "strategy": remote(2)}
        if stream:
            chunks = [chunk async for chunk in await chat(far, CHATS[0], **ask, stream=True)]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            text = (await chat(far, CHATS[0], **ask)).choices[0].message.content
    assert text == "x"


REFUSED: dict[str, Any] = {
    "temperature": {"temperature": 0.5},
    "tool_choice": {"tools": [TOOL], "tool_choice": "required"},
    "response_format": {"response_format": {"type": "json_object"}},
    "logprobs": {"logprobs": True},
    "max_completion_tokens": {"max_completion_tokens": 0},
    "tools": {"tools": [TOOL]},  # the bundled template has none
    "messages": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}]},
}


@pytest.mark.parametrize("param", REFUSED)
async def test_what_cannot_be_verified_is_refused_before_anything_is_sent(
    server: OpenAIServer, param: str
) -> None:
    ask = {"model": MODEL, "messages": CHATS[0], "temperature": 0, **REFUSED[param]}
    async with connected(server.base_url) as far:
        with pytest.raises(UnsupportedParameterError) as caught:
            await far.chat.completions.create(**ask, strategy=remote())
    assert caught.value.param == param
    assert server.requests == []


async def test_a_missing_or_failing_template_is_an_error_before_anything_is_sent(
    server: OpenAIServer, tmp_path: Path
) -> None:
    (tmp_path / "picky.jinja").write_text("{{ raise_exception('no such turns') }}")
    none: dict[str, Any] = {"other-model": TEMPLATE}
    for template, kind, message in (
        (str(tmp_path), ConfigurationError, "names a checkpoint without a chat template"),
        (str(tmp_path / "gone.jinja"), ConfigurationError, "there is no such file or folder"),
        (str(tmp_path / "picky.jinja"), BadRequestError, "TemplateError: no such turns"),
        (none, UnsupportedParameterError, r"set template under \[providers.far\]"),
        (None, UnsupportedParameterError, "is not known here"),
    ):
        async with connected(server.base_url, template) as far:
            with pytest.raises(kind, match=message):
                await chat(far, CHATS[0], strategy=remote())
    assert server.requests == []


async def test_auto_verifies_chats_and_leaves_what_it_cannot_render_to_the_server(served: Served) -> None:
    auto = Strategy(draft=DRAFT, depth=3)
    several = [{"role": "user", "content": [{"type": "text", "text": "a = "}] * 2}]
    async with connected(served.base_url, {"*": TEMPLATE}) as client:
        assert (await chat(client, CHATS[0], max_tokens=8, strategy=auto)).meta.strategy == "remote"
        own = await chat(client, several, max_tokens=8)
        answer = await chat(client, several, max_tokens=8, strategy=auto)
        assert answer.choices[0].message.content == own.choices[0].message.content
        assert "decoded by the target alone: messages[0].content has 2 parts" in answer.meta.strategy_reason
        stream = await chat(client, several, max_tokens=8, strategy=auto, stream=True)
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(texts) == own.choices[0].message.content
    async with connected(served.base_url, None) as client:
        answer = await chat(client, CHATS[0], max_tokens=8, strategy=auto)
        assert answer.meta.strategy == "direct"
        assert "is not known here" in answer.meta.strategy_reason


async def test_a_draft_that_fails_leaves_the_chat_to_the_server(served: Served, client: AsyncOpenAI) -> None:
    own = await chat(client, CHATS[0], max_tokens=8)
    with OpenAIServer() as away:
        away.script(*[reply(500, {"error": {"message": "away"}})] * 10)
        far = {
            "base_url": served.base_url,
            "template": TEMPLATE,
            "capabilities": {"verification": "prompt_logprobs"},
        }
        settings = {"providers": {"far": far, "away": {"base_url": away.base_url}}}
        async with AsyncOpenAI(config=Settings.model_validate(settings), ledger="off", max_retries=0) as made:
            strategy = Strategy(kind="remote", draft="away/m")
            answer = await chat(made, CHATS[0], max_tokens=8, strategy=strategy)
    assert answer.choices[0].message.content == own.choices[0].message.content
    assert answer.object == "chat.completion"
    assert "decoded by the target alone: the draft away/m failed" in answer.meta.strategy_reason
