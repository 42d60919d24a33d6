"""Shared prompt prefixes: what is reused, and answers that do not depend on it."""

from __future__ import annotations

import asyncio
import random

import pytest
import torch
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.model.prefix_cache import PrefixCache, _equal
from tiny_models import load

STEM = [7 + i % 200 for i in range(700)]
GRAINS = (1, MAX_PASS_ROWS)


def drain(engine):
    while engine.step():
        pass


def answer(engine, prompt, **params):
    """Run one request alone by calling ``step``."""
    events = []
    engine.add(prompt, events.append, **params)
    drain(engine)
    assert not isinstance(events[-1], BaseException), events[-1]
    return events[-1].generation


@pytest.fixture(scope="module")
def folders(checkpoint):
    shape = {"max_position_embeddings": 1024, "spread": 0.2, "eos_token_id": None}
    return checkpoint(**shape), checkpoint(**shape, seed=3)


@pytest.fixture(params=GRAINS)
def engine(folders, request, monkeypatch):
    """Load an engine with compiled passes, which shares single tokens, and one that shares whole chunks."""
    _set_granularity(monkeypatch, request.param)
    with load(*folders, slots=3) as engine:
        if engine._speculator.target.prefix_granularity != request.param:
            pytest.skip("no compiled passes on this machine")
        yield engine


def _set_granularity(monkeypatch, grain):
    if grain > 1:
        monkeypatch.setattr("specclient_local.model.decoder.native_passes", lambda *given: None)


def rows(runner, slot):
    return runner.cache.rows[:, slot, :, : runner.length(slot)]


def test_a_prompt_reuses_the_common_prefix_of_an_earlier_one(engine):
    grain = engine._speculator.target.prefix_granularity
    first = answer(engine, STEM[:600], max_tokens=4)
    assert first.cached_tokens == 0
    again = answer(engine, STEM[:600], max_tokens=4)
    assert again.cached_tokens == 599  # the last token is the root of the first round
    longer = answer(engine, STEM[:650], max_tokens=4)
    assert longer.cached_tokens == 600 // grain * grain if grain > 1 else longer.cached_tokens >= 600
    other = answer(engine, [*STEM[:300], 5, *STEM[301:]], max_tokens=4)
    assert other.cached_tokens == 300 // grain * grain
    assert first.token_ids == again.token_ids


def test_concurrent_requests_prefill_their_common_prefix_once(engine):
    """Two requests that arrive together read it once, chunk by chunk, without waiting for each other."""
    sinks = [[], []]
    for sink in sinks:
        engine.add(STEM, sink.append, max_tokens=3)
    drain(engine)
    one, other = (sink[-1].generation for sink in sinks)
    assert one.token_ids == other.token_ids
    assert one.cached_tokens + other.cached_tokens == len(STEM) - 1


def test_an_answers_rows_are_reused_if_rows_are_bit_identical_in_any_pass(engine):
    """A conversation's next prompt begins with the previous prompt and its answer."""
    grain = engine._speculator.target.prefix_granularity
    answered = answer(engine, STEM[:300], max_tokens=40, method="plain")
    turn = answer(engine, [*STEM[:300], *answered.token_ids, 9, 8, 7], max_tokens=4)
    assert turn.cached_tokens == (300 + 39 if grain == 1 else 256)


def test_rows_moved_within_the_cache_are_not_shared(engine):
    """A tree's accepted nodes are moved after their computation, so their last bits may differ."""
    runner = engine._speculator.target
    runner.truncate(0, 0)
    runner.prefill(0, STEM[:10])
    assert runner.unmoved_length(0) == 10
    runner.cache.keep(0, 6, [0, 2])
    assert (runner.length(0), runner.unmoved_length(0)) == (8, 7)
    runner.truncate(0, 7)
    runner.prefill(0, STEM[7:9])
    assert runner.unmoved_length(0) == 9


def test_shared_rows_are_bit_identical_to_a_fresh_prefill(engine):
    """After requests of various lengths with common prefixes, some with drafts and some cancelled."""
    rng, runner = random.Random(5), engine._speculator.target
    for _ in range(12):
        prompt = [*STEM[: rng.randrange(1, 690)], *(rng.randrange(2, 6) for _ in range(rng.randrange(4)))]
        number = engine.add(prompt, lambda event: None, max_tokens=rng.randrange(1, 12))
        while engine._worker.jobs[number].sequence not in engine._worker.batch.scheduler.ready:
            engine.step()
            if number not in engine._worker.jobs:
                break
        else:
            slot, whole = engine._worker.jobs[number].sequence.cache_slot, len(prompt) - 1
            shared = runner.cache.rows[:, slot, :, :whole].clone()
            spare = next(s for s in range(3) if s != slot)
            engine._speculator._prefixes.forget(spare)
            runner.prefill(spare, prompt[:whole])
            assert torch.equal(shared, rows(runner, spare))
            engine._speculator._prefixes.forget(spare)
        if rng.random() < 0.5:
            engine.cancel(number)
        drain(engine)


