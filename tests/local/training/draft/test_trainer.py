"""Distilling a draft: sampling, training, resuming killed runs, and invalid settings."""

from __future__ import annotations

import json
import math
import os
import signal
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from specclient_local.training.draft import trainer as distilling
from specclient_local.training.draft.checkpoints import DraftCheckpoints
from specclient_local.training.draft.recipe import DraftProgress, DraftRecipe, PromptCorpus
from specclient_local.training.draft.samples import AnswerSampling, TargetAnswers
from specclient_local.training.draft.trainer import DraftTrainingRun, train_draft
from tiny_models import byte_tokenizer, load, write_checkpoint

from specclient.errors import CheckpointError, ConfigurationError, EngineError

TEXTS = [f"def f{i}(x):\n    return x + {i}\n" * 12 for i in range(8)]
CORPUS = PromptCorpus(TEXTS[1:], TEXTS[:1], whole=False)
SMALL = DraftRecipe(
    steps=12,
    batch=4,
    lr=1e-2,
    warmup=3,
    prompts=80,
    heldout=6,
    sampling=AnswerSampling(prompt=12, new=20, slots=16),
    precision="float32",
    every=4,
)
_SHAPE = {"tie_word_embeddings": True, "spread": 0.1}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    target = write_checkpoint(folder / "target", num_hidden_layers=3, **_SHAPE)
    return target, write_checkpoint(folder / "draft", seed=1, num_hidden_layers=1, **_SHAPE)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory) -> tuple[Path, list[DraftProgress]]:
    """Return the folder of an uninterrupted run, and its progress."""
    out, progress = tmp_path_factory.mktemp("whole"), list[DraftProgress]()
    train_draft(*models, CORPUS, out, SMALL, on_progress=progress.append)
    return out, progress


def test_a_killed_run_resumes_to_the_same_draft(models, whole, tmp_path) -> None:
    """A process is killed with SIGKILL during training; a second one resumes from its files."""

    def on_progress(progress: DraftProgress) -> None:
        if (progress.stage, progress.done) == ("train", 6):
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()  # it has what this process has imported
    if child == 0:
        try:
            train_draft(*models, CORPUS, tmp_path, SMALL, threads=1, on_progress=on_progress)
        finally:
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "model.safetensors").exists()
    pieces = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*/piece-*")}
    assert len(pieces) == 3
    progress: list[DraftProgress] = []
    train_draft(*models, CORPUS, tmp_path, SMALL, threads=1, on_progress=progress.append)
    assert next(p.done for p in progress if p.stage == "train") == 4, (
        "training resumed from the checkpoint of step 4"
    )
    assert {path: path.stat().st_mtime_ns for path in pieces} == pieces, "no answer was sampled again"
    assert same(weights(tmp_path), weights(whole[0]))


def test_interrupted_sampling_resumes_to_the_same_answers(models, whole, tmp_path) -> None:
    def on_progress(progress: DraftProgress) -> None:
        if (progress.stage, progress.done) == ("sample", 64):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_draft(*models, CORPUS, tmp_path, SMALL, on_progress=on_progress)
    assert [path.name for path in (tmp_path / "work" / "train").iterdir()] == ["piece-00000.safetensors"]
    train_draft(*models, CORPUS, tmp_path, replace(SMALL))
    for path in (whole[0] / "work").glob("*/piece-*"):
        other = tmp_path / "work" / path.parent.name / path.name
        assert same(load_file(path), load_file(other))


def test_a_run_reports_progress_and_lowers_the_loss(whole) -> None:
    _, progress = whole
    assert [(p.stage, p.done) for p in progress[:3]] == [("sample", 64), ("sample", 80), ("sample", 6)]
    training = [p for p in progress if p.stage == "train"]
    assert [p.done for p in training] == list(range(13))
    assert all(p.left_s is not None and p.left_s >= 0 for p in training[1:])
    assert training[-1].loss is not None
    assert training[1].loss is not None
    assert training[-1].loss < 0.8 * training[1].loss
    first, last = training[0].agreement, training[-1].agreement
    assert first is not None
    assert last is not None
    assert last.drawn > first.drawn
    assert 0 <= first.greedy <= 1
    assert first.tokens_per_round >= 1


