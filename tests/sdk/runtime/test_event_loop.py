"""The shield from cancelled scopes of anyio, which is made only where a scope may be."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import anyio
import pytest

from specclient.runtime.event_loop import cancel_shield

pytestmark = pytest.mark.anyio


async def test_work_in_a_shield_ends_in_a_cancelled_scope() -> None:
    ended = False
    with anyio.CancelScope() as scope:
        scope.cancel()
        with cancel_shield():
            await asyncio.sleep(0.01)
            ended = True
        await asyncio.sleep(0)
    assert ended
    assert scope.cancelled_caught


async def test_work_in_a_shield_ends_in_a_task_of_a_cancelled_group() -> None:
    ended = []

    async def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        with cancel_shield():
            await asyncio.sleep(0.01)
            ended.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await asyncio.sleep(0)
        group.cancel_scope.cancel()
    assert ended


async def test_a_task_that_is_in_no_scope_gets_no_shield() -> None:
    async def shield() -> object:
        return cancel_shield()

    assert isinstance(await asyncio.create_task(shield()), contextlib.nullcontext)


async def test_a_version_of_anyio_that_notes_no_tasks_is_shielded_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(sys.modules["anyio._backends._asyncio"], "_task_states")
    assert isinstance(cancel_shield(), anyio.CancelScope)
