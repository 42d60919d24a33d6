"""Training heads: agreement of training and drafting, resuming interrupted runs, and saved heads."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from specclient_local.drafting.parallel_eagle import ParallelEagleDrafter
from specclient_local.model.config import BUNDLED, read_config
from specclient_local.model.heads.eagle_runner import EagleRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import TokenTree
from specclient_local.training.heads import trainer as heads
from specclient_local.training.heads.dataset import CollectedAnswers, CollectionSettings, HeadsTrainingRows
from specclient_local.training.heads.learners import (
    EagleLearner,
    FrozenTarget,
    heads_loss,
    replayed_acceptance,
)
from specclient_local.training.heads.parallel_learner import ParallelEagleLearner
from specclient_local.training.heads.recipe import HeadsProgress, HeadsRecipe, eagle_shape
from specclient_local.training.heads.trainer import train_heads
from tiny_models import load, sequence, write_checkpoint

from specclient.errors import ConfigurationError, EngineError

TEXTS = [f"def f{i}(x):\n    return x + {i}\n" * 12 for i in range(8)]
SHORT = CollectionSettings(prompt=8, new=24, wander=2)
SMALL = HeadsRecipe(
    "eagle",
    steps=24,
    batch=4,
    lr=1e-2,
    depth=3,
    ff=40,
    draft_vocab=60,
    prompts=40,
    heldout=8,
    collecting=SHORT,
    precision="float32",
    every=12,
)
KINDS = ("medusa", "eagle", "eagle3", "peagle")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("target"), spread=0.1, num_hidden_layers=5)


def recipe(kind, **changes):
    return replace(SMALL, kind=kind, taps=(1, 2, 4) if kind in ("eagle3", "peagle") else None, **changes)


def learner_of(target, kind):
    """Return a target's runner, a head with random parameters, and rows of the target's answers."""
    plan = recipe(kind)
    runner = heads._load_target(target, plan, "cpu")
    lent = heads._cloned(runner.shared_weights())
    ids = torch.arange(0, 300, 5) if kind != "eagle" else None
    shape = eagle_shape(plan, read_config(target), 0 if ids is None else 60)
    torch.manual_seed(0)
    kind_of_learner = ParallelEagleLearner if kind == "peagle" else EagleLearner
    learner = kind_of_learner(shape, lent, ids, depth=3, length=32)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    tokens = torch.randint(2, 300, (2, 20), generator=torch.Generator().manual_seed(1))
    for slot in range(2):
        runner.prefill(slot, tokens[slot].tolist())
    layers = runner.layers
    features = torch.stack([runner.features(slot, 0, 20, layers) for slot in range(2)]).clone()
    best = torch.randint(2, 300, (2, 20), generator=torch.Generator().manual_seed(2))
    return runner, learner, HeadsTrainingRows(tokens, torch.tensor([20, 20]), features, best)


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_training_logits_equal_drafting_logits_at_each_depth(target, kind):
    """Training computes all positions of a row at once; drafting computes one position, token by token."""
    runner, learner, rows = learner_of(target, kind)
    with torch.inference_mode():
        learnt = [learner.logits(states) for states in learner.depths(rows, 3)]
        eagle = EagleRunner(learner.shape, learner.weights(), runner)
        for row, place in ((0, 0), (0, 7), (1, 14)):
            ids = rows.ids[row].tolist()
            seen = learner.shape.tapped(runner.config.layers)
            states = eagle.head.read(runner.features(row, 0, place + 1, seen))
            if place:
                eagle.extend(row, ids[1 : place + 1], states[:-1])
            given, tree, tokens = states[-1:], TokenTree(), ids[place + 1 : place + 2]
            for k in range(3):
                (logits,), (given,) = eagle.step([SlotInput(row, tokens, tree, held=max(0, k - 1))], [given])
                torch.testing.assert_close(logits[0], learnt[k][row, place], atol=1e-4, rtol=1e-4)
                tree.add(k - 1, ids[place + 2 + k])
                tokens = []
            eagle.truncate(row, 0)


def test_training_logits_of_p_eagle_equal_drafting_logits_at_each_depth(target):
    """Training computes the blocks of all positions in one pass; drafting one block."""
    runner, learner, rows = learner_of(target, "peagle")
    with torch.inference_mode():
        learnt = [learner.logits(states) for states in learner.depths(rows, 3)]
        drafter = ParallelEagleDrafter(runner, EagleRunner(learner.shape, learner.weights(), runner))
        for row, place in ((0, 0), (0, 7), (1, 14)):
            ids = rows.ids[row].tolist()[: place + 2]
            (logits,) = drafter._rows([sequence(ids, slot=row)], [3])
            wanted = torch.stack([depth[row, place] for depth in learnt])
            torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
            drafter.runner.truncate(row, 0)


def test_a_p_eagle_head_starts_with_the_parameters_of_an_eagle3_head(target, tmp_path):
    plan = recipe("eagle3", steps=1, every=1)
    train_heads(target, TEXTS, TEXTS[:2], tmp_path / "eagle3", plan)
    start = replace(plan, kind="peagle", start=str(tmp_path / "eagle3"), taps=None, ff=None, lr=1e-9)
    train_heads(target, TEXTS, TEXTS[:2], tmp_path / "peagle", start)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("eagle3", "peagle"))
    assert set(other) - set(one) == {
        "mask_hidden",
        *(name.replace("layers.0.", "layers.1.") for name in one if "layers.0." in name),
    } - {"layers.1.hidden_norm.weight"}
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, msg=name)
    config = json.loads((tmp_path / "peagle" / "config.json").read_text())
    assert (config["speculators_model_type"], config["mask_token_id"]) == ("peagle", 1)
    assert config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 3
    with pytest.raises(ConfigurationError, match="which is no EAGLE-3 head"):
        train_heads(target, TEXTS, TEXTS[:2], tmp_path / "x", replace(start, start=str(tmp_path / "peagle")))


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "peagle"])
def test_states_of_selected_positions_equal_those_of_all(target, kind):
    _, learner, rows = learner_of(target, kind)
    places = torch.tensor([0, 3, 4, 11, 18])
    with torch.inference_mode():
        for some, every in zip(learner.depths(rows, 3, places), learner.depths(rows, 3), strict=True):
            torch.testing.assert_close(some, every[:, places], atol=1e-5, rtol=1e-5)


def test_an_untrained_head_that_reads_the_embedding_predicts_repetitions():
    """The input is a random sequence of tokens, repeated once."""
    plan = HeadsRecipe("eagle3")
    runner = heads._load_target(BUNDLED / "target", plan, "cpu")
    lent = heads._cloned(runner.shared_weights())
    vocab = runner.config.vocab_size
    torch.manual_seed(0)
    shape = eagle_shape(plan, runner.config, vocab)
    learner = EagleLearner(shape, lent, torch.arange(vocab), depth=1, length=80)
    once = torch.randperm(vocab - 3, generator=torch.Generator().manual_seed(0))[:40] + 3
    ids = torch.cat([once, once])[None]
    runner.prefill(0, ids[0].tolist())
    features = runner.features(0, 0, 80, runner.layers)[None].clone()
    rows = HeadsTrainingRows(ids, torch.tensor([80]), features, ids)
    with torch.inference_mode():
        (states,) = learner.depths(rows, 1)
        guessed = learner.logits(states).argmax(-1)[0]
    again = guessed[40:78] == ids[0, 42:]
    assert again.float().mean() > 0.3
    assert (guessed[:38] == ids[0, 2:40]).float().mean() < 0.05, "the first half has no repetition"


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_run_lowers_the_loss_and_its_saved_heads_draft(target, tmp_path, kind):
    progress: list[HeadsProgress] = []
    plan = recipe(kind, steps=48, lr=3e-2)
    last = train_heads(target, TEXTS, TEXTS[:2], tmp_path / "out", plan, on_progress=progress.append)
    losses = [p.loss for p in progress if p.loss is not None]
    assert losses[-1] < 0.95 * losses[0]
    first = next(p for p in progress if p.stage == "train")
    assert last.tokens_per_round > first.tokens_per_round
    assert {p.stage for p in progress} == {"collect", "train"}
    assert all(p.left_s is not None and p.left_s >= 0 for p in progress if p.stage == "train" and p.done > 0)
    file = "medusa_lm_head.safetensors" if kind == "medusa" else "model.safetensors"
    assert {tensor.dtype for tensor in load_file(tmp_path / "out" / file).values()} <= {
        torch.bfloat16,
        torch.int64,
        torch.bool,
    }
    with load(target, heads=tmp_path / "out") as engine:
        wanted = engine.generate(TEXTS[0][:40], max_tokens=40, method="plain")
        answer = engine.generate(TEXTS[0][:40], max_tokens=40, draft_length=3)
    assert answer.token_ids == wanted.token_ids
    assert answer.speculation.accepted > 0


def test_an_interrupted_run_resumes_to_the_same_heads(target, tmp_path):
    plan = recipe("eagle")
    train_heads(target, TEXTS, TEXTS[:2], tmp_path / "whole", plan)

    class Interrupted(Exception):
        pass

    def interrupt_at(at):
        def on_progress(progress):
            if (progress.stage, progress.done) == at:
                raise Interrupted

        return on_progress

    for at in (("collect", 32), ("train", 15)):
        with pytest.raises(Interrupted):
            train_heads(target, TEXTS, TEXTS[:2], tmp_path / "again", plan, on_progress=interrupt_at(at))
    steps: list[int] = []
    train_heads(
        target,
        TEXTS,
        TEXTS[:2],
        tmp_path / "again",
        plan,
        on_progress=lambda p: steps.append(p.done) if p.loss else None,
    )
    assert steps[0] == 13, "training resumed from the checkpoint after step 12"
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "again"))
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())
    for texts, changed in ((TEXTS, replace(plan, lr=1.0)), (TEXTS[1:], plan)):
        with pytest.raises(ConfigurationError, match="holds a run with other settings or texts"):
            train_heads(target, texts, TEXTS[:2], tmp_path / "again", changed)


def test_a_non_finite_loss_ends_the_run_with_a_way_out(target, tmp_path, monkeypatch):
    monkeypatch.setattr(heads.HeadsTrainingRun, "step", lambda self, number: math.nan if number == 1 else 1.0)
    with pytest.raises(EngineError, match=r"loss is nan at step 2; train with a learning rate below"):
        train_heads(target, TEXTS, TEXTS[:2], tmp_path, recipe("medusa", steps=3))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"collecting": CollectionSettings(prompt=8, new=500)}, "exceed the target's context of 128"),
        ({"collecting": CollectionSettings(prompt=100, new=8)}, "no prompt has 100 tokens"),
        ({"kind": "eagle3", "taps": (1, 2, 9)}, "taps are 1, 2, 9"),
        ({"kind": "eagle3", "taps": (2, 2, 3)}, "taps are 2, 2, 3"),
    ],
)
def test_invalid_settings_are_rejected(target, tmp_path, changes, named):
    with pytest.raises(ConfigurationError, match=named):
        train_heads(target, ["short"], ["short"], tmp_path, replace(SMALL, **changes))


def test_positions_after_an_answer_do_not_affect_loss_or_figures(target):
    runner, learner, rows = learner_of(target, "eagle")
    teacher = FrozenTarget(heads._cloned(runner.shared_weights()), learner.ids)
    cut = replace(rows, lengths=torch.tensor([20, 9]))
    spoilt = replace(cut, features=cut.features.clone())
    spoilt.features[1, 9:] = 50.0
    one, other = (heads_loss(learner, teacher, r, torch.Generator().manual_seed(0)) for r in (cut, spoilt))
    torch.testing.assert_close(one, other)
    rounds, first, second = replayed_acceptance(learner, cut, 4, 2).tolist()
    assert 0 <= second <= first < rounds
    whole = replayed_acceptance(learner, rows, 4, 2)[0]
    assert rounds < whole, "rounds end with the answer"


def test_collected_pieces_have_the_targets_answers(target, tmp_path):
    train_heads(target, TEXTS, TEXTS[:2], tmp_path / "out", recipe("medusa", steps=1, every=1))
    pieces = CollectedAnswers(sorted((tmp_path / "out" / "work" / "heldout").glob("*.safetensors")))
    rows = pieces.rows([0, len(pieces) - 1], torch.device("cpu"))
    with load(target) as engine:
        for ids in rows.ids.tolist():
            answer = engine.generate(ids[:8], max_tokens=24, stop_token_ids=[], method="plain")
            assert ids[8 : 8 + len(answer.token_ids)] == answer.token_ids
    assert json.loads((tmp_path / "out" / "config.json").read_text())["original_lm_head"] is True


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("medusa", {"start": "bundled:eagle3"}, "start is 'bundled:eagle3', but only heads of kind peagle"),
        ("eagle3", {"layers": 3}, "layers is 3, but only heads of kind peagle"),
        ("eagle", {"blocks": 2}, "blocks is 2, but only heads of kind medusa"),
        ("medusa", {"taps": (1, 2, 3)}, "only heads of kind eagle3 or peagle have it, and kind is 'medusa'"),
    ],
)
def test_settings_of_another_kind_are_refused(kind, changes, message):
    with pytest.raises(ConfigurationError, match=message):
        HeadsRecipe(kind, **changes)
