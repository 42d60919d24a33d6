"""Heads with a cache of their own: prompts with a common prefix are read once."""

from __future__ import annotations

import itertools
import random

import pytest
import tiny_heads
import torch
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.drafter import chain
from specclient_local.drafting.token_pairs import TokenPairs
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.heads.checkpoint import required_hidden_layers
from specclient_local.model.pass_input import MAX_PASS_ROWS
from tiny_models import load, run, sequence, write_checkpoint

KINDS = ("eagle", "eagle3", "peagle", "mtp")
LONG = 600


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Write a target that ships an MTP head, and heads of each kind."""
    folder = tmp_path_factory.mktemp("models")
    target = write_checkpoint(
        folder / "target", spread=0.1, max_position_embeddings=1024, eos_token_id=None, **tiny_heads.TARGET
    )
    heads = {kind: getattr(tiny_heads, kind)(folder / kind) for kind in KINDS[:3]}
    return target, {**heads, "mtp": tiny_heads.mtp(target, "deepseek")}


def prompt(seed=0):
    """Return a prompt that takes three passes to read."""
    rng = random.Random(seed)
    return [rng.randrange(2, 300) for _ in range(LONG)]


def speculator(target, heads, slots=3, **options):
    """Return a speculator that drafts with heads, their drafter, and the method."""
    taps = tuple(sorted({*required_hidden_layers(heads, read_config(target))}))
    runner = load_model(target, ModelPlacement(), slots=slots, context=700, taps=taps)
    method, drafter = drafter_for_heads(runner, heads, **options)
    return Speculator(runner, {method: drafter}), drafter, method


def count_rows(monkeypatch, runner):
    """Return a list that grows by the number of rows of each pass of a head."""
    counts: list[int] = []
    passed = runner.run_pass

    def counted(parts, **options):
        counts.append(sum(part.rows for part in parts))
        return passed(parts, **options)

    monkeypatch.setattr(runner, "run_pass", counted)
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_the_choices_of_a_request_read_the_prompt_once(models, monkeypatch, kind):
    target, heads = models
    speculating, drafter, method = speculator(target, heads[kind])
    counts = count_rows(monkeypatch, drafter.runner)
    text = prompt()
    choices = [sequence(text, slot=slot, method=method, max_tokens=8) for slot in range(3)]
    waiting = list(choices)
    while waiting:
        waiting = [choice for choice in waiting if not speculating.prefill(choice)]
    assert counts == [MAX_PASS_ROWS, MAX_PASS_ROWS, LONG - 2 - 2 * MAX_PASS_ROWS]
    first = drafter.runner.cache.rows[:, 0, :, : LONG - 2]
    for slot in (1, 2):
        assert torch.equal(drafter.runner.cache.rows[:, slot, :, : LONG - 2], first)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_common_prefix_equal_rows_that_were_read(models, monkeypatch, kind):
    """A row holds the token after its position: a prefix of N common tokens has N - 1 common rows."""
    target, heads = models
    speculating, drafter, method = speculator(target, heads[kind])
    counts = count_rows(monkeypatch, drafter.runner)
    answered = sequence(prompt(), slot=0, method=method, max_tokens=20)
    run(speculating, answered)
    speculating.end(answered)
    exact = drafter.runner.prefix_granularity == 1
    for common in (1, 2, 300, 512, 513, LONG - 1):
        text = [*prompt()[:common], *prompt(seed=common)[: LONG - common]]
        text[common] = (prompt()[common] + 1) % 300
        again = sequence(text, slot=1, method=method, max_tokens=8)
        counts.clear()
        while not speculating.prefill(again):
            pass
        granularity = 1 if exact else MAX_PASS_ROWS
        assert sum(counts) == LONG - 2 - (common - 1) // granularity * granularity
        rows = drafter.runner.cache.rows[:, 1, :, : LONG - 2].clone()
        speculating.end(again)
        drafter._prefixes.forget(1)
        fresh, alone, _ = speculator(target, heads[kind], sharing="none")
        other = sequence(text, slot=1, method=method, max_tokens=8)
        while not fresh.prefill(other):
            pass
        assert torch.equal(alone.runner.cache.rows[:, 1, :, : LONG - 2], rows), common


def test_owners_do_not_share_rows_if_they_are_apart(models, monkeypatch):
    target, heads = models
    speculating, drafter, method = speculator(target, heads["eagle3"], sharing="owner")
    counts = count_rows(monkeypatch, drafter.runner)
    for owner in ("one", "two", "one"):
        request = sequence(prompt(), method=method, slot=0 if owner == "one" else 1, max_tokens=8)
        request.owner = owner
        while not speculating.prefill(request):
            pass
        speculating.end(request)
    assert sum(counts) == 2 * (LONG - 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unread", [MAX_PASS_ROWS - 2, MAX_PASS_ROWS - 1, MAX_PASS_ROWS])
def test_a_draft_after_a_scored_prompt_is_that_after_any_other(models, kind, unread):
    """The head reads the last chunk of a scored prompt when it drafts, beside the rows of the draft."""
    target, heads = models
    text = prompt()[: MAX_PASS_ROWS + unread]
    speculating, drafter, method = speculator(target, heads[kind])
    scored = sequence(text, method=method, max_tokens=12, prompt_logprobs=1)
    while not speculating.prefill(scored):
        pass
    ((first,),) = (won.tokens for won in speculating.round([scored]))
    scored.take(first)
    other = sequence(scored.tokens, slot=1, method=method, max_tokens=12)
    fresh, alone, _ = speculator(target, heads[kind])
    while not fresh.prefill(other):
        pass
    (found,), (wanted,) = drafter.draw([scored], [chain(3)]), alone.draw([other], [chain(3)])
    assert len(wanted.tokens) == 3
    assert found.tokens == wanted.tokens


def test_rows_of_the_calibration_serve_no_prompt(models, monkeypatch):
    """They are made of hidden states of no text."""
    target, heads = models
    with load(target, heads=heads["eagle3"], slots=2) as engine:
        drafter = engine.speculator.drafters["eagle"]
        counts = count_rows(monkeypatch, drafter.runner)
        engine.generate([0] * 40, max_tokens=2)
    assert counts[0] == 38


def test_pairs_compare_all_tokens_of_their_rows():
    tokens = [5, 6, 7, 8]
    pairs = TokenPairs(tokens)
    assert (len(pairs), pairs[0], pairs[-1]) == (3, (5, 6), (7, 8))
    assert pairs[:2] == TokenPairs([5, 6, 7])
    assert pairs[:2] != TokenPairs([5, 6, 9])[:2]
    assert pairs[1:1] == TokenPairs([])
    tokens.append(9)
    assert len(pairs) == 4
    assert list(itertools.islice(pairs, 2)) == [(5, 6), (6, 7)]