def test_the_draft_reuses_common_prefixes(engine, monkeypatch):
    answer(engine, STEM[:600], max_tokens=2, draft_length=1)
    rows, draft = [], engine._speculator.drafters["draft"].runner
    original = draft.prefill
    monkeypatch.setattr(
        draft, "prefill", lambda slot, tokens: rows.append(len(tokens)) or original(slot, tokens)
    )
    answer(engine, STEM[:650], max_tokens=2)
    assert sum(rows) == 649 - (600 if draft.prefix_granularity == 1 else 512)
    rows.clear()
    answer(engine, STEM[:650], max_tokens=2, method="plain")
    answer(engine, STEM[:650], max_tokens=2)
    assert sum(rows) == 0


def test_a_scored_prompt_reuses_no_prefix_but_can_be_reused(engine):
    grain = engine._speculator.target.prefix_granularity
    answer(engine, STEM[:600], max_tokens=2)
    scored = answer(engine, STEM[:600], max_tokens=2, prompt_logprobs=1)
    assert scored.cached_tokens == 0
    assert len(scored.scored.scores) == 600
    for slot in range(3):
        engine._speculator._prefixes.forget(slot)
    engine.add(STEM[:600], lambda event: None, max_tokens=0, prompt_logprobs=0)
    drain(engine)
    lent = answer(engine, STEM[:600], max_tokens=2)
    assert lent.cached_tokens == (599 if grain == 1 else 512)


def test_the_least_recently_used_slot_is_reassigned():
    slots = Slots(3)
    prefixes = PrefixCache(slots)

    def serve(tokens, free=(0, 1, 2)):
        slot = prefixes.place(tokens, len(tokens) - 1, free)
        slots.read(slot, tokens, prefixes.begin(slot, tokens, len(tokens) - 1))
        prefixes.end(slot)
        return slot

    assert [serve([i, 5, 5, 5]) for i in range(3)] == [0, 1, 2]
    assert serve([1, 5, 5, 8, 8]) == 1, "it has only the prefix"
    assert serve([2, 5, 9, 9]) == 0, "it has more than the prefix, which is copied to the oldest slot"
    assert serve([6, 6, 6, 6]) == 1, "slot 2 was copied from later"
    assert serve([2, 5, 5, 5, 5]) == 2, "it still has its prefix"
    assert serve([7, 7, 7, 7], free=(1, 2)) == 1, "slot 0 is not free"
    assert not slots.wiped


@pytest.mark.parametrize(("rows", "moved", "shared"), [(6, 9, 5), (4, 9, 4), (6, 3, 3)])
def test_only_unmoved_rows_of_the_answers_tokens_are_shared(rows, moved, shared):
    """An answer may end within the accepted draft tokens, and moved rows are excluded."""
    slots = Slots(2)
    prefixes = PrefixCache(slots)
    tokens = [1, 2, 3]
    slots.read(0, tokens, prefixes.begin(0, tokens, 2))
    tokens += [4, 5]
    slots.lengths[0], slots.moved = rows, moved
    prefixes.end(0)
    assert slots.lengths[0] == shared
    assert prefixes.begin(1, [1, 2, 3, 4, 5, 6, 7, 8], 7) == shared


def test_rows_of_another_adapter_are_not_shared():
    slots, tokens = Slots(3), [1, 2, 3, 4]
    prefixes = PrefixCache(slots)
    slots.read(0, tokens, prefixes.begin(0, tokens, 3, adapter=1))
    prefixes.end(0)
    assert prefixes.begin(1, list(tokens), 3) == 0
    assert prefixes.begin(2, list(tokens), 3, adapter=1) == 3
    assert prefixes.begin_alone(0, list(tokens), 3) == 0


def test_rows_of_another_owner_are_shared_but_not_counted():
    """The figure would tell whether others' prompts begin with these tokens."""
    slots, tokens = Slots(3), [1, 2, 3, 4]
    prefixes = PrefixCache(slots)
    slots.read(0, tokens, prefixes.begin(0, tokens, 3, owner="a"))
    prefixes.end(0)
    for slot, owner, counted in ((1, "b", 0), (2, "a", 3), (0, "b", 0), (0, "b", 3)):
        assert prefixes.begin(slot, list(tokens), 3, owner=owner) == 3
        assert prefixes.shared(slot) == counted
        prefixes.end(slot)


