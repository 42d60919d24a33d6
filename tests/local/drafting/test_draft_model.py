"""The draft model: its q, catching up, its vocabulary, and the end of its context."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import chain
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.model.sampling import distributions
from tiny_models import load, run, sequence


def runner(folder, context=64, **options):
    return DecoderRunner.load(folder, dtype="float32", slots=1, context=context, **options)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_q_is_the_distribution_that_tokens_were_drawn_from(checkpoint, temperature):
    drafter, reference = DraftModel(runner(checkpoint(), exact=False), 300), runner(checkpoint())
    request = sequence([5, 6, 7], temperature=temperature, seed=1)
    drafter.begin(request)
    (tree,) = drafter.propose([request], [chain(4)])
    assert tree.is_chain
    expected = distributions(reference.score(0, [5, 6, 7], tree), request.params)
    for q, p in zip(tree.q, expected[:-1], strict=True):
        np.testing.assert_allclose(q, p, atol=1e-6)


def test_after_full_acceptance_the_last_token_is_read_with_the_next_draft(checkpoint):
    drafter = DraftModel(runner(checkpoint()), 300)
    request = sequence([5, 6, 7])
    drafter.begin(request)
    (tree,) = drafter.propose([request], [chain(3)])
    assert drafter.runner.length(0) == 3 + 2
    drafter.commit(request, tree, [0, 1, 2])
    request.tokens += [*tree.tokens, 9]
    assert drafter.runner.length(0) == len(request.tokens) - 2
    drafter.propose([request], [chain(1)])
    assert drafter.runner.length(0) == len(request.tokens)


def test_rejected_tokens_are_removed_from_the_drafts_cache(checkpoint):
    drafter = DraftModel(runner(checkpoint()), 300)
    request = sequence([5, 6, 7])
    drafter.begin(request)
    (tree,) = drafter.propose([request], [chain(4)])
    drafter.commit(request, tree, [0])
    assert drafter.runner.length(0) == 4
    drafter.end(request)
    assert drafter.runner.length(0) == 3, "only the request's own tokens may be shared"


def test_non_finite_values_are_erased_from_the_slot(checkpoint):
    drafter = DraftModel(runner(checkpoint(seed=9)), 300)
    with torch.inference_mode():
        drafter.runner.decoder.embedding[13] = torch.nan
    request = sequence([5, 13, 7])
    drafter.begin(request)
    assert len(drafter.propose([request], [chain(4)])[0]) == 0
    drafter.end(request)
    assert drafter.runner.length(0) == 0
    assert drafter.runner.cache.rows.isfinite().all()


def test_a_draft_catches_up_on_more_tokens_than_fit_in_one_pass(checkpoint):
    drafter, fresh = (DraftModel(runner(checkpoint(seed=9), context=400), 300) for _ in range(2))
    behind, abreast = sequence([5, 13, 7]), sequence([5, 13, 7])
    drafter.begin(behind)
    for request in (behind, abreast):  # as if load had prevented drafting while the answer grew
        request.tokens += [2 + 7 * i % 290 for i in range(MAX_PASS_ROWS + 40)]
    while not fresh.begin(abreast):
        pass
    (late,), (soon,) = (d.propose([r], [chain(3)]) for d, r in ((drafter, behind), (fresh, abreast)))
    assert late.tokens == soon.tokens
    assert drafter.runner.length(0) == fresh.runner.length(0)


class EndsAfterOneToken:
    """A logits processor that allows nothing after the first drafted token, like a completed grammar."""

    ended = False

    def process(self, logits, paths):
        return torch.stack(
            [row - torch.inf if path else row for row, path in zip(logits, paths, strict=True)]
        )

    def take(self, token):
        pass


def test_a_drafted_token_that_ends_the_answer_leaves_the_prompt_shareable(checkpoint):
    drafter = DraftModel(runner(checkpoint(seed=9)), 300)
    request = sequence([5, 13, 7])
    request.logits_processor = EndsAfterOneToken()
    drafter.begin(request)
    assert len(drafter.propose([request], [chain(4)])[0]) == 1
    drafter.end(request)
    assert drafter.runner.length(0) == 3


@pytest.mark.parametrize("draft_vocab", [320, 290])
def test_vocabularies_padded_to_different_sizes_are_compatible(checkpoint, draft_vocab):
    """Ids beyond the target's vocabulary are not drafted; ids that the draft lacks get probability 0."""
    target, draft = runner(checkpoint()), runner(checkpoint(vocab_size=draft_vocab, seed=3))
    drafter = DraftModel(draft, 300)
    for temperature in (0.0, 1.5):
        request = sequence([5, 6, 7], temperature=temperature, seed=2, max_tokens=40, draft_length=4)
        drafter.begin(request)
        (tree,) = drafter.propose([request], [chain(8)])
        assert max(tree.tokens) < 300
        assert all(isinstance(q, int) or (q.shape == (300,) and abs(q.sum() - 1) < 1e-12) for q in tree.q)
        drafter.end(request)
        speculator = Speculator(target, {"draft": drafter})
        assert len(run(speculator, request)) == 40
        speculator.end(request)


def test_a_draft_with_a_shorter_context_stops_drafting_at_its_end(checkpoint):
    short = checkpoint(max_position_embeddings=24)
    with load(checkpoint(), short) as engine:
        plain = engine.generate([7] * 12, max_tokens=60, method="plain")
        drafted = engine.generate([7] * 12, max_tokens=60, draft_length=3)
        beyond = engine.generate([7] * 40, max_tokens=20, draft_length=3)
    assert drafted.token_ids == plain.token_ids
    assert 0 < drafted.speculation.drafted <= 3 * 12
    assert beyond.speculation.drafted == 0
    assert beyond.speculation.acceptance_rate is None
    assert beyond.speculation.per_position is None


def test_several_choices_read_their_prompt_once_in_the_target_and_in_the_draft(checkpoint, monkeypatch):
    rows: dict[int, int] = {}
    original = DecoderRunner.run_pass

    def counted(self, parts, *, unread=False):
        if unread:
            rows[id(self)] = rows.get(id(self), 0) + sum(part.rows for part in parts)
        return original(self, parts, unread=unread)

    prompt = [2 + i % 250 for i in range(90)]
    with load(checkpoint(), checkpoint(num_hidden_layers=1, seed=5), slots=4) as engine:
        target, draft = engine._speculator.target, engine._speculator.drafters["draft"].runner
        monkeypatch.setattr(DecoderRunner, "run_pass", counted)
        params = {"max_tokens": 8, "temperature": 1.0, "seed": 3, "draft_length": 3, "method": "draft"}
        answers = engine.generate_many(prompt, 4, **params)
        assert rows == {id(target): len(prompt) - 1, id(draft): len(prompt) - 1}
        assert all(answer.speculation.drafted for answer in answers)
        alone = [engine.generate(prompt, **{**params, "seed": 3 + i}).token_ids for i in range(4)]
    assert [answer.token_ids for answer in answers] == alone
