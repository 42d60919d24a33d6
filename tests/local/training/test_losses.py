"""Distillation losses against hand-computed values, replayed rounds, and prompt selection."""

from __future__ import annotations

import math

import pytest
import torch
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.training.draft.samples import AnswerSampling, cut_prompts
from specclient_local.training.losses import LOSSES, acceptance_chance, distillation_loss, replay_greedy
from tiny_models import byte_tokenizer

P, Q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows).log() + 3.0  # softmax ignores a constant


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("kl", sum(p * math.log(p / q) for p, q in zip(P, Q, strict=True))),
        ("hard", -math.log(Q[0])),
        ("tv", 0.4),
    ],
)
def test_losses_equal_their_definitions(kind, wanted) -> None:
    assert distillation_loss(kind, logits(Q), logits(P)).item() == pytest.approx(wanted, abs=1e-6)
    both = distillation_loss(kind, logits(Q, P), logits(P, P)).item()
    same = distillation_loss(kind, logits(P), logits(P)).item()
    assert both == pytest.approx((wanted + same) / 2, abs=1e-6), "a mean over positions"


@pytest.mark.parametrize("kind", LOSSES)
def test_gradient_descent_on_each_loss_reaches_the_target(kind) -> None:
    draft_logits = logits(Q).requires_grad_()
    for _ in range(400):
        (gradient,) = torch.autograd.grad(distillation_loss(kind, draft_logits, logits(P)), draft_logits)
        draft_logits = (draft_logits - 0.2 * gradient).detach().requires_grad_()
    if kind == "hard":
        assert draft_logits.argmax() == 0
    else:
        torch.testing.assert_close(torch.softmax(draft_logits, -1), torch.tensor([P]), atol=0.05, rtol=0)


def test_acceptance_chance_is_the_overlap_of_both_distributions() -> None:
    assert acceptance_chance(logits(Q, P), logits(P, P)).tolist() == pytest.approx([0.6, 1.0])
    distance = distillation_loss("tv", logits(Q), logits(P)).item()
    assert distance == pytest.approx(1 - acceptance_chance(logits(Q), logits(P)).item(), abs=1e-6)


@pytest.mark.parametrize(
    ("agrees", "wanted"),
    [
        ([True] * 11, (3, 3, 9)),
        ([False] * 3, (1, 0, 1)),
        ([True, False, True, True, True, False], (2, 2, 5)),
        ([], (0, 0, 0)),
    ],
)
def test_replay_greedy_counts_rounds_first_acceptances_and_tokens(agrees, wanted) -> None:
    assert replay_greedy(agrees, 2) == wanted


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


def test_cut_prompts_begin_at_lines(tokenizer) -> None:
    text = "".join(f"line {i} of it\n" for i in range(30))
    how = AnswerSampling(prompt=20)
    found = cut_prompts(tokenizer, [text], 12, how, whole=False)
    assert len(found) == 12
    assert all(tokenizer.decode(ids).startswith("line ") and len(ids) == 20 for ids in found)
    assert found == cut_prompts(tokenizer, [text], 12, how, whole=False)
    assert found != cut_prompts(tokenizer, [text], 12, AnswerSampling(prompt=20, seed=1), whole=False)


def test_whole_prompts_are_used_in_rotation(tokenizer) -> None:
    found = cut_prompts(tokenizer, ["one", "two", ""], 5, AnswerSampling(prompt=2), whole=True)
    assert len(found) == 5
    assert found[:2] == found[2:4]
    assert all(len(ids) <= 2 for ids in found)
