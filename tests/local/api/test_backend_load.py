"""The load of a backend's engines, reported without loading a model."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest
from specclient_local.api.backend import create

from specclient.errors import NotFoundError
from specclient.types import inference_methods
from specclient.types.request import Request
from specclient.types.server_load import ServerLoad, SupportsLoad

pytestmark = pytest.mark.anyio


def chat(**params):
    messages = [{"role": "user", "content": "hi"}]
    return Request(inference_methods.CHAT, "local/m", {"messages": messages, "temperature": 0, **params})


async def test_current_load_reports_running_and_waiting_requests(checkpoint):
    backend = create(
        {"models": {"m": {"path": str(checkpoint(eos_token_id=None)), "slots": 2}}, "threads": 1}
    )
    assert isinstance(backend, SupportsLoad)
    assert backend.current_load("m") is None, "nothing is loaded yet"
    with pytest.raises(NotFoundError):
        backend.current_load("nobody")
    await backend.complete(chat(max_tokens=2), "m")
    assert backend.current_load("m") == ServerLoad(slots=2, cache_use=0.0)
    assert backend.current_load("m").utilisation == 0
    async with (
        anyio.create_task_group() as tasks,
        aclosing(backend.stream(chat(max_tokens=100), "m")) as chunks,
    ):
        await anext(chunks)
        for _ in range(
            40
        ):  # their prompts are rendered one after the other, while the first ones are answered
            tasks.start_soon(backend.complete, chat(max_tokens=60), "m")
        with anyio.fail_after(60):
            while (load := backend.current_load("m")).waiting < 2:
                await anyio.sleep(0.001)
        assert (load.running, load.slots, load.utilisation) == (2, 2, 1.0)
        while not backend.current_load("m").cache_use:
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(30):
        while backend.current_load("m").running:
            await anyio.sleep(0.01)
    await backend.aclose()
    assert backend.current_load("m") is None