def test_measured_tokens_per_round_agree_with_the_engines(models, whole) -> None:
    """The engine runs greedy rounds of four drafted tokens on the held-out prompts."""
    target, out = models[0], whole[0]
    rows = load_file(out / "work" / "heldout" / "piece-00000.safetensors")
    rounds = tokens = 0
    with load(target, out) as engine:
        for i in range(len(rows["ids"])):
            if not rows["greedy"][i]:
                continue
            prompt = rows["ids"][i, : rows["begun"][i]].tolist()
            answer = engine.generate(prompt, max_tokens=20, draft_length=4, temperature=0)
            wanted = rows["ids"][i, rows["begun"][i] : rows["lengths"][i]].tolist()
            assert answer.token_ids == wanted
            rounds += answer.speculation.steps
            tokens += len(wanted) - 1  # the prefill gives the first one
    agreement = whole[1][-1].agreement
    assert agreement is not None
    assert agreement.tokens_per_round == pytest.approx(tokens / rounds, rel=0.35)


def test_checkpoints_can_be_loaded_by_the_engine(models, whole) -> None:
    target, out = models[0], whole[0]
    (folder,) = (out / "work").glob("checkpoint-*")
    assert folder.name == "checkpoint-000012"
    assert same(weights(folder), weights(out))
    with load(target, folder) as engine:
        wanted = engine.generate("def f1(x):", max_tokens=20, method="plain").token_ids
        assert engine.generate("def f1(x):", max_tokens=20, method="draft").token_ids == wanted


