"""A cache in pages: the answers of a contiguous one, with sharing, waiting and rollback."""

from __future__ import annotations

import random

import pytest
import tiny_heads
import torch
from specclient_local.engine.answer import Generation
from specclient_local.model.paged_cache import PAGE, PagedKVCache, page_count
from specclient_local.model.paged_prefix_cache import PagedPrefixCache
from tiny_models import load, noisy_copy, write_checkpoint

STEM = [7 + i % 200 for i in range(700)]
CONTEXT = 800
SAMPLED = {"temperature": 1.0, "seed": 3}


@pytest.fixture(scope="module", autouse=True)
def passes_by_pytorch():
    """Compute all passes by PyTorch, as those over pages are, so that the last bits can be compared.

    The costs of rounds are no result of these tests, so one of each shape is timed.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specclient_local.model.decoder.native_passes", lambda *given: None)
        patch.setattr("specclient_local.loading.device_calibration._TURNS", 1)
        yield


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a target, a draft that is often right, and an EAGLE-3 and a Medusa head."""
    folder = tmp_path_factory.mktemp("pages")
    shape = {**tiny_heads.TARGET, "max_position_embeddings": 1024, "eos_token_id": None}
    target = write_checkpoint(folder / "target", spread=0.2, **shape)
    draft = noisy_copy(target, folder / "draft", 0.01)
    return target, draft, [tiny_heads.eagle3(folder / "eagle"), tiny_heads.medusa(folder / "medusa")]


def engine_of(models, kv_cache, slots=3, *, drafts=False, **options):
    target, draft, heads = models
    given = {"graphs": "on", "context": CONTEXT, "kv_cache": kv_cache, **options}
    if not drafts:
        return load(target, slots=slots, **given)
    return load(target, draft, slots=slots, heads=heads, **given)


def pool_of(engine):
    return engine.speculator.target.cache.pool


