"""Batched requests: answers are bit for bit those of requests run alone; pass times are fully attributed."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specclient_local.api.backend import BUNDLED
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.engine.scheduler import PROMPT_ROWS_PER_STEP, Scheduler
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.native.greedy_rounds import NativeRounds
from specclient_local.model.pass_input import SlotInput, shared_passes
from specclient_local.request.token_tree import TokenTree
from tiny_models import load, sequence

from specclient.errors import ConfigurationError, EngineError

METHODS = ("plain", "draft", "prediction")


def answers(engine, requests):
    """Run all requests in one batch, and return their generations."""
    sinks = [[] for _ in requests]
    for (prompt, params), sink in zip(requests, sinks, strict=True):
        engine.add(prompt, sink.append, **params)
    while engine.step():
        pass
    for sink in sinks:
        assert not isinstance(sink[-1], BaseException), sink[-1]
    return [sink[-1].generation for sink in sinks]


@pytest.fixture(scope="module")
def tiny(checkpoint):
    with load(checkpoint(eos_token_id=None), checkpoint(eos_token_id=None, seed=4), slots=4) as engine:
        yield engine


@pytest.fixture(scope="module")
def pair():
    with load(BUNDLED / "target", BUNDLED / "draft", slots=4) as engine:
        yield engine


def check_against_plain_decoding(engine, prompts, lengths, new):
    """Check that every method, draft length and batch size gives plain decoding's greedy answers."""
    plain = [engine.generate(p, max_tokens=new, method="plain").token_ids for p in prompts]
    kept = 0
    for batch in (1, 4):
        for method in METHODS:
            for length in lengths if method != "plain" else (None,):
                own = {"max_tokens": new, "method": method, "draft_length": length}
                requests = [
                    (p, own | ({"prediction": [*ids[:5], 7, *ids[6:]]} if method == "prediction" else {}))
                    for p, ids in zip(prompts, plain, strict=True)
                ]
                for begin in range(0, len(prompts), batch):
                    for i, got in enumerate(answers(engine, requests[begin : begin + batch]), begin):
                        assert got.token_ids == plain[i], (method, length, batch, i)
                        kept += got.speculation.accepted or got.speculation.predicted_accepted or 0
    return kept


def test_batched_greedy_answers_equal_plain_decoding_on_a_tiny_model(tiny):
    prompts = [[7, 8, 9], "def f(x):", [5] * 20, "import os\nclass A:"]
    assert check_against_plain_decoding(tiny, prompts, (1, 4, 8, None), 24) > 100


def test_batched_greedy_answers_equal_plain_decoding_on_the_bundled_pair(pair):
    prompts = ["def fibonacci(n):\n", "import os\n\n", "class Stack:\n    def", "for i in range("]
    assert check_against_plain_decoding(pair, prompts, (1, 4), 16) > 100


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_batched_greedy_answers_equal_plain_decoding_over_long_answers(pair):
    prompts = [f"def {name}(self, x):\n    " for name in ("run", "add", "close", "get", "f", "join", "read")]
    assert check_against_plain_decoding(pair, prompts, (*range(1, 9), None), 128) > 1000


