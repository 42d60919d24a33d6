"""The load of pools from their servers' pages, over HTTP."""

from __future__ import annotations

import asyncio
import time

import pytest
from loopback_server import OpenAIServer, reply
from paths import ROOT

from specclient import AsyncOpenAI
from specclient.config import Settings

RAY = (ROOT / "tests" / "data" / "fleets" / "ray_metrics.txt").read_text().replace("} 0.0", "} 6.0")
VLLM = (
    'vllm:num_requests_running{engine="0",model_name="d0"} 3.0\nvllm:num_requests_waiting{engine="0"} 1.0\n'
)


async def loads(client: AsyncOpenAI, wanted: dict[str, float]) -> dict[str, float]:
    """Return the loads once they are as wanted, or after two seconds."""
    end = time.monotonic() + 2
    while True:
        choice = client._core.shared.fleets.chooser("big").choose("chat", 10, 10)
        found = {view.name: view.in_progress for view in choice.views}
        if found == wanted or time.monotonic() > end:
            return found
        await asyncio.sleep(0.01)


async def call(client: AsyncOpenAI) -> None:
    await client.chat.completions.create(model="big/auto", messages=[{"role": "user", "content": "x"}])


@pytest.mark.anyio
async def test_calls_of_other_programs_count() -> None:
    with OpenAIServer() as pool, OpenAIServer(reply(200, VLLM.encode())) as busy, OpenAIServer() as node:
        node.script(reply(200, RAY.encode()), reply(500), reply(200, RAY.encode()))
        fleet = {
            "path": "x",
            "url": pool.url,
            "metrics": [f"{node.url}/metrics"],
            "pools": {"d3": {}, "d0": {"url": busy.base_url}},
        }
        settings = Settings.model_validate({"fleets": {"big": fleet}, "circuit": False})
        async with AsyncOpenAI(config=settings, ledger="off", max_retries=0) as client:
            await call(client)
            assert await loads(client, {"d3": 6.0, "d0": 10.0}) == {"d3": 6.0, "d0": 10.0}
            await call(client)
        assert [request.path for request in node.requests] == ["/metrics"], "one reading in two seconds"
        assert [request.path for request in busy.requests if "metrics" in request.path] == ["/metrics"]
        assert all("authorization" not in request.headers for request in node.requests)