def test_rows_of_another_owner_are_not_reused_where_owners_are_kept_apart():
    slots, tokens = Slots(3), [1, 2, 3, 4]
    prefixes = PrefixCache(slots, "owner")
    assert prefixes.begin(0, tokens, 3, owner="a") == 0
    slots.read(0, tokens, 0)
    prefixes.end(0)
    assert prefixes.place(list(tokens), 3, [0, 1, 2], owner="b") != 0, "it holds nothing for the other owner"
    assert prefixes.begin(1, list(tokens), 3, owner="b") == 0
    slots.read(1, tokens, 0)
    prefixes.end(1)
    assert prefixes.begin(0, list(tokens), 3, owner="b") == 3, "its own rows, not those that the slot held"
    assert prefixes.begin(2, list(tokens), 3, owner="a") == 0, "the only rows of the owner are overwritten"


def test_an_engine_reads_a_prompt_anew_for_another_owner(folders, monkeypatch):
    """Neither the target nor the draft reuses rows, so that the time tells nothing."""
    read = []
    prefill = DecoderRunner.prefill

    def noted(self, slot, tokens):
        read.append(len(tokens))
        return prefill(self, slot, tokens)

    monkeypatch.setattr(DecoderRunner, "prefill", noted)
    amounts = []

    async def ask(owner):
        read.clear()
        async for _ in engine.astream(STEM[:513], owner=owner, max_tokens=4):
            pass
        amounts.append(sum(read))

    with load(*folders, slots=3, prefix_cache="owner") as engine:
        for owner in ("a", "b", "a"):
            asyncio.run(ask(owner))
    assert amounts[0] == amounts[1] == 2 * 512
    assert amounts[2] == 0


@pytest.mark.parametrize("at", [0, 1, 7, 63, 64, 99, 100])
def test_the_common_prefix_ends_at_the_first_difference(at):
    one, other = list(range(100)), [*range(at), -1, *range(at + 1, 120)]
    assert _equal(one, other[: max(100, at)], min(100, len(other))) == at
    assert _equal(one, other, min(at, 50)) == min(at, 50)


class Slots:
    """A runner's slots without a model."""

    prefix_granularity = 1

    def __init__(self, slots):
        self.slots, self.lengths, self.wiped = slots, [0] * slots, []
        self.moved = 99

    def read(self, slot, tokens, done):
        self.lengths[slot] = len(tokens) - 1

    def length(self, slot):
        return self.lengths[slot]

    def unmoved_length(self, slot):
        return min(self.moved, self.lengths[slot])

    def use_adapter(self, slot, adapter):
        """Do nothing: no rows are computed."""

    def truncate(self, slot, length):
        self.lengths[slot] = min(length, self.lengths[slot])

    def copy(self, source, slot, start, end):
        assert self.lengths[slot] == start < end <= self.lengths[source]
        self.lengths[slot] = end

    def erase(self, slot):
        self.lengths[slot] = 0
        self.wiped.append(slot)


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.soak)])
def test_answers_do_not_depend_on_prefix_sharing(folders, monkeypatch, grain, count):
    """Prompts have random common prefixes; requests are greedy, sampled, drafted, and some are cancelled."""
    _set_granularity(monkeypatch, grain)
    rng = random.Random(grain)
    stems = [[rng.randrange(2, 300) for _ in range(600)] for _ in range(3)]
    requests = []
    for seed in range(count):
        prompt = rng.choice(stems)[: rng.choice([1, 40, 255, 256, 257, 300, 513, 600])]
        prompt = [*prompt, *(rng.randrange(2, 4) for _ in range(rng.choice([0, 0, 1, 3])))]
        params = {
            "max_tokens": rng.choice([1, 3, 20]),
            "temperature": rng.choice([0.0, 0.9]),
            "seed": seed,
            "logprobs": rng.choice([None, 1]),
            "method": rng.choice(["plain", "draft"]),
        }
        requests.append((prompt, params, []))
    with load(*folders, slots=3) as engine, load(*folders, slots=1, prefix_cache=False) as alone:
        waiting = requests[::-1]
        while waiting or engine.unfinished:
            for _ in range(min(len(waiting), rng.choice([0, 0, 1, 2]))):
                prompt, params, events = waiting.pop()
                engine.add(prompt, events.append, **params)
                if rng.random() < 0.2:
                    gone = engine.add(prompt, lambda event: None, **params)
                    for _ in range(rng.randrange(3)):
                        engine.step()
                    engine.cancel(gone)
            engine.step()
        cached = 0
        for prompt, params, events in requests:
            got, want = events[-1].generation, answer(alone, prompt, **params)
            assert (got.token_ids, got.logprobs) == (want.token_ids, want.logprobs), params
            assert want.cached_tokens == 0
            cached += got.cached_tokens
        assert cached > count * 50
        assert sorted(engine._worker.batch.scheduler._free) == [0, 1, 2]
