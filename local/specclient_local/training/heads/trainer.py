"""Train heads for a frozen target: collect its answers, train, measure, save.

A work folder keeps the collected answers and the checkpoints. An interrupted run resumes with the same
command, and its result is the same as without the interruption.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from specclient.errors import ConfigurationError, EngineError
from specclient_local.loading.engine_loader import threads_for
from specclient_local.loading.model_loader import ModelPlacement, load_model, uses_own_decoder
from specclient_local.model.config import BUNDLED, DecoderConfig, read_config
from specclient_local.model.devices import resolve_device
from specclient_local.model.heads.checkpoint import MedusaCheckpoint, read_heads
from specclient_local.model.heads.eagle_checkpoint import EagleCheckpoint, with_taps
from specclient_local.model.heads.medusa_weights import MedusaShape, MedusaWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.heads.writer import write_eagle, write_medusa
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.torch_threads import computing_with
from specclient_local.model.weights import resolve_checkpoint
from specclient_local.training.heads.dataset import CollectedAnswers, collect, cut_line_prompts
from specclient_local.training.heads.learners import (
    MOST_DEPTH,
    EagleLearner,
    FrozenTarget,
    HeadsLearner,
    MedusaLearner,
    heads_loss,
    replayed_acceptance,
)
from specclient_local.training.heads.parallel_learner import ParallelEagleLearner
from specclient_local.training.heads.recipe import (
    HeadsProgress,
    HeadsRecipe,
    eagle_shape,
    parallel_shape,
)
from specclient_local.training.time_left import TimeLeft
from specclient_local.training.training_loop import TrainingSchedule, optimizers
from specclient_local.training.work_folder import claim_work_folder

_MEASURED_DEPTH = 5
"""Largest depth at which acceptance is measured."""

_OUTPUT_HEAD_RATE = 1 / 6
"""Learning rate of an EAGLE-3 head's output head, relative to the others: it starts as the target's."""


def train_heads(
    target: str | Path,
    texts: Sequence[str],
    heldout: Sequence[str],
    out: Path,
    recipe: HeadsRecipe,
    *,
    work: Path | None = None,
    device: str = "auto",
    on_progress: Callable[[HeadsProgress], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> HeadsProgress:
    """Train heads for a frozen target, and save them with :mod:`specclient_local.model.heads.writer`.

    Args:
        target: folder or hub id of a model whose family the engine's own decoder supports.
        texts: files from which prompts are cut.
        heldout: further files for measurements.
        out: folder for the heads.
        recipe: the settings of the run.
        work: folder for answers and checkpoints; ``out``/work by default. A run resumes from its own.
        device: as in :class:`specclient_local.loading.options.EngineOptions`.
        on_progress: called with the progress of the run.
        clock: returns monotonic seconds.

    Returns:
        The progress at the end, with the last measurement.

    Raises:
        CheckpointError: the target is invalid.
        ConfigurationError: the target's family is not supported, prompts are too short, prompts and answers
            exceed the context, taps are invalid, or the work folder belongs to another run.
        EngineError: a file cannot be written, or the loss is not finite.
    """
    folder, work = resolve_checkpoint(target), work or out / "work"
    runner = _load_target(folder, recipe, device)
    shared = _cloned(runner.shared_weights())
    claim_work_folder(work, {"target": str(folder.resolve()), **asdict(recipe)}, texts, heldout)
    tokenizer, timer, length = Tokenizer(folder), TimeLeft(clock), recipe.collecting.prompt
    with computing_with(threads_for(runner.config)):
        training, unseen = (
            collect(
                runner,
                cut_line_prompts(tokenizer, files, count, tokens=length, seed=recipe.seed),
                work / name,
                recipe.collecting,
                greedy=name == "heldout",
                on_progress=lambda done, of: on_progress(
                    HeadsProgress("collect", done, of, left_s=timer.left(done, of))
                ),
            )
            for name, files, count in (("train", texts, recipe.prompts), ("heldout", heldout, recipe.heldout))
        )
    torch.manual_seed(recipe.seed)
    learner = _new_learner(recipe, runner, shared, training).to(runner.device)
    run = HeadsTrainingRun(recipe, learner, FrozenTarget(shared, learner.ids), training, unseen)
    last = run.train(work / "state.pt", on_progress, clock)
    _save_heads(out, learner, f"bundled:{folder.name}" if folder.parent == BUNDLED else str(target))
    return last


class HeadsTrainingRun:
    """Trains heads on the answers of their target.

    Args:
        recipe: the settings of the run.
        learner: the heads.
        teacher: their target.
        training: answers to learn from.
        unseen: held-out greedy answers for measurements.
    """

    def __init__(
        self,
        recipe: HeadsRecipe,
        learner: HeadsLearner,
        teacher: FrozenTarget,
        training: CollectedAnswers,
        unseen: CollectedAnswers,
    ) -> None:
        self.recipe, self.learner, self.teacher = recipe, learner, teacher
        self._training, self._unseen = training, unseen
        self._device = teacher.shared.embedding.device
        warmup = min(30, max(1, recipe.steps // 10))
        self._schedule = TrainingSchedule(recipe.steps, recipe.rate, warmup=warmup)
        self._optimizers = _optimizers(learner, self._schedule)
        self.losses: list[float] = []

    def train(
        self, checkpoint: Path, on_progress: Callable[[HeadsProgress], None], clock: Callable[[], float]
    ) -> HeadsProgress:
        """Run the schedule from the checkpoint on, if there is one; return the progress at the end.

        Raises:
            EngineError: the loss is not finite.
        """
        recipe, first = self.recipe, self._resume(checkpoint)
        timer, accepted = TimeLeft(clock), self.measure()
        on_progress(HeadsProgress("train", first, recipe.steps, None, accepted))
        timer.left(first, recipe.steps)
        for step in range(first, recipe.steps):
            self.losses = [*self.losses[-19:], self.step(step)]
            done = step + 1
            if not math.isfinite(self.losses[-1]):
                raise EngineError(
                    f"the loss is {self.losses[-1]} at step {done}; train with a learning rate below "
                    f"{recipe.rate}, in another work folder."
                )
            if done % recipe.every == 0 or done == recipe.steps:
                accepted = self.measure()
                self._save(checkpoint, done)
            loss = sum(self.losses) / len(self.losses)
            left = timer.left(done, recipe.steps)
            on_progress(HeadsProgress("train", done, recipe.steps, loss, accepted, left))
        return HeadsProgress("train", recipe.steps, recipe.steps, None, accepted, 0.0)

    def step(self, number: int) -> float:
        """Run one optimizer step; its number alone determines the rows used. Return the mean loss."""
        recipe = self.recipe
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._schedule.at(number) * group.get("share", 1.0)
        rng = np.random.default_rng((recipe.seed, number))
        generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + number)
        total = 0.0
        for _ in range(recipe.accumulate):
            size = min(recipe.rows, len(self._training))
            numbers = rng.choice(len(self._training), size, replace=False).tolist()
            rows = self._training.rows(numbers, self._device)
            with self._autocast():
                loss = heads_loss(self.learner, self.teacher, rows, generator) / recipe.accumulate
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        nn.utils.clip_grad_norm_(self.learner.parameters(), self._schedule.clip)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total

    def measure(self) -> tuple[float, ...]:
        """Return the share of rounds accepted up to each depth, on the held-out answers."""
        most = self.learner.depth if isinstance(self.learner, MedusaLearner) else MOST_DEPTH
        depth = min(_MEASURED_DEPTH, most)
        begin, counts = self.recipe.collecting.prompt, torch.zeros(1 + depth)
        for first in range(0, len(self._unseen), self.recipe.rows):
            numbers = range(first, min(first + self.recipe.rows, len(self._unseen)))
            rows = self._unseen.rows(numbers, self._device)
            with self._autocast():
                counts += replayed_acceptance(self.learner, rows, begin, depth).cpu()
        return tuple((counts[1:] / counts[0].clamp(min=1.0)).tolist())

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self._device.type, dtype=torch.bfloat16, enabled=self.recipe.precision == "bfloat16"
        )

    def _save(self, path: Path, done: int) -> None:
        """Write a checkpoint atomically."""
        partial = path.with_suffix(".partial")
        held = [optimizer.state_dict() for optimizer in self._optimizers]
        saved = {"done": done, "losses": self.losses, "learner": self.learner.state_dict(), "held": held}
        torch.save(saved, partial)
        partial.replace(path)

    def _resume(self, path: Path) -> int:
        """Load the checkpoint, if there is one; return the number of its finished steps."""
        if not path.exists():
            return 0
        saved = torch.load(path, weights_only=True)
        self.learner.load_state_dict(saved["learner"])
        for optimizer, held in zip(self._optimizers, saved["held"], strict=True):
            optimizer.load_state_dict(held)
        self.losses = list(saved["losses"])
        return int(saved["done"])


def _optimizers(learner: HeadsLearner, schedule: TrainingSchedule) -> list[torch.optim.Optimizer]:
    """Return the optimizers. A group's learning rate is its ``share`` of the schedule's."""
    muon, adam = optimizers(learner, schedule)
    output_head = dict(learner.named_parameters()).get("lm_head")
    if output_head is not None:
        (group,) = adam.param_groups
        group["params"] = [parameter for parameter in group["params"] if parameter is not output_head]
        adam.add_param_group({"params": [output_head], "share": _OUTPUT_HEAD_RATE})
    return [muon, adam]


def _load_target(folder: Path, recipe: HeadsRecipe, device: str) -> HiddenStateRunner:
    """Load the target with one slot per answer of a batch."""
    if not uses_own_decoder(folder, "auto"):
        raise ConfigurationError(
            f"target is {str(folder)!r}, whose family the engine's own decoder does not support; heads can "
            "be trained only for models that it runs. Choose another target, or train a draft model."
        )
    config, settings = read_config(folder), recipe.collecting
    length = settings.prompt + settings.new
    if length + 1 > config.context:
        raise ConfigurationError(
            f"prompts of {settings.prompt} tokens and answers of {settings.new} exceed the target's context "
            f"of {config.context}; make them shorter."
        )
    taps = _tapped_layers(recipe, config)
    taps = tuple(sorted({*taps, config.layers}))
    placement = ModelPlacement("float32", str(resolve_device(device)))
    runner = load_model(folder, placement, slots=32, context=length + 1, taps=taps)
    assert isinstance(runner, HiddenStateRunner)
    return runner


def _tapped_layers(recipe: HeadsRecipe, config: DecoderConfig) -> tuple[int, ...]:
    """Return the depths at which the recipe's heads read the target, besides its last layer."""
    if recipe.start is not None:
        return _starting_head(recipe.start, config).shape.tapped(config.layers)
    return eagle_shape(recipe, config).tapped(config.layers) if recipe.kind in ("eagle3", "peagle") else ()


