"""Disconnected streams: which are continued on another route, with one joined text, and which are not."""

from __future__ import annotations

import asyncio
import gc
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from failover_servers import ANSWER, ASK, CONTINUES, answering, breaking, continuing, frames, kit, status
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import events, hang

from specclient import APIConnectionError, APIError, OpenAI, Policy
from specclient.call.failover.routed_call import RoutedCall
from specclient.call.failover.splice import StreamSplice
from specclient.types.chat import ChatCompletionChunk
from specclient.types.usage import Usage

pytestmark = pytest.mark.anyio

BEGUN = "The quick brown fox"
AUTO: dict[str, Any] = {"model": "auto", "messages": ASK, "stream": True}
PROMPT: dict[str, Any] = {"model": "auto", "prompt": "Foxes:|", "stream": True, "max_tokens": 40}


def able(*numbers: int) -> Any:
    """Return the capabilities of the servers: those of ``numbers`` can continue an assistant message."""
    return lambda number: CONTINUES if number in numbers else {"prefill": False}


async def text_of(stream: Any) -> tuple[str, list[Any]]:
    chunks = [chunk async for chunk in stream]
    parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
    return "".join((c.delta.content if hasattr(c, "delta") else c.text) or "" for c in parts), chunks


@pytest.mark.parametrize("how", ["reset", "close", "error", "hang"])
async def test_a_disconnected_stream_is_continued_on_another_route(tmp_path: Path, how: str) -> None:
    async with kit(tmp_path, capabilities=able(1)) as made:
        made.servers[0].script(breaking(BEGUN, how=how))
        made.servers[1].script(continuing())
        options = {"stream_options": {"include_usage": True}, "max_tokens": 40, "timeout": 0.5}
        stream = await made.client.chat.completions.create(**AUTO, **options)
        text, chunks = await text_of(stream)
        meta, rows = stream.meta, await made.rows()
        sent = made.servers[1].requests[0].json
    assert text == ANSWER
    assert {(chunk.id, chunk.created, chunk.model) for chunk in chunks} == {("c1", 2, "m")}
    assert [c.choices[0].delta.role for c in chunks if c.choices].count("assistant") == 1
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [
        "stop"
    ]
    assert sent["messages"] == [*ASK, {"role": "assistant", "content": BEGUN}]
    assert sent["continue_final_message"] is True
    assert sent["max_tokens"] == 36  # the text so far is four tokens
    first, second = meta.parts
    assert (first.status, first.purpose, second.status, second.purpose) == ("error", "call", "ok", "failover")
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (meta.usage.prompt, meta.usage.completion)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert (first.usage.completion, second.usage.completion) == (4, 9)
    assert meta.cost.nano == sum(row.cost_nano or 0 for row in rows)
    assert meta.route.chosen == "s1/m"
    assert "continues where s0/m" in meta.route.reason
    assert [row.parent for row in rows] == [meta.id] * 2
    assert meta.counts == {"tool_calls": 0}
    assert meta.ttft_s is not None
    assert meta.ttft_s <= meta.latency_s