def test_requests_of_different_methods_share_a_batch(pair):
    """Plain, drafting, predicted, sampled, scored, and with log-probabilities, all in the same passes."""
    text = "def fibonacci(n):\n"
    requests = [
        (text, {"method": "plain", "max_tokens": 30, "logprobs": 2}),
        (text, {"draft_length": 6, "max_tokens": 20, "logprobs": 0}),
        (text * 5, {"temperature": 0.9, "seed": 4, "top_p": 0.9, "max_tokens": 25}),
        ("import", {"prediction": "import os\nimport sys\n", "max_tokens": 25, "prompt_logprobs": 1}),
    ]
    alone = [answers(pair, [request])[0] for request in requests]
    for got, want in zip(answers(pair, requests), alone, strict=True):
        assert (got.token_ids, got.text, got.logprobs) == (want.token_ids, want.text, want.logprobs)
        assert got.scored == want.scored


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_gives_the_same_tokens_alone_and_in_a_batch(pair, method):
    requests = [
        (
            "def f(x):\n",
            {"temperature": 0.8, "top_k": 50, "seed": seed, "method": method, "max_tokens": 24}
            | ({"prediction": "    return x\n\n\ndef g(x):\n"} if method == "prediction" else {}),
        )
        for seed in (1, 2, 1, 3)
    ]
    together = [got.token_ids for got in answers(pair, requests)]
    assert together == [answers(pair, [request])[0].token_ids for request in requests]
    assert together[0] == together[2]
    assert len({tuple(ids) for ids in together}) == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_batched_rows_are_bit_identical_to_rows_scored_alone(threads):
    """Slots have different lengths, across block boundaries, and score chains and branching trees."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        runner = DecoderRunner.load(BUNDLED / "target", dtype="float32", slots=4, context=640)
        if not runner.decoder.exact_rows and set(runner.decoder.passes.kernels.values()) != {"packed"}:
            pytest.skip(f"this machine has no row-independent kernel: {runner.decoder.passes.kernels}")
        rng = random.Random(3)
        tree = TokenTree()
        for parent in (-1, -1, 0, 0, 2, 1):
            tree.add(parent, rng.randrange(4096))
        parts = [
            SlotInput(slot, [rng.randrange(4096)], own)
            for slot, own in enumerate(
                [TokenTree.chain([5, 6, 7]), tree, TokenTree(), TokenTree.chain([9] * 15)]
            )
        ]
        for slot, length in enumerate((5, 61, 510, 130)):
            runner.prefill(slot, [rng.randrange(4096) for _ in range(length)])
        together = runner.score_all(parts)
        for part in parts:
            runner.truncate(part.slot, runner.length(part.slot) - part.rows)
            if not part.tree.is_chain:
                assert torch.equal(runner.score_all([part])[0], together[part.slot])
                continue
            rows = [runner.score(part.slot, [token]) for token in (*part.tokens, *part.tree.tokens)]
            assert torch.equal(torch.cat(rows), together[part.slot])
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_sequences_are_grouped_into_passes_within_the_row_limit():
    assert shared_passes([1, 1, 1], 64) == [[0, 1, 2]]
    assert shared_passes([5, 17, 6, 256, 6], 16) == [[0, 2], [1], [3], [4]]
    for rows in ([16] * 9, [5, 17, 6, 256, 6]):
        for own in shared_passes(rows, 64):
            assert len(own) == 1 or sum(rows[i] for i in own) <= 64


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.booleans())
def test_batched_caches_equal_a_fresh_prefill(checkpoint, seed, greedy):
    """After rounds of random subsets of the requests, with random accepted and rejected tokens."""
    rng = random.Random(seed)
    target, draft = (
        DecoderRunner.load(
            checkpoint(eos_token_id=None, seed=s, spread=0.2), dtype="float32", slots=4, context=96
        )
        for s in (1, rng.choice([1, 2]))
    )
    speculator = Speculator(target, {"draft": DraftModel(draft, 300)})
    requests = [
        sequence(
            [rng.randrange(300) for _ in range(rng.randrange(1, 20))],
            slot=slot,
            method=rng.choice(METHODS),
            predicted=[rng.randrange(300) for _ in range(9)],
            max_tokens=60,
            temperature=0.0 if greedy else 1.5,
            draft_length=rng.randrange(9),
        )
        for slot in range(3)
    ]
    for request in requests:
        while not speculator.prefill(request):
            pass
    for _ in range(5):
        active = rng.sample(requests, rng.randrange(1, 4))
        for request, won in zip(active, speculator.round(active), strict=True):
            request.tokens += won.tokens
    for request in requests:
        for runner in (target, draft) if request.method == "draft" else (target,):
            length = runner.length(request.cache_slot)
            assert length >= len(request.tokens) - 2 or runner is draft
            runner.prefill(3, request.tokens[:length])
            used, fresh = (runner.cache.rows[:, slot, :, :length] for slot in (request.cache_slot, 3))
            torch.testing.assert_close(used, fresh, atol=1e-5, rtol=0)
            runner.truncate(3, 0)


def test_the_engine_seconds_of_requests_sum_to_the_engines_busy_time(checkpoint):
    now = [0.0]

    def clock():
        now[0] += 0.001
        return now[0]

    folder = checkpoint(eos_token_id=None, max_position_embeddings=1024)
    with load(folder, folder, slots=3) as engine:
        engine._clock = engine._worker._clock = clock
        engine._worker._idle()
        requests = [
            ([7] * count, {"max_tokens": new, "method": method})
            for count, new, method in [(600, 5, "plain"), (3, 30, "draft"), (40, 12, "draft"), (9, 1, None)]
        ]
        seconds = [got.timings.engine_s for got in answers(engine, requests)]
        assert sum(seconds) == pytest.approx(engine.busy_s)
        assert engine.busy_s > 0
        assert min(seconds) > 0
        twice = [
            got.timings.decode_s for got in answers(engine, [([5], {"max_tokens": 4, "method": "plain"})] * 2)
        ]
        assert twice[0] == pytest.approx(twice[1])


@pytest.fixture
def unstarted(checkpoint):
    """Load an engine whose worker thread is not started; tests call ``step`` themselves."""
    with load(checkpoint(eos_token_id=None), checkpoint(eos_token_id=None, seed=4), slots=4) as engine:
        yield engine


def test_an_exception_in_a_pass_fails_only_the_requests_in_that_pass(unstarted, monkeypatch):
    tiny = unstarted
    want = answers(tiny, [("x", {"max_tokens": 5})])[0].token_ids
    events = [[], [], []]
    for sink in events[:2]:
        tiny.add("x", sink.append, max_tokens=20, method="plain")
    tiny.step()
    tiny.step()
    with monkeypatch.context() as broken:
        broken.setattr(DecoderRunner, "score_all", lambda *_: 1 / 0)
        broken.setattr(NativeRounds, "verify_all", lambda *_: 1 / 0)
        tiny.step()
    tiny.add("x", events[2].append, max_tokens=5)
    while tiny.step():
        pass
    for sink in events[:2]:
        assert isinstance(sink[-1], EngineError)
        assert "ZeroDivisionError" in str(sink[-1])
    assert events[2][-1].generation.token_ids == want
    assert len(tiny._worker.batch.scheduler._free) == 4


def test_a_keyboard_interrupt_in_a_sink_propagates_from_step_and_loses_no_tokens(unstarted):
    tiny = unstarted
    want = answers(tiny, [("x", {"max_tokens": 9})])[0].token_ids
    good = []

    def interrupting(event):
        raise KeyboardInterrupt

    tiny.add("x", interrupting, max_tokens=9)
    tiny.add("x", good.append, max_tokens=9)
    with pytest.raises(KeyboardInterrupt):
        tiny.step()
    while tiny.step():
        pass
    assert good[-1].generation.token_ids == want
    assert [i for piece in good for i in piece.token_ids] == want


def test_batches_larger_than_one_pass_are_split(checkpoint):
    """Twelve requests of sixteen rows each need two passes per round; their cost is extrapolated."""
    folder = checkpoint(eos_token_id=None)
    with load(folder, checkpoint(eos_token_id=None, seed=4), slots=12) as engine:
        plain = engine.generate([5, 6], max_tokens=60, method="plain").token_ids
        params = {"max_tokens": 60, "prediction": plain}
        for got in answers(engine, [([5, 6], params)] * 12 + [([5, 6], {"max_tokens": 60})] * 12):
            assert got.token_ids == plain


def test_prefills_take_turns_within_the_rows_per_step():
    scheduler = Scheduler(4)
    long, short, other, third = (sequence([1], slot=None) for _ in range(4))
    rows = {long.id: PROMPT_ROWS_PER_STEP, short.id: 10, other.id: 200, third.id: 60}
    for request in (long, short, other, third):
        scheduler.add(request)
    scheduler.admit(lambda sequence, free: free[0])
    turns = [scheduler.next_prefills(lambda s: rows[s.id]) for _ in range(4)]
    assert turns == [[long], [short, other], [third], [long]]
    scheduler.begin(long)
    assert scheduler.ready == [long]
    assert scheduler.next_prefills(lambda s: rows[s.id]) == [short, other]
    scheduler.release(short)
    scheduler.release(long)
    assert scheduler.ready == []
    assert scheduler.next_prefills(lambda s: rows[s.id]) == [third]


def test_a_cache_larger_than_memory_is_rejected_with_its_size(checkpoint):
    with pytest.raises(
        ConfigurationError, match=r"1000000000 slots of 128 positions take \d+\.\d GiB"
    ) as error:
        load(checkpoint(), slots=10**9)
    assert "They fit with " in str(error.value)


def test_an_engine_with_one_slot_runs_requests_in_turn(checkpoint):
    with load(checkpoint(eos_token_id=None), checkpoint(eos_token_id=None, seed=4), slots=1) as engine:
        assert engine.costs["draft"].slots == 1
        assert len(answers(engine, [([5], {"max_tokens": 6})] * 2)[1].token_ids) == 6
