"""What is shielded goes on to its end where it waits, and costs no scope where it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from specclient import loops

pytestmark = pytest.mark.anyio


async def _at_once() -> str:
    return "done"


async def _later(steps: list[str]) -> str:
    for step in ("first", "second"):
        await anyio.sleep(0.01)
        steps.append(step)
    return "done"


async def test_what_does_not_wait_makes_no_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "shielded", lambda: pytest.fail("a scope was made"))
    assert await loops.shielding(_at_once()) == "done"


async def test_a_scope_that_is_cancelled_does_not_reach_it() -> None:
    steps: list[str] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await loops.shielding(_later(steps)) == "done"
    assert steps == ["first", "second"]


async def test_the_work_sees_a_cancel_of_its_task_and_what_it_awaits() -> None:
    seen: list[str] = []

    async def work(waits: asyncio.Future[Any]) -> str:
        try:
            return str(await waits)
        except (asyncio.CancelledError, LookupError) as error:
            seen.append(type(error).__name__)
            await asyncio.sleep(0)
            return "caught"

    loop = asyncio.get_running_loop()
    for end in ("cancel", "raise"):
        waits: asyncio.Future[Any] = loop.create_future()
        task = asyncio.create_task(loops.shielding(work(waits)))
        await asyncio.sleep(0)
        if end == "cancel":
            task.cancel()
        else:
            waits.set_exception(LookupError())
        assert await task == "caught"
    assert seen == ["CancelledError", "LookupError"]


@pytest.mark.parametrize("waits", [False, True])
async def test_what_it_raises_is_raised(waits: bool) -> None:
    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await loops.shielding(work())