def test_the_draft_is_saved_in_its_original_dtype(models, tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    half = tmp_path / "half"
    AutoModelForCausalLM.from_pretrained(models[1], dtype=torch.bfloat16).save_pretrained(half)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (half / name).write_bytes((models[1] / name).read_bytes())
    before = weights(half)
    train_draft(models[0], half, CORPUS, tmp_path / "out", replace(SMALL, steps=2, prompts=8, heldout=2))
    assert {tensor.dtype for tensor in weights(tmp_path / "out").values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    assert same(weights(half), before), "the source is unchanged"


@pytest.mark.parametrize(
    "changes", [{"loss": "hard"}, {"loss": "tv"}, {"precision": "float16"}, {"accumulate": 2}]
)
def test_training_lowers_every_loss_in_every_precision(models, tmp_path, changes) -> None:
    progress: list[DraftProgress] = []
    recipe = replace(SMALL, prompts=16, heldout=2, steps=10, **changes)
    train_draft(*models, CORPUS, tmp_path, recipe, on_progress=progress.append)
    losses = [p.loss for p in progress if p.loss is not None]
    assert losses[-1] < losses[0]


def rows_of(seed: int = 0) -> TargetAnswers:
    ids = torch.randint(2, 300, (8, 20), generator=torch.Generator().manual_seed(seed))
    lengths = torch.tensor([20, 9] * 4)
    return TargetAnswers(ids, torch.full((8,), 5), lengths, torch.tensor([True, True, False, False] * 2))


def training_run(models, tmp_path, **changes) -> DraftTrainingRun:
    from specclient_local.model.hf.checkpoint import load_net, read_hf_config

    target, draft = (load_net(folder, read_hf_config(folder), "float32", "cpu") for folder in models)
    (tmp_path / "work").mkdir(exist_ok=True)
    checkpoints = DraftCheckpoints(tmp_path / "work", models[1])
    return DraftTrainingRun(
        replace(SMALL, **changes), draft, target, rows_of(), rows_of(1), checkpoints=checkpoints
    )


def test_accumulated_gradients_equal_those_of_one_pass(models, tmp_path) -> None:
    """This holds if all rows have the same length."""
    grads = []
    for batch, accumulate in ((8, 1), (8, 2)):
        run = training_run(models, tmp_path, batch=batch, accumulate=accumulate)
        step, seen = run._optimizers[0].step, []
        run._optimizers[0].step = lambda *a, s=step, r=run, g=seen: (  # type: ignore[method-assign]
            g.append([p.grad.clone() for p in r.draft.parameters()]),
            s(*a),
        )
        run.step(0)
        grads.append(seen[0])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_positions_after_an_answer_do_not_affect_loss_or_figures(models, tmp_path) -> None:
    run = training_run(models, tmp_path)
    rows = run._unseen
    spoilt = TargetAnswers(rows.ids.clone(), rows.begun, rows.lengths, rows.greedy)
    spoilt.ids[1, 9:] = 7
    torch.testing.assert_close(run._loss(rows), run._loss(spoilt))
    before = run.measure()
    run._unseen = spoilt
    assert run.measure() == before


def test_a_non_finite_loss_stops_the_run_with_the_last_good_checkpoint(models, tmp_path) -> None:
    run = training_run(models, tmp_path, every=2)
    learn = run._loss
    calls = iter(range(100))
    run._loss = lambda rows: learn(rows) * (math.nan if next(calls) == 5 else 1.0)  # type: ignore[method-assign]
    with pytest.raises(
        EngineError, match=r"loss is nan.* at step 6; the last good checkpoint, of step 4"
    ) as error:
        run.train(lambda _: None, lambda: 0.0)
    folder = run._checkpoints.folder(4)
    assert str(folder) in str(error.value)
    assert all(tensor.isfinite().all() for tensor in weights(folder).values())


def test_a_full_disk_stops_the_run_with_the_previous_checkpoint(models, tmp_path) -> None:
    room = iter([10**9, 1000])
    run = training_run(models, tmp_path)
    run._checkpoints = DraftCheckpoints(tmp_path / "work", models[1], free=lambda _: next(room))
    with pytest.raises(
        EngineError, match=r"needs \d\.\d MB, and 0\.0 MB are free; the one of step 4 is complete"
    ):
        run.train(lambda _: None, lambda: 0.0)
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["checkpoint-000004"]


def test_an_unreadable_checkpoint_raises_with_its_name(models, tmp_path) -> None:
    run = training_run(models, tmp_path)
    run._save(4)
    (run._checkpoints.folder(4) / "training.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match="checkpoint-000004 cannot be read"):
        training_run(models, tmp_path)._resume()


def test_a_draft_with_another_vocabulary_is_rejected(models, tmp_path) -> None:
    other = write_checkpoint(tmp_path / "other", tokenizer=byte_tokenizer(270), vocab_size=270)
    with pytest.raises(CheckpointError, match="vocabularies differ"):
        train_draft(models[0], other, CORPUS, tmp_path / "out", SMALL)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("corpus", "changes", "named"),
    [
        (PromptCorpus([""], [""], whole=True), {}, "no prompt could be made of 1 texts"),
        (CORPUS, {"sampling": AnswerSampling(prompt=64, new=100)}, "exceed the context of 128"),
    ],
)
def test_invalid_corpora_and_settings_are_rejected(models, tmp_path, corpus, changes, named) -> None:
    with pytest.raises(ConfigurationError, match=named):
        train_draft(*models, corpus, tmp_path, replace(SMALL, **changes))


def test_a_work_folder_of_another_run_is_rejected(models, whole, tmp_path) -> None:
    for corpus, recipe in ((CORPUS, replace(SMALL, lr=1.0)), (replace(CORPUS, texts=TEXTS[2:]), SMALL)):
        with pytest.raises(ConfigurationError, match="holds a run with other settings or texts"):
            train_draft(*models, corpus, whole[0], recipe)
    with pytest.raises(ConfigurationError, match="draft is None"):
        train_draft(models[0], None, CORPUS, tmp_path, SMALL)


def test_the_bundled_target_is_trained_with_its_bundled_draft(tmp_path, monkeypatch) -> None:
    checked: list[Path] = []
    monkeypatch.setattr(distilling, "_check_fit", lambda *folders: checked.extend(folders[:2]) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_draft("demo", None, CORPUS, tmp_path, SMALL)
    assert [path.name for path in checked] == ["target", "draft"]
