"""An engine's drafters: available methods, skipped layers, trees, and measured costs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from specclient_local.decoding import speculate
from specclient_local.drafting import draft_model
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import GrownTree
from specclient_local.drafting.round_costs import RoundCosts, combined_costs
from specclient_local.loading.calibration import Calibration
from specclient_local.loading.drafter_set import build_drafters, kept_layers, layer_skip_runner
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.native.greedy_rounds import NativeRounds
from specclient_local.model.sampling import distributions
from specclient_local.request.token_tree import ROOT, TokenTree, without_token
from tiny_models import letter_tokenizer, load, sequence

from specclient.errors import ConfigurationError


def runner(folder, slots=2, context=128, **options):
    return DecoderRunner.load(folder, dtype="float32", slots=slots, context=context, **options)


@pytest.mark.parametrize(
    ("drafts", "options", "default", "methods"),
    [
        (0, {}, "plain", {"plain", "prediction", "ngram", "suffix"}),
        (0, {"method": "ngram"}, "ngram", {"plain", "prediction", "ngram", "suffix"}),
        (1, {}, "draft", {"plain", "prediction", "ngram", "suffix", "draft", "union"}),
        (1, {"method": "union"}, "union", {"plain", "prediction", "ngram", "suffix", "draft", "union"}),
        (2, {}, "union", {"plain", "prediction", "ngram", "suffix", "draft", "union"}),
        (0, {"layer_skip": 1}, "layer_skip", {"plain", "prediction", "ngram", "suffix", "layer_skip"}),
        (
            1,
            {"layer_skip": 1},
            "draft",
            {"plain", "prediction", "ngram", "suffix", "draft", "union", "layer_skip"},
        ),
    ],
)
def test_available_methods_depend_on_the_loaded_models(checkpoint, drafts, options, default, methods):
    with load(checkpoint(), [checkpoint(seed=3), checkpoint(seed=4)][:drafts] or None, **options) as engine:
        assert engine.method == default
        assert set(engine.methods) == methods
        assert set(engine.costs) == methods - {"plain"}
        assert engine.generate("def f", max_tokens=4).speculation.method == default


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"method": "draft"}, "draft is None"),
        ({"method": "union"}, "draft is None"),
        ({"method": "layer_skip"}, "layer_skip is None"),
        ({"layer_skip": 2}, "1 to 1"),
        ({"layer_skip": 0}, "layer_skip is 0"),
    ],
)
def test_methods_without_their_models_are_rejected(checkpoint, options, named):
    with pytest.raises(ConfigurationError, match=named):
        load(checkpoint(), **options)


def test_kept_layers_are_the_first_n_or_the_given_ones():
    assert kept_layers(3, 7) == (0, 1, 2)
    assert kept_layers((0, 2, 6), 7) == (0, 2, 6)
    for wrong in (7, 0, -1, (), (2, 1), (1, 1), (0, 7), range(7)):
        with pytest.raises(ConfigurationError, match="layer_skip"):
            kept_layers(wrong, 7)


def test_a_layer_skip_runner_shares_weights_but_not_the_cache(checkpoint):
    target = runner(checkpoint(num_hidden_layers=3, spread=0.2))
    skipped = layer_skip_runner(target, (0, 2), 2)
    assert skipped.config.layers == 2
    assert skipped.decoder.embedding is target.decoder.embedding
    rows = skipped.cache.rows
    assert rows.untyped_storage().data_ptr() != target.cache.rows.untyped_storage().data_ptr()
    target.prefill(0, [5, 6, 7])
    assert skipped.length(0) == 0
    skipped.prefill(0, [5, 6, 7])
    # the first layer has the same input as the target's first layer
    assert torch.equal(skipped.cache.rows[0, 0, :, :3], target.cache.rows[0, 0, :, :3])
    assert not torch.equal(skipped.cache.rows[1, 0, :, :3], target.cache.rows[1, 0, :, :3])


@pytest.mark.parametrize("shape", [(2, 2), (3, 1, 1), GrownTree(3, 6)], ids=str)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_each_tree_node_has_the_distribution_it_was_drawn_from(checkpoint, shape, temperature):
    drafter, reference = DraftModel(runner(checkpoint(), exact=False), 300), runner(checkpoint())
    request = sequence([5, 6, 7], temperature=temperature, seed=1, top_k=20)
    drafter.begin(request)
    (tree,) = drafter.propose([request], [shape])
    p = distributions(reference.score(0, [5, 6, 7], tree), request.params)
    assert max(tree.depths()) == len(shape) or isinstance(shape, GrownTree)
    for parent in {ROOT, *tree.parents}:
        left = p[parent + 1]
        for node in tree.children(parent):
            if temperature == 0.0 or isinstance(shape, GrownTree):
                assert tree.q[node] in (None, tree.tokens[node])
                continue
            np.testing.assert_allclose(tree.q[node], left, atol=1e-6)
            left = without_token(left, tree.tokens[node])
    firsts = [tree.tokens[node] for node in tree.children(ROOT)]
    assert len(set(firsts)) == len(firsts)
    if temperature == 0.0:
        assert firsts[0] == p[0]


def test_after_a_partly_accepted_tree_the_drafts_cache_equals_a_fresh_prefill(checkpoint):
    drafter = DraftModel(runner(checkpoint(), slots=1), 300)
    request = sequence([5, 6, 7])
    drafter.begin(request)
    (tree,) = drafter.propose([request], [(2, 2, 2)])
    second = tree.children(ROOT)[1]
    below = tree.children(second)[1]
    last = tree.children(below)[0]
    drafter.commit(request, tree, [second, below, last])
    # the draft has not read the last level
    assert drafter.runner.length(0) == 3 + 2
    request.tokens += [tree.tokens[second], tree.tokens[below], tree.tokens[last], 9]
    used = drafter.runner.cache.rows[:, 0, :, :5].clone()
    drafter.runner.truncate(0, 0)
    drafter.runner.prefill(0, request.tokens[:5])
    torch.testing.assert_close(drafter.runner.cache.rows[:, 0, :, :5], used, atol=1e-5, rtol=0)


def test_after_a_grown_tree_the_drafts_cache_equals_a_fresh_prefill(checkpoint):
    """The cache has rows of scored tokens that are not in the tree between those of the path."""
    drafter = DraftModel(runner(checkpoint(spread=0.3), slots=1), 300)
    moved = 0
    for first in range(2, 22):
        request = sequence([first, 6, 7])
        drafter.begin(request)
        (tree,) = drafter.propose([request], [GrownTree(4, 6)])
        node, path = tree.depths().index(max(tree.depths())), []
        while node != ROOT:
            path.insert(0, node)
            node = tree.parents[node]
        moved += any(at not in (None, node) for node, at in enumerate(drafter._held[0]))
        drafter.commit(request, tree, path)
        length = drafter.runner.length(0)
        assert 3 + len(path) - 1 <= length <= 3 + len(path)
        used = drafter.runner.cache.rows[:, 0, :, :length].clone()
        drafter.runner.truncate(0, 0)
        drafter.runner.prefill(0, [*request.tokens, *(tree.tokens[node] for node in path)][:length])
        torch.testing.assert_close(drafter.runner.cache.rows[:, 0, :, :length], used, atol=1e-5, rtol=0)
        drafter.end(request)
    assert moved > 0


def test_tree_widths_may_exceed_the_vocabulary(checkpoint):
    tiny = checkpoint(vocab_size=3, tokenizer=letter_tokenizer(3), eos_token_id=None, bos_token_id=None)
    with load(tiny, tiny) as engine:
        plain = engine.generate([1, 2], max_tokens=20, method="plain")
        for tree, temperature in itertools.product([(8, 2), "grow"], [0.0, 1.0]):
            params = {"draft_tree": tree, "draft_length": 2, "max_tokens": 20, "temperature": temperature}
            answer = engine.generate([1, 2], **params)
            assert answer.speculation.drafted > 0
            assert temperature or answer.token_ids == plain.token_ids


@pytest.mark.parametrize("context", [2, 5, 20])
def test_drafting_works_in_very_small_contexts(checkpoint, context):
    """Trees are larger than the remaining context, and the draft's context is shorter than the target's."""
    with load(checkpoint(), checkpoint(max_position_embeddings=4), context=context, layer_skip=1) as engine:
        plain = engine.generate([5], max_tokens=None, method="plain").token_ids
        for method, tree, length in itertools.product(
            ("draft", "union", "layer_skip", "ngram"), (None, (3, 2, 1), "grow"), (None, 4, "step")
        ):
            params = {"method": method, "draft_tree": tree, "draft_length": length}
            assert engine.generate([5], max_tokens=None, **params).token_ids == plain, params


class PassClock:
    """A clock that advances by ``a_pass`` seconds per pass and ``a_row`` seconds per row."""

    def __init__(self, a_pass, a_row):
        self.now, self.a_pass, self.a_row, self.rows = 0.0, a_pass, a_row, 0

    def __call__(self):
        return self.now

    def watch(self, runner, monkeypatch):
        original = runner.score_all

        def score_all(parts):
            rows = sum(part.rows for part in parts)
            self.now += self.a_pass + self.a_row * rows
            self.rows += rows
            return original(parts)

        monkeypatch.setattr(runner, "score_all", score_all)
        monkeypatch.setattr(runner, "draft_chains", lambda *chain: None)
        return runner


@pytest.mark.parametrize(("a_pass", "most"), [(0.001, 10.0), (0.1, 2.5), (1.0, 8.0)])
def test_calibration_of_a_slow_model_takes_few_passes(checkpoint, monkeypatch, a_pass, most):
    clock = PassClock(a_pass, 0.1 * a_pass)
    target = clock.watch(runner(checkpoint(max_position_embeddings=1024), slots=4, context=1024), monkeypatch)
    cost = Calibration(target, 4, clock).target
    assert clock.now < most
    assert cost.verify[0] == 1.0
    assert cost.verify[10] == pytest.approx((1 + 0.1 * 11) / 1.1)
    # a batch of four: one pass of all their rows
    assert cost.full_verify[5] == pytest.approx((1 + 0.1 * 24) / 1.1, rel=0.05)
    assert len(cost.verify) == 16
    assert all(target.length(slot) == 0 for slot in range(4))


def test_calibration_measures_draft_passes_relative_to_the_targets(checkpoint, monkeypatch):
    clock = PassClock(0.01, 0.0)
    target = clock.watch(runner(checkpoint(max_position_embeddings=1024), slots=4, context=1024), monkeypatch)
    draft = clock.watch(runner(checkpoint(seed=3), slots=4), monkeypatch)
    measured = Calibration(target, 4, clock)
    clock.a_pass, clock.a_row = 0.004, 0.001
    cost = measured.draft(draft)
    assert cost.draft == pytest.approx(0.5)
    assert cost.full_draft == pytest.approx(0.8)
    assert cost.row == pytest.approx(0.1)
    assert len(cost.verify) == 11
    assert cost.far.context == 1024 - 16
    assert all(draft.length(slot) == 0 for slot in range(4))


def test_calibration_measures_the_overhead_of_trees_and_of_drawing(checkpoint, monkeypatch):
    monkeypatch.setattr(NativeRounds, "for_target", lambda target: None)  # compiled calls are not timed
    clock = PassClock(0.01, 0.0)
    target = clock.watch(runner(checkpoint(), slots=2), monkeypatch)
    draft = clock.watch(runner(checkpoint(seed=3), slots=2), monkeypatch)

    def slow_down(owner, name, seconds):
        original = getattr(owner, name)

        def slow(*given, **more):
            clock.now += seconds
            return original(*given, **more)

        monkeypatch.setattr(owner, name, slow)

    slow_down(draft_model, "all_distributions", 0.002)
    slow_down(TokenTree, "ancestors", 0.003)
    measured = Calibration(target, 2, clock)
    assert measured.target.tree_overhead == pytest.approx(0.3)
    cost = measured.draft(draft)
    assert (cost.draft, cost.drawn) == pytest.approx((1.0, 0.2))
    assert cost.level == pytest.approx(0.2 + 0.3 / 2), "a draft's second level sees siblings by a mask, too"
    assert cost.sampled().draft == pytest.approx(1.2)
    assert cost.tree((2,)) == pytest.approx(cost.verify[2] + cost.draft + cost.level + 0.3)
    assert cost.at(10_000).level == cost.level


def test_costs_of_several_drafts_are_summed():
    one = RoundCosts(
        0.1, tuple(1.0 + 0.1 * k for k in range(11)), far=RoundCosts(0.2, (2.0,) * 11, context=500)
    )
    both = combined_costs([one, one])
    assert both.draft == 0.2
    assert both.verify == pytest.approx((1.0, 1.2, 1.4, 1.6, 1.8, 2.0))
    assert both.far.draft == 0.4


def test_plain_decoding_is_not_calibrated(checkpoint):
    assert build_drafters(runner(checkpoint()), [], method="plain", slots=2).costs == {}


def test_calibration_measures_the_overhead_of_a_round(checkpoint, monkeypatch):
    clock = PassClock(0.01, 0.0)
    target = clock.watch(runner(checkpoint(), slots=2), monkeypatch)
    monkeypatch.setattr(speculate.NativeRounds, "for_target", lambda target: None)
    original = speculate.verify

    def slow(*given):
        clock.now += 0.004
        return original(*given)

    monkeypatch.setattr(speculate, "verify", slow)
    cost = Calibration(target, 2, clock).target
    assert cost.overhead == pytest.approx(0.4)
    assert cost.round(0) == pytest.approx(1.0), "a lone request's round is about its pass"
    assert cost.round(0, 0, 2) == pytest.approx(cost.full_verify[0] + 0.8)
    assert cost.at(10_000).overhead == cost.overhead
    clock.a_pass = 1.0
    assert Calibration(target, 2, clock).target.overhead == 0.0, "not worth the passes of a slow model"
    assert target.length(0) == 0