def _starting_head(folder: str, target: DecoderConfig) -> EagleCheckpoint:
    """Return the EAGLE-3 head with which a P-EAGLE head starts, with explicit taps.

    Raises:
        CheckpointError: see :func:`specclient_local.model.heads.checkpoint.read_heads`.
        ConfigurationError: the folder has heads of another kind.
    """
    found = read_heads(resolve_checkpoint(folder), target)
    if isinstance(found, MedusaCheckpoint) or found.shape.kind != "eagle3" or found.shape.parallel:
        raise ConfigurationError(
            f"start is {folder!r}, which is no EAGLE-3 head; a P-EAGLE head starts with one. Name another "
            "folder, or leave it out."
        )
    return replace(found, shape=with_taps(found.shape, target))


def _cloned(shared: SharedTargetWeights) -> SharedTargetWeights:
    """Return copies that autograd can use; a loaded model's own are inference tensors, which it cannot."""
    return SharedTargetWeights(shared.embedding.clone(), shared.norm.clone(), shared.head.clone(), shared.eps)


def _new_learner(
    recipe: HeadsRecipe, target: HiddenStateRunner, shared: SharedTargetWeights, training: CollectedAnswers
) -> HeadsLearner:
    """Return untrained heads of the recipe's kind."""
    config, settings = target.config, recipe.collecting
    if recipe.kind == "medusa":
        medusa = MedusaShape(recipe.depths, recipe.blocks, config.hidden_size, config.vocab_size, True)
        return MedusaLearner(medusa, shared)
    depth, length = recipe.depths, settings.prompt + settings.new
    if recipe.kind == "eagle":
        return EagleLearner(eagle_shape(recipe, config), shared, None, depth=depth, length=length)
    start = None if recipe.start is None else _starting_head(recipe.start, config)
    if start is not None:
        every = torch.arange(config.vocab_size)
        ids = every if start.weights.ids is None else start.weights.ids
        shape = parallel_shape(start.shape, recipe, config)
    else:
        ids = _most_frequent(training, config.vocab_size, recipe.draft_vocab)
        shape = eagle_shape(recipe, config, len(ids))
    ids = ids.to(target.device)
    if not shape.parallel:
        return EagleLearner(shape, shared, ids, depth=depth, length=length)
    first = None if start is None else start.weights
    return ParallelEagleLearner(shape, shared, ids, depth=depth, length=length, start=first)


def _most_frequent(training: CollectedAnswers, vocab: int, count: int) -> Tensor:
    """Return the ``count`` most frequent tokens of prompts and answers, in ascending order of id."""
    counts = torch.zeros(vocab, dtype=torch.int64)
    for ids in training.tokens():
        counts += torch.bincount(ids.flatten(), minlength=vocab)
    return counts.argsort(descending=True, stable=True)[: min(count, vocab)].sort().values


def _save_heads(out: Path, learner: HeadsLearner, target: str) -> None:
    """Save the heads in bfloat16."""
    weights = learner.weights()
    if isinstance(weights, MedusaWeights):
        assert isinstance(learner, MedusaLearner)
        write_medusa(out, learner.shape, weights, target, dtype=torch.bfloat16)
        return
    assert isinstance(learner, EagleLearner | ParallelEagleLearner)
    write_eagle(out, learner.shape, weights, target, guesses=learner.depth, dtype=torch.bfloat16)