def check_writers(engine):
    """Check that no page at or behind the next position of a slot is another slot's as well."""
    cache, pool = engine.speculator.target.cache, pool_of(engine)
    written = []
    for slot, length in enumerate(cache.lengths):
        written += pool.pages_of(slot)[length // PAGE :]
    assert len(written) == len(set(written))
    assert all(pool.holders(page) == 1 for page in written)


def answers(engine, requests, *, check=None):
    """Run requests together; return their generations, and the most pages that were held."""
    events, most = [[] for _ in requests], 0
    for (prompt, settings), sink in zip(requests, events, strict=True):
        engine.add(prompt, sink.append, **settings)
    while engine.step():
        if check is not None:
            check(engine)
            most = max(most, pool_of(engine).held)
    for sink in events:
        assert not isinstance(sink[-1], BaseException), sink[-1]
    return [sink[-1].generation for sink in events], most


def check_equal(found: list[Generation], wanted: list[Generation]):
    """Check that answers are equal.

    The last bits of log-probabilities depend on the lengths of other drafts in a pass, which follow times.
    """
    assert [each.token_ids for each in found] == [each.token_ids for each in wanted]
    for one, other in zip(found, wanted, strict=True):
        for own, expected in zip(one.logprobs or (), other.logprobs or (), strict=True):
            assert own.logprob == pytest.approx(expected.logprob, abs=1e-4)
        assert one.scored == other.scored


REQUESTS = [
    (STEM[:40], {"method": "plain", "max_tokens": 60}),
    (STEM[:300], {"method": "draft", "max_tokens": 24}),
    (STEM[:300], {"method": "draft", "max_tokens": 24, "draft_length": 4, **SAMPLED}),
    (STEM[:290], {"method": "eagle", "max_tokens": 20, "draft_length": 3}),
    (STEM[:290], {"method": "eagle", "max_tokens": 20, "draft_length": 3, **SAMPLED}),
    (STEM[:100], {"method": "eagle", "max_tokens": 16, "draft_tree": [2, 2]}),
    (STEM[:290], {"method": "medusa", "max_tokens": 20, "draft_length": 3}),
    (STEM[:126], {"method": "medusa", "max_tokens": 16, "draft_tree": [3, 2]}),
    (STEM[:600], {"method": "ngram", "max_tokens": 30}),
    (STEM[:60], {"method": "draft", "max_tokens": 24, "draft_tree": [2, 2, 1]}),
    (STEM[:64], {"method": "suffix", "max_tokens": 20, "logprobs": 2}),
    (STEM[:300], {"method": "plain", "max_tokens": 5, "prompt_logprobs": 1}),
    ([*STEM, *STEM[:90]], {"method": "draft", "max_tokens": 24, "overflow": "slide"}),
]


def test_answers_are_those_of_a_contiguous_cache(models):
    """For every method, greedy and sampled, chains and trees; the greedy ones are those of plain decoding."""
    keys = ("max_tokens", "overflow", "prompt_logprobs")
    plain = [
        (prompt, {"method": "plain", **{key: own[key] for key in keys if key in own}})
        for prompt, own in REQUESTS
    ]
    with engine_of(models, "contiguous", drafts=True) as engine:
        wanted, _ = answers(engine, REQUESTS)
        decoded, _ = answers(engine, plain)
    with engine_of(models, "paged", drafts=True) as engine:
        found, _ = answers(engine, REQUESTS, check=check_writers)
        assert isinstance(engine.speculator.target.cache, PagedKVCache)
        assert isinstance(engine.speculator._prefixes, PagedPrefixCache)
        assert engine.speculator.pages is pool_of(engine)
        assert pool_of(engine).held == 0
    check_equal(found, wanted)
    assert sum(each.speculation.accepted or 0 for each in found) > 10
    for own, other, (_, settings) in zip(found, decoded, REQUESTS, strict=True):
        assert "seed" in settings or own.token_ids == other.token_ids


def test_a_prefix_is_shared_by_its_pages(models):
    """Two requests with 600 equal tokens hold these once; the page in which the prompt ends is copied."""
    with engine_of(models, "paged") as engine:
        cache, pool = engine.speculator.target.cache, pool_of(engine)
        sinks = [[], []]
        for sink in sinks:
            engine.add(STEM[:600], sink.append, max_tokens=100, method="plain")
        scheduler = engine._worker.batch.scheduler
        while len(scheduler.ready) < 2:
            engine.step()
        one, other = (pool.pages_of(each.cache_slot) for each in scheduler.ready)
        assert one[: 599 // PAGE] == other[: 599 // PAGE]
        assert one[599 // PAGE] != other[599 // PAGE]
        assert engine.cache_use == pool.held / pool.pages > 0.2
        assert pool.held == len(set(one) | set(other)) < len(one) + len(other) - 8
        same = cache.rows[:, one[599 // PAGE], :, : 599 % PAGE]
        assert torch.equal(same, cache.rows[:, other[599 // PAGE], :, : 599 % PAGE])
        check_writers(engine)
        while engine.step():
            pass
        assert pool.held == 0
        assert engine.generate(STEM[:600], max_tokens=2).cached_tokens == 599
        assert engine.generate([*STEM[:520], 9], max_tokens=2).cached_tokens == 512


def test_owners_that_are_kept_apart_share_no_pages(models):
    with engine_of(models, "paged", prefix_cache="owner") as engine:
        prefixes, tokens = engine.speculator._prefixes, STEM[:300]
        slot = prefixes.place(tokens, 299, [0], owner="a")
        engine.speculator.target.prefill(slot, tokens[:299])
        prefixes.end(slot)
        assert prefixes.stored == 2
        again = list(tokens)
        slot = prefixes.place(again, 299, [1], owner="b")
        assert prefixes.done(slot, again) == 0
        prefixes.end(slot)
        slot = prefixes.place(again, 299, [2], owner="a")
        assert (prefixes.done(slot, again), prefixes.shared(slot)) == (299, 299)
        prefixes.end(slot)
    with engine_of(models, "paged") as engine:
        prefixes = engine.speculator._prefixes
        for owner, shared in (("a", 0), ("b", 0)):
            again = list(tokens)
            slot = prefixes.place(again, 299, [0], owner=owner)
            assert prefixes.shared(slot) == shared, "rows of others are used, but not counted"
            done = prefixes.done(slot, again)
            engine.speculator.target.prefill(slot, again[done:299])
            prefixes.end(slot)
        assert done == 299


def test_rollback_gives_pages_back(models):
    """A round holds the pages of its drafts; after it, those behind the next position are free."""
    with engine_of(models, "paged") as engine:
        cache, pool = engine.speculator.target.cache, pool_of(engine)
        taken, prepare = [], PagedKVCache.prepare
        most = {"held": 0}

        def watched(self, ends):
            ends = list(ends)
            prepare(self, ends)
            if self is cache:
                most["held"] = max(most["held"], pool.held)
                taken.append(sum(page_count(end) for _, end in ends))

        PagedKVCache.prepare = watched
        try:
            engine.add(STEM[:61], lambda event: None, max_tokens=100, method="ngram", draft_length=6)
            while engine.step():
                for slot, length in enumerate(cache.lengths):
                    assert len(pool.pages_of(slot)) <= length // PAGE + 1
        finally:
            PagedKVCache.prepare = prepare
        assert pool.held == 0
        assert most["held"] == page_count(61 + 100 - 1)


@pytest.mark.parametrize("pages", [13, 20])
def test_requests_wait_for_pages_and_get_their_answers(models, pages):
    """Far more requests than pages: some wait before they begin, some while they run, and none fails."""
    rng = random.Random(pages)
    requests = [
        (
            STEM[: rng.choice([5, 60, 64, 200, 257, 513])],
            {
                "method": rng.choice(["plain", "ngram", "suffix"]),
                "max_tokens": rng.choice([3, 70, 130, 280]),
            },
        )
        for _ in range(10)
    ]
    with engine_of(models, "contiguous", slots=4) as engine:
        wanted, _ = answers(engine, requests)
    with engine_of(models, "paged", slots=4, cache_tokens=PAGE * pages) as engine:
        paused, can_continue = [], engine.speculator.can_continue

        def watched(sequence):
            able = can_continue(sequence)
            paused.extend([] if able else [sequence.id])
            return able

        engine.speculator.can_continue = watched
        found, most = answers(engine, requests, check=check_writers)
        pool = pool_of(engine)
        assert (pool.pages, pool.held) == (pages, 0)
        assert most > pages - 4
        assert not pool._claims
        assert paused or pages > 13
    check_equal(found, wanted)


def test_numbers_that_are_not_finite_reach_no_other_request(models):
    """A page of a broken request is zeroed before another one takes it, and its prefix is not shared."""
    with engine_of(models, "paged") as engine:
        wanted = engine.generate(STEM[:300], max_tokens=20, method="plain").token_ids
        engine.add(STEM[:600], lambda event: None, max_tokens=50, method="plain")
        scheduler = engine._worker.batch.scheduler
        while not scheduler.ready:
            engine.step()
        (sequence,) = scheduler.ready
        cache, slot = engine.speculator.target.cache, sequence.cache_slot
        pages = list(pool_of(engine).pages_of(slot))
        with torch.inference_mode():
            cache.rows[:, pages] = torch.nan
            cache.rows[:, slot] = torch.nan
        while engine.step():
            pass
        assert engine.speculator._prefixes.stored == 1, "only the end of the other prompt is left"
        for _ in range(3):
            assert engine.generate(STEM[:300], max_tokens=20, method="plain").token_ids == wanted
        held = [page for page in pages if page not in pool_of(engine).soiled]
        assert held
        assert cache.rows[:, held].isfinite().all()
        assert cache.rows[:, slot].isfinite().all()