async def test_a_text_completion_is_continued_by_extending_the_prompt(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:  # no known capabilities; text completions need none to continue
        made.servers[0].script(breaking(BEGUN))
        made.servers[1].script(continuing())
        stream = await made.client.completions.create(**PROMPT)
        text, chunks = await text_of(stream)
        assert made.servers[1].requests[0].json["prompt"] == "Foxes:|" + BEGUN
    assert text == ANSWER
    assert {chunk.id for chunk in chunks} == {"c1"}


@pytest.mark.parametrize("limit", [4, 3])
async def test_an_estimate_above_the_limit_leaves_a_continuation_one_token(
    tmp_path: Path, limit: int
) -> None:
    async with kit(tmp_path) as made:  # the text so far is counted as four tokens, by an estimate
        made.servers[0].script(breaking(BEGUN))
        made.servers[1].script(continuing())
        await text_of(await made.client.completions.create(**{**PROMPT, "max_tokens": limit}))
        assert made.servers[1].requests[0].json["max_tokens"] == 1


async def test_the_local_engine_continues_a_disconnected_stream(tmp_path: Path) -> None:
    async with kit(tmp_path, 1, routes=["s0/m", "local/demo"]) as made:
        ask = {**PROMPT, "prompt": "def add(a, b):\n", "temperature": 0, "max_tokens": 12}
        made.servers[0].script(breaking("    return a"))
        text, chunks = await text_of(await made.client.completions.create(**ask))
        ask |= {"model": "local/demo", "prompt": ask["prompt"] + "    return a", "max_tokens": 9}
        rest, _ = await text_of(await made.client.completions.create(**ask))
    assert text == "    return a" + rest  # three of the twelve tokens were received before
    assert {chunk.model for chunk in chunks} == {"m"}


async def test_a_stream_is_continued_on_its_own_route_if_no_other_can(tmp_path: Path) -> None:
    async with kit(tmp_path, 1, capabilities=able(0)) as made:
        made.servers[0].script(breaking(BEGUN), continuing())
        stream = await made.client.chat.completions.create(**AUTO)
        text, _ = await text_of(stream)
        assert len(made.servers[0].requests) == 2
    assert text == ANSWER
    assert len(stream.meta.parts) == 2


async def test_a_disconnected_continuation_is_continued(tmp_path: Path) -> None:
    async with kit(tmp_path, 3, capabilities=able(0, 1, 2)) as made:
        made.servers[0].script(breaking(BEGUN))
        made.servers[1].script(breaking(" jumps over", name="c2"))
        made.servers[2].script(continuing(echo=True))
        stream = await made.client.chat.completions.create(**AUTO)
        text, chunks = await text_of(stream)
    assert text == ANSWER
    assert {chunk.id for chunk in chunks} == {"c1"}
    assert [part.purpose for part in stream.meta.parts] == ["call", "failover", "failover"]


async def test_the_error_of_a_failed_continuation_has_all_the_text(tmp_path: Path) -> None:
    async with kit(tmp_path, capabilities=able(1)) as made:
        made.servers[0].script(breaking(BEGUN))
        made.servers[1].script(breaking(" jumps over"))
        stream = await made.client.chat.completions.create(**AUTO)
        with pytest.raises(APIConnectionError) as raised:
            await text_of(stream)
        rows = await made.rows()
        assert made.request_counts() == [1, 1]
    assert raised.value.partial == BEGUN + " jumps over"
    assert raised.value.__notes__
    assert (stream.meta.status, stream.meta.error) == ("error", "APIConnectionError")
    assert [row.status for row in rows] == ["error", "error"]


CANNOT: list[tuple[str, dict[str, Any]]] = [
    ("no route continues", {}),
    ("two choices", {"n": 2}),
    ("log-probabilities", {"logprobs": True}),
    ("tools", {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}),
    ("fallbacks refused", {"policy": Policy(fallbacks=False)}),
]


@pytest.mark.parametrize(("why", "more"), CANNOT, ids=[each[0] for each in CANNOT])
async def test_a_stream_that_cannot_be_continued_raises_with_its_text(
    tmp_path: Path, why: str, more: dict[str, Any]
) -> None:
    async with kit(tmp_path, capabilities=able(0, 1) if more else able()) as made:
        made.servers[0].script(breaking(BEGUN))
        stream = await made.client.chat.completions.create(**AUTO, **more)
        with pytest.raises(APIConnectionError) as raised:
            await text_of(stream)
        (row,) = await made.rows()
        assert made.request_counts() == [1, 0]
    assert raised.value.partial == BEGUN
    assert (row.id, row.parent, row.status) == (stream.meta.id, None, "error")


@pytest.mark.parametrize("how", ["reset", "close", "hang"])
async def test_a_stream_disconnected_before_its_first_token_restarts_on_another_route(
    tmp_path: Path, how: str
) -> None:
    async with kit(tmp_path) as made:

        async def role_only(received: Any, wire: Any) -> None:
            await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
            await wire.chunk(frames(received.json, "x")[0])
            await asyncio.sleep(0.02)
            if how == "reset":
                wire.reset()
            elif how == "hang":
                await wire.client_left()
            wire.keep = False

        made.servers[0].script(role_only)
        made.servers[1].script(answering(name="c9"))
        stream = await made.client.chat.completions.create(**AUTO, timeout=0.5)
        text, chunks = await text_of(stream)
    assert text == ANSWER
    assert {chunk.id for chunk in chunks} == {"c9"}  # no chunk of the first stream was yielded
    assert [c.choices[0].delta.role for c in chunks].count("assistant") == 1


async def test_a_client_error_amid_a_stream_is_raised_without_continuation(tmp_path: Path) -> None:
    async with kit(tmp_path, capabilities=able(0, 1)) as made:
        refusal = b'data: {"error": {"message": "no", "code": 400, "type": "invalid_request_error"}}\n\n'

        async def run(received: Any, wire: Any) -> None:
            await events(*frames(received.json, BEGUN)[:3], refusal)(received, wire)

        made.servers[0].script(run)
        stream = await made.client.chat.completions.create(**AUTO)
        with pytest.raises(APIError) as raised:
            await text_of(stream)
        assert made.request_counts() == [1, 0]
    assert raised.value.partial == "The quick"


async def test_closing_the_stream_closes_the_connection_of_the_continuation(tmp_path: Path) -> None:
    async with kit(tmp_path, capabilities=able(1)) as made:
        made.servers[0].script(breaking(BEGUN))
        made.servers[1].script(breaking(" jumps over", how="hang"))
        stream = await made.client.chat.completions.create(**AUTO)
        async for chunk in stream:
            if "jumps" in (chunk.choices[0].delta.content or ""):
                break
        await stream.close()
        assert await asyncio.to_thread(made.servers[1].wait_left, 1)
        rows = await made.rows()
    assert stream.meta.status == "cancelled"
    assert [row.status for row in rows] == ["error", "cancelled"]


async def test_a_disconnected_responses_stream_is_not_continued(tmp_path: Path) -> None:
    delta = b'data: {"type": "response.output_text.delta", "delta": "Hi", "item_id": "i", "output_index": 0, '
    delta += b'"content_index": 0, "sequence_number": 1}\n\n'
    async with kit(tmp_path, capabilities=able(0, 1)) as made:

        async def run(received: Any, wire: Any) -> None:
            await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
            await wire.chunk(delta)
            await asyncio.sleep(0.02)
            wire.reset()

        made.servers[0].script(run)
        stream = await made.client.responses.create(model="auto", input="x", stream=True)
        with pytest.raises(APIConnectionError):
            [event async for event in stream]
        assert made.request_counts() == [1, 0]


def test_the_synchronous_client_continues_a_disconnected_stream(tmp_path: Path) -> None:
    async def main() -> None:
        async with kit(tmp_path, capabilities=able(1)) as made:
            made.servers[0].script(breaking(BEGUN))
            made.servers[1].script(continuing())

            def ask() -> str:
                with OpenAI(config=made.client.core.settings, ledger="off", max_retries=0) as client:
                    client.core.pipeline.router.decide = made.decide  # type: ignore[method-assign]
                    stream = client.chat.completions.create(**AUTO)
                    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

            assert await asyncio.to_thread(ask) == ANSWER

    asyncio.run(main())


async def test_the_record_of_an_unfinished_stream_is_open(tmp_path: Path) -> None:
    async with kit(tmp_path, capabilities=able(1)) as made:
        made.servers[0].script(breaking(BEGUN, how="hang"))
        stream = await made.client.chat.completions.create(**AUTO)
        await anext(stream)
        assert stream.meta.status == "open"
        assert stream.meta.route.chosen == "s0/m"
        await stream.close()
        assert stream.meta.status == "cancelled"
        assert stream.meta.parts == ()
        assert await asyncio.to_thread(made.servers[0].wait_left, 1)
        assert [row.parent for row in await made.rows()] == [None]


async def test_a_refused_stream_and_then_a_disconnected_one_are_both_failed_over(tmp_path: Path) -> None:
    async with kit(tmp_path, 3, capabilities=able(2)) as made:
        made.servers[0].script(status(429))
        made.servers[1].script(breaking(BEGUN))
        made.servers[2].script(continuing())
        text, _ = await text_of(await made.client.chat.completions.create(**AUTO))
        assert made.request_counts() == [1, 1, 1]
    assert text == ANSWER


async def test_a_route_that_refuses_the_continuation_is_skipped(tmp_path: Path) -> None:
    async with kit(tmp_path, 3, capabilities=able(1, 2)) as made:
        made.servers[0].script(breaking(BEGUN))
        made.servers[1].script(status(400))
        made.servers[2].script(continuing())
        text, _ = await text_of(await made.client.chat.completions.create(**AUTO))
    assert text == ANSWER


async def test_the_deadline_ends_a_continuation(tmp_path: Path) -> None:
    async with kit(tmp_path, capabilities=able(1)) as made:
        made.servers[0].script(breaking(BEGUN))
        made.servers[1].script(hang)
        stream = await made.client.chat.completions.create(**AUTO, deadline_s=0.5)
        with pytest.raises(APIConnectionError) as raised:
            await text_of(stream)
        assert await asyncio.to_thread(made.servers[1].wait_left, 1)
    assert raised.value.partial == BEGUN


def _chunk(text: str, *, last: bool = False) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop" if last else None}
    row = {"id": "c2", "object": "chat.completion.chunk", "created": 2, "model": "n", "choices": [choice]}
    return ChatCompletionChunk.model_validate(row)


@given(
    answer=st.text("ab \n", max_size=12),
    at=st.integers(0, 12),
    echo=st.booleans(),
    stripped=st.booleans(),
    cuts=st.lists(st.integers(0, 14), max_size=4),
)
def test_joined_chunks_are_the_complete_answer(
    answer: str, at: int, echo: bool, stripped: bool, cuts: list[int]
) -> None:
    """No text is repeated, however the continuation is split with or without an echo of the text."""
    given_, rest = answer[:at], answer[at:]
    sent = given_.rstrip()
    if not sent:
        return  # an answer of blanks only is not continued
    blanks = given_[len(sent) :]
    reply = blanks + rest  # the text that follows ``sent``
    if stripped and not echo:
        reply = rest  # some servers omit blanks at the beginning
    if blanks and reply and rest.startswith((" ", "\n")) and stripped:
        return  # it is undecidable which side the blanks belong to
    if not echo and reply and (reply.startswith(sent) or sent.startswith(reply)):
        return  # a repetition in the answer cannot be told from an echo
    whole = sent + reply if echo else reply
    edges = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    pieces = [whole[a:b] for a, b in pairwise(edges)] or [""]
    first = SimpleNamespace(id="c1", created=1, model="m")
    splice = StreamSplice(first, given_, may_repeat=True, earlier_usage=[Usage(prompt=1, completion=2)])
    chunks = [_chunk(piece) for piece in pieces] + [_chunk("", last=True)]
    out = [got for chunk in chunks for got in splice.spliced([chunk])]
    assert given_ + "".join(c.choices[0].delta.content or "" for c in out) == answer
    assert given_ + splice.text == answer
    assert {c.id for c in out} == {"c1"}


async def test_a_continued_stream_leaves_no_reference_cycles(tmp_path: Path) -> None:
    async with kit(tmp_path, capabilities=able(1)) as made:

        async def one() -> None:
            made.servers[0].script(breaking(BEGUN))
            made.servers[1].script(continuing())
            await text_of(await made.client.chat.completions.create(**AUTO))

        await one()
        gc.collect()
        gc.disable()
        try:
            await one()
            left = [each for each in gc.get_objects() if type(each) is RoutedCall]
        finally:
            gc.enable()
    assert not left
