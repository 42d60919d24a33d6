"""The permit of a request holds for every attempt and sub-call, whatever the router has chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from failover_servers import ANSWER, ASK, answering, breaking, kit, status
from strategy_servers import verifying

from specclient import NotFoundError, Policy
from specclient.client.async_client import AsyncOpenAI
from specclient.types.inference_methods import CHAT, COMPLETION
from specclient.types.request import PerCallOptions, Request
from specclient.types.strategy import Strategy

pytestmark = pytest.mark.anyio


class OnlyFirst:
    """Permits ``s0``; does not filter, as if the router had overlooked it."""

    def check(self, provider: str, model: str) -> None:
        if provider != "s0":
            raise NotFoundError(f"model {provider}/{model} may not be used")

    def usable(self, routes: tuple[str, ...]) -> tuple[str, ...]:
        return routes


def request(model: str = "auto", *, stream: bool = False, **fields: Any) -> Request:
    options = PerCallOptions(permit=OnlyFirst())
    return Request(CHAT, model, {"messages": ASK}, stream=stream, options=options, **fields)


async def send(client: AsyncOpenAI, call: Request) -> str:
    """Send a call and return its text, or the name of its error."""
    try:
        if not call.stream:
            return (await client.pipeline.call(call)).choices[0].message.content or ""
        stream = await client.pipeline.stream(call)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    except Exception as error:  # noqa: BLE001 - the test compares the name
        return type(error).__name__


@pytest.mark.parametrize("stream", [False, True])
async def test_a_forbidden_model_is_not_found(tmp_path: Path, stream: bool) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(answering())
        assert await send(made.client, request("s0/m", stream=stream)) == ANSWER
        assert await send(made.client, request("s1/m", stream=stream)) == "NotFoundError"
        with pytest.raises(NotFoundError):
            await made.client.pipeline.stream_bytes(request("s1/m", stream=stream))
        assert made.request_counts() == [1, 0]


@pytest.mark.parametrize("stream", [False, True])
async def test_failover_does_not_reach_a_forbidden_route(tmp_path: Path, stream: bool) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(status(500))
        assert await send(made.client, request(stream=stream)) == "InternalServerError"
        assert made.request_counts() == [1, 0]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_hedge_does_not_reach_a_forbidden_route(tmp_path: Path, stream: bool) -> None:
    async with kit(tmp_path) as made:
        made.patience_s = 0.05
        made.servers[0].script(answering(after_s=0.5))
        call = request(stream=stream, policy=Policy(hedge=1.0))
        assert await send(made.client, call) == ANSWER
        assert made.request_counts() == [1, 0]


async def test_a_broken_stream_is_not_continued_by_a_forbidden_route(tmp_path: Path) -> None:
    async with kit(tmp_path, capabilities=lambda _: {"prefill": "continue_final_message"}) as made:
        made.servers[0].script(breaking("The quick brown"), status(500))
        assert (await send(made.client, request(stream=True))).endswith("Error")
        assert made.request_counts()[1] == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["prediction", "prefill", "auto"])
async def test_no_strategy_drafts_with_a_forbidden_model(tmp_path: Path, kind: Any, stream: bool) -> None:
    known = {"prediction": True, "prefill": "assistant"}
    async with kit(tmp_path, capabilities=lambda _: known) as made:
        made.servers[0].script(*[verifying()] * 4)
        await send(made.client, request("s0/m", strategy=Strategy(kind=kind, draft="s1/m"), stream=stream))
        assert made.request_counts()[1] == 0


async def test_remote_verification_does_not_draft_with_a_forbidden_model(tmp_path: Path) -> None:
    async with kit(tmp_path, capabilities=lambda _: {"verification": "prompt_logprobs"}) as made:
        made.servers[0].script(*[answering()] * 4)
        call = Request(
            COMPLETION,
            "s0/m",
            {"prompt": "x", "temperature": 0, "max_tokens": 8},
            strategy=Strategy(kind="remote", draft="s1/m"),
            options=PerCallOptions(permit=OnlyFirst()),
        )
        await send(made.client, call)
        assert made.request_counts()[1] == 0
