"""The worker's queue: its limit, fairness, cancellation, and the cleanup after failures."""

from __future__ import annotations

import asyncio

import pytest
import torch
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.logits_processors import RequestLogitsProcessor
from specclient_local.model.native.greedy_rounds import NativeRounds
from tiny_models import load

from specclient.errors import BadRequestError, ConfigurationError, EngineError, RateLimitError

pytestmark = pytest.mark.anyio


@pytest.fixture
def unstarted(checkpoint):
    """Load an engine whose worker thread is not started; tests call ``step`` themselves."""
    with load(checkpoint(eos_token_id=None, max_position_embeddings=1024), slots=2) as engine:
        yield engine


def drain(engine):
    while engine.step():
        pass


def free_slots(engine):
    return sorted(engine._worker.batch.scheduler._free)


def test_requests_beyond_max_waiting_are_rejected_with_the_count(checkpoint):
    with load(checkpoint(eos_token_id=None), slots=2, max_waiting=1) as engine:
        numbers = [engine.add("x", lambda event: None, max_tokens=20) for _ in range(3)]
        for _ in range(2):
            with pytest.raises(RateLimitError, match="2 requests run and 1 wait, as many as max_waiting"):
                engine.add("x", lambda event: None, max_tokens=20)
            engine.step()
        engine.cancel(numbers[0])
        last = []
        engine.add("x", last.append, max_tokens=3)
        drain(engine)
        assert last[-1].generation is not None
    with pytest.raises(ConfigurationError, match="max_waiting is -1; allowed is None, or"):
        load(checkpoint(), max_waiting=-1)


def test_generate_many_uses_consecutive_seeds(checkpoint):
    params = {"max_tokens": 12, "temperature": 0.9}
    with load(checkpoint(eos_token_id=None), slots=2) as engine:
        several = engine.generate_many("def f(x):", 3, seed=5, **params)
        for i, got in enumerate(several):
            assert got.token_ids == engine.generate("def f(x):", seed=5 + i, **params).token_ids
        assert len({tuple(got.token_ids) for got in several}) == 3
        assert len(engine.generate_many("x", 3, **params)) == 3
        with pytest.raises(BadRequestError, match="n is 0; allowed is an integer of at least 1"):
            engine.generate_many("x", 0)
        with pytest.raises(BadRequestError, match="seed is 18446744073709551616"):
            engine.generate_many("x", 2, seed=2**64 - 1, **params)
        drain(engine)
        assert free_slots(engine) == [0, 1]


def test_generate_many_holds_no_more_requests_than_it_needs(checkpoint):
    """So that the number of answers does not decide the memory of those that have not begun."""
    with load(checkpoint(eos_token_id=None), slots=2, max_waiting=4) as engine:
        held, add = [], engine.add

        def counted(*args, **kwargs):
            held.append(engine.unfinished)
            return add(*args, **kwargs)

        engine.add = counted
        assert len(engine.generate_many("x", 40, max_tokens=2)) == 40
        assert len(held) == 40
        assert max(held) <= 6


async def test_an_unread_stream_does_not_block_other_streams(checkpoint):
    with load(checkpoint(eos_token_id=None), slots=2) as engine:
        slow = engine.astream("x", max_tokens=100)
        await anext(slow)
        others = [engine.astream("x", max_tokens=100) for _ in range(2)]
        for other in others:
            assert [piece async for piece in other][-1].generation is not None
        while engine.unfinished:  # an unread stream finishes, too
            await asyncio.sleep(0.01)
        assert len([piece async for piece in slow]) == 99


