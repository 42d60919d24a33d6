"""Requests enter the engine without holding up the event loop, whatever their grammar or prompt."""

from __future__ import annotations

import asyncio
import os
import signal

import anyio
import pytest
from specclient_local.model.grammar_prover import grammar_prover
from tiny_models import load

from specclient.errors import BadRequestError
from specclient.types.request_limits import RequestLimits

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.name == "nt", reason="SIGSTOP")]

LARGE = "(?:abc|d)" * 300
ROOM = 2**30 + 2**20


async def whole(engine, prompt="x", **params):
    pieces = [piece async for piece in engine.astream(prompt, max_tokens=3, **params)]
    return pieces[-1].generation


async def test_a_grammar_that_is_tried_out_for_long_holds_up_no_other_request(checkpoint):
    """The process that tries it out stands still meanwhile."""
    limits = RequestLimits(grammar_memory_bytes=ROOM, grammar_s=30.0)
    with load(checkpoint(eos_token_id=None), request_limits=limits) as engine:
        await whole(engine, regex=LARGE)
        pid = grammar_prover(ROOM).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            waiting = [asyncio.ensure_future(whole(engine, regex=LARGE + "e" * i)) for i in range(1, 60)]
            with anyio.fail_after(60):
                await whole(engine)
                await whole(engine, "y" * 90)
                await whole(engine, regex="[a-z]+")
                await whole(engine, regex=LARGE)
            assert not any(task.done() for task in waiting)
            for task in waiting[1:]:
                task.cancel()
            with anyio.fail_after(60):
                await asyncio.wait(waiting[1:])
            assert not engine.unfinished
        finally:
            os.kill(pid, signal.SIGCONT)
        assert len((await waiting[0]).token_ids) == 3
        assert grammar_prover(ROOM).pid == pid
        assert not engine.unfinished


async def test_errors_of_a_grammar_are_raised_to_its_request(checkpoint):
    with load(checkpoint(eos_token_id=None)) as engine:
        for params, message in (
            ({"regex": "a{1000000}"}, "regex has 1000000 repetitions"),
            ({"regex": "(a"}, "regex cannot be used"),
            ({"json_schema": "[" * 3000}, "json_schema has 3000 brackets within each other"),
        ):
            with pytest.raises(BadRequestError, match=message):
                await whole(engine, **params)
            with pytest.raises(BadRequestError, match=message):
                engine.generate("x", max_tokens=3, **params)
        assert not engine.unfinished


async def test_a_long_prompt_is_read_in_a_thread_and_answered_alike(checkpoint):
    with load(checkpoint(eos_token_id=None, max_position_embeddings=8192)) as engine:
        prompt = "def f(x): " * 500
        assert (await whole(engine, prompt)).token_ids == engine.generate(prompt, max_tokens=3).token_ids