@pytest.mark.parametrize("state", ["waiting", "prefilling", "ready"])
def test_a_cancelled_request_leaves_queue_and_slot_in_the_next_step(unstarted, state):
    engine, received, other = unstarted, [], []
    scheduler = engine._worker.batch.scheduler
    held = [engine.add([7] * 5, lambda event: None, max_tokens=200) for _ in range(2 * (state == "waiting"))]
    number = engine.add([9] * 900, received.append, max_tokens=50)
    sequence = engine._worker.jobs[number].sequence
    groups = {"waiting": scheduler.waiting, "prefilling": scheduler._prefilling, "ready": scheduler.ready}
    while sequence not in groups[state]:
        engine.step()
    assert (sequence.slot is None) == (state == "waiting")
    engine.cancel(number)
    waits = engine.add([5], other.append, max_tokens=1)
    if state == "waiting":
        engine.cancel(held[0])
    before = len(received)
    engine.step()
    assert sequence.slot is None
    assert sequence not in [*scheduler.waiting, *scheduler.running, *scheduler._prefilling, *scheduler.ready]
    assert waits not in scheduler.waiting
    drain(engine)
    assert len(received) == before
    assert other[-1].generation is not None
    assert free_slots(engine) == [0, 1]


def test_short_prompts_are_not_delayed_by_a_long_one(unstarted):
    engine, order = unstarted, []
    engine.add([9] * 1000, lambda event: order.append("long"), max_tokens=1)
    for i in range(3):
        engine.add([5, i], lambda event, i=i: order.append(i), max_tokens=1)
    drain(engine)
    assert order == [0, 1, 2, "long"]


@pytest.mark.parametrize("compiled", [True, False])
def test_non_finite_logits_fail_their_request_and_are_erased_from_its_slot(checkpoint, monkeypatch, compiled):
    """A masked position is multiplied by zero, and zero times NaN is NaN, so the slot must be erased."""
    if not compiled:
        monkeypatch.setattr("specclient_local.model.decoder.native_passes", lambda *given: None)
    with load(checkpoint(eos_token_id=None, seed=9), slots=1) as engine:
        want = engine.generate([5], max_tokens=20).token_ids
        with torch.inference_mode():
            engine._speculator.target.decoder.embedding[13] = torch.nan
        for prompt in ([5, 13, 6], [5, 6, 7, 13]):
            with pytest.raises(EngineError, match="logits are not finite"):
                engine.generate(prompt, max_tokens=4)
            assert engine.generate([5], max_tokens=20).token_ids == want


def test_an_exception_in_a_logits_processor_fails_only_its_request(unstarted, monkeypatch):
    engine, bad, good = unstarted, [], []
    number = engine.add("x", bad.append, max_tokens=20, repetition_penalty=1.5)
    engine.add("x", good.append, max_tokens=20, repetition_penalty=1.5)
    broken = engine._worker.jobs[number].sequence.logits_processor
    engine.step()
    original = RequestLogitsProcessor.process
    monkeypatch.setattr(
        RequestLogitsProcessor,
        "process",
        lambda self, *shaped: 1 / 0 if self is broken else original(self, *shaped),
    )
    drain(engine)
    assert "ZeroDivisionError" in str(bad[-1])
    assert len(good[-1].generation.token_ids) == 20


def test_running_out_of_memory_fails_the_requests_of_the_pass_with_advice(unstarted, monkeypatch):
    engine, events, later = unstarted, [[], []], []
    for sink in events:
        engine.add("x", sink.append, max_tokens=20)
    engine.step()
    with monkeypatch.context() as broken:
        broken.setattr(DecoderRunner, "run_pass", lambda *parts, **options: torch.empty(2**46))
        broken.setattr(NativeRounds, "verify_all", lambda *parts: torch.empty(2**46))
        engine.add("x", later.append, max_tokens=5)
        engine.step()
    drain(engine)
    for sink in events:
        assert isinstance(sink[-1], EngineError)
        assert "ran out of memory in a pass with this request" in str(sink[-1])
        assert "fewer slots, a smaller context or a half-precision dtype" in str(sink[-1])
        assert sink[-1].__cause__.__traceback__ is None
    assert later[-1].generation is not None
    assert free_slots(engine) == [0, 1]
