"""Turn a frozen target and texts into trained heads: collect, learn, measure, save; goes on after a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from specclient.errors import ConfigurationError
from specclient_local.loading.engine_loader import computing_with, threads_for
from specclient_local.loading.model_loader import ModelPlacement, load_model, uses_own_decoder
from specclient_local.model.config import BUNDLED, DecoderConfig, Rope, read_config
from specclient_local.model.devices import resolve_device
from specclient_local.model.heads.eagle_weights import EagleShape
from specclient_local.model.heads.medusa_weights import MedusaShape, MedusaWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.heads.writer import write_eagle, write_medusa
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.weights import resolve_checkpoint
from specclient_local.training.heads.dataset import CollectedAnswers, CollectionSettings, collect
from specclient_local.training.heads.learners import (
    MOST_DEPTH,
    EagleLearner,
    FrozenTarget,
    HeadsLearner,
    MedusaLearner,
    heads_loss,
    replayed_acceptance,
)
from specclient_local.training.training_loop import TrainingSchedule, optimizers

HeadsKind = Literal["medusa", "eagle", "eagle3"]
KINDS: tuple[HeadsKind, ...] = ("medusa", "eagle", "eagle3")

_MEASURED = 5
"""Guesses of a round of which acceptance is measured."""

_RATES: dict[HeadsKind, float] = {"medusa": 2e-2, "eagle": 3e-3, "eagle3": 3e-3}
"""Peak learning rates: Medusa's blocks begin as nothing, and have the target's own head to turn."""

_ROWS: dict[HeadsKind, int] = {"medusa": 32, "eagle": 16, "eagle3": 16}
"""Rows of a pass."""

_DEPTHS: dict[HeadsKind, int] = {"medusa": 6, "eagle": 4, "eagle3": 4}
"""Medusa's heads, whose later ones cost no passes, and guesses that EAGLE heads follow."""

_READING = 1 / 6
"""Of that rate, what an EAGLE-3 head's own rows of the vocabulary learn at: they begin trained."""


@dataclass(frozen=True, slots=True)
class HeadsRecipe:
    """Every number a run depends on.

    Attributes:
        kind: what is trained.
        steps: optimizer steps; on the bundled target what fits into a quarter of an hour of one core.
        batch: rows of a pass, None for what suits the kind; ``accumulate`` passes make a step.
        lr: peak learning rate; None for what suits the kind.
        depth: Medusa's heads, or how many guesses an EAGLE head follows while it learns; None for what suits
            the kind.
        blocks: residual blocks of a Medusa head.
        ff: an EAGLE head's feed-forward width; None for half of the target's.
        draft_vocab: tokens of an EAGLE-3 head's own; the most frequent of the answers.
        taps: after how many of the target's layers EAGLE-3 reads; None for its embedding, its middle and all
            but its last layer. Heads that read the embedding (0) begin by repeating what was read.
        prompts: answers collected; ``heldout`` more are measured on.
        collecting: how.
        precision: what passes compute in: ``bfloat16`` or ``float32``; weights stay in float32.
        seed: of parameters and of what is drawn.
        every: steps between measurements, each followed by a checkpoint.
    """

    kind: HeadsKind
    steps: int = 900
    batch: int | None = None
    accumulate: int = 1
    lr: float | None = None
    depth: int | None = None
    blocks: int = 1
    ff: int | None = None
    draft_vocab: int = 2048
    taps: tuple[int, ...] | None = None
    prompts: int = 3072
    heldout: int = 96
    collecting: CollectionSettings = CollectionSettings()
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    seed: int = 0
    every: int = 50

    @property
    def rate(self) -> float:
        """The peak learning rate."""
        return _RATES[self.kind] if self.lr is None else self.lr

    @property
    def levels(self) -> int:
        """Medusa's heads, or guesses that are followed."""
        return _DEPTHS[self.kind] if self.depth is None else self.depth

    @property
    def rows(self) -> int:
        """Rows of a pass."""
        return _ROWS[self.kind] if self.batch is None else self.batch


@dataclass(frozen=True, slots=True)
class HeadsProgress:
    """How far a run is.

    Attributes:
        stage: ``collect`` or ``train``.
        done, of: prompts answered, or steps done.
        loss: mean of the last steps; None while collecting.
        accepted: share of rounds that go right up to each depth, of held-out greedy answers.
        left_s: about how many seconds the stage still takes; None at its beginning.
    """

    stage: Literal["collect", "train"]
    done: int
    of: int
    loss: float | None = None
    accepted: tuple[float, ...] = ()
    left_s: float | None = None

    @property
    def tokens_per_round(self) -> float:
        """Tokens a round of greedy chains wins, the target's own included."""
        return 1.0 + sum(self.accepted)


def train_heads(
    target: str | Path,
    texts: Sequence[str],
    heldout: Sequence[str],
    out: Path,
    recipe: HeadsRecipe,
    *,
    work: Path | None = None,
    device: str = "auto",
    told: Callable[[HeadsProgress], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> HeadsProgress:
    """Train heads of a frozen target, and save them as :mod:`specclient_local.model.heads.writer` does.

    Args:
        target: folder or hub id; the own decoder must know its family.
        texts: what its answers begin with.
        heldout: the same for measuring.
        out: folder for the heads.
        recipe: every number of the run.
        work: where pieces and checkpoints are; ``out``/work by default. A run that finds its own goes on.
        device: as in :meth:`specclient_local.engine.engine.Engine.load`.
        told: hears how far the run is.
        clock: monotonic seconds.

    Returns:
        The last measurement.

    Raises:
        CheckpointError: of the target.
        ConfigurationError: prompts too short, or a work folder of another run.
    """
    folder, work = resolve_checkpoint(target), work or out / "work"
    runner = _target(folder, recipe, device)
    lent, where = _frozen(runner.shared_weights()), runner.device
    _claim(work, recipe, folder)
    tokenizer, steps = Tokenizer(folder), _HeadsTimeLeft(clock)
    with computing_with(threads_for(runner.config)):
        pieces, unseen = (
            collect(
                runner,
                _prompts(tokenizer, given, count, recipe),
                work / name,
                recipe.collecting,
                greedy=name == "heldout",
                told=lambda done, of: told(HeadsProgress("collect", done, of, left_s=steps.left(done, of))),
            )
            for name, given, count in (("train", texts, recipe.prompts), ("heldout", heldout, recipe.heldout))
        )
    torch.manual_seed(recipe.seed)
    learner = _learner(recipe, runner, lent, pieces).to(where)
    run = HeadsTrainingRun(recipe, learner, FrozenTarget(lent, learner.ids), pieces, unseen)
    last = run.train(work / "state.pt", told, clock)
    _save(out, learner, f"bundled:{folder.name}" if folder.parent == BUNDLED else str(target))
    return last


class HeadsTrainingRun:
    """Heads, what they learn from, and how."""

    def __init__(
        self,
        recipe: HeadsRecipe,
        learner: HeadsLearner,
        teacher: FrozenTarget,
        pieces: CollectedAnswers,
        unseen: CollectedAnswers,
    ) -> None:
        self.recipe, self.learner, self.teacher = recipe, learner, teacher
        self._pieces, self._unseen = pieces, unseen
        self._device = teacher.lent.embedding.device
        warmup = min(30, max(1, recipe.steps // 10))
        self._schedule = TrainingSchedule(recipe.steps, recipe.rate, warmup=warmup)
        self._optimizers = _optimizers(learner, self._schedule)
        self.losses: list[float] = []

    def train(
        self, state: Path, told: Callable[[HeadsProgress], None], clock: Callable[[], float]
    ) -> HeadsProgress:
        """Run the schedule from where a checkpoint left it; return the last measurement."""
        recipe, first = self.recipe, self._resume(state)
        timer, accepted = _HeadsTimeLeft(clock, first), self.measure()
        told(HeadsProgress("train", first, recipe.steps, None, accepted))
        for step in range(first, recipe.steps):
            self.losses = [*self.losses[-19:], self.step(step)]
            done = step + 1
            if not math.isfinite(self.losses[-1]):
                raise FloatingPointError(f"the loss is {self.losses[-1]} at step {step}; lower the rate")
            if done % recipe.every == 0 or done == recipe.steps:
                accepted = self.measure()
                self._keep(state, done)
            loss = sum(self.losses) / len(self.losses)
            left = timer.left(done, recipe.steps)
            told(HeadsProgress("train", done, recipe.steps, loss, accepted, left))
        return HeadsProgress("train", recipe.steps, recipe.steps, None, accepted, 0.0)

    def step(self, number: int) -> float:
        """Learn from some rows, drawn by the step's number alone; return the mean loss."""
        recipe = self.recipe
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._schedule.at(number) * group.get("share", 1.0)
        dice = np.random.default_rng((recipe.seed, number))
        places = torch.Generator().manual_seed(recipe.seed * 1_000_003 + number)
        total = 0.0
        for _ in range(recipe.accumulate):
            size = min(recipe.rows, len(self._pieces))
            rows = self._pieces.rows(
                dice.choice(len(self._pieces), size, replace=False).tolist(), self._device
            )
            with self._autocast():
                loss = heads_loss(self.learner, self.teacher, rows, places) / recipe.accumulate
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        nn.utils.clip_grad_norm_(self.learner.parameters(), self._schedule.clip)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total

    def measure(self) -> tuple[float, ...]:
        """Return the share of held-out rounds that go right up to each depth."""
        depth = min(_MEASURED, self.learner.depth if isinstance(self.learner, MedusaLearner) else MOST_DEPTH)
        begin, found = self.recipe.collecting.prompt, torch.zeros(1 + depth)
        for first in range(0, len(self._unseen), self.recipe.rows):
            numbers = range(first, min(first + self.recipe.rows, len(self._unseen)))
            rows = self._unseen.rows(numbers, self._device)
            with self._autocast():
                found += replayed_acceptance(self.learner, rows, begin, depth).cpu()
        return tuple((found[1:] / found[0].clamp(min=1.0)).tolist())

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self._device.type, dtype=torch.bfloat16, enabled=self.recipe.precision == "bfloat16"
        )

    def _keep(self, path: Path, done: int) -> None:
        """Write a checkpoint, whole or not at all."""
        partial = path.with_suffix(".partial")
        held = [optimizer.state_dict() for optimizer in self._optimizers]
        saved = {"done": done, "losses": self.losses, "learner": self.learner.state_dict(), "held": held}
        torch.save(saved, partial)
        partial.replace(path)

    def _resume(self, path: Path) -> int:
        """Take what a checkpoint holds; return how many steps it had done."""
        if not path.exists():
            return 0
        saved = torch.load(path, weights_only=True)
        self.learner.load_state_dict(saved["learner"])
        for optimizer, held in zip(self._optimizers, saved["held"], strict=True):
            optimizer.load_state_dict(held)
        self.losses = list(saved["losses"])
        return int(saved["done"])


def _optimizers(learner: HeadsLearner, schedule: TrainingSchedule) -> list[torch.optim.Optimizer]:
    """Return what changes parameters; a group's rate is its ``share`` of the schedule's."""
    muon, adam = optimizers(learner, schedule)
    own = dict(learner.named_parameters()).get("lm_head")
    if own is not None:
        (group,) = adam.param_groups
        group["params"] = [parameter for parameter in group["params"] if parameter is not own]
        adam.add_param_group({"params": [own], "share": _READING})
    return [muon, adam]


class _HeadsTimeLeft:
    """How long what is left takes, at the pace so far."""

    def __init__(self, clock: Callable[[], float], first: int = 0) -> None:
        self._clock, self._first = clock, first
        self._begun, self._of = clock(), -1

    def left(self, done: int, of: int) -> float | None:
        """Return seconds; None before anything was done, and at another stage's beginning."""
        if of != self._of:
            self._begun, self._of, self._first = self._clock(), of, done if self._of >= 0 else self._first
        passed = done - self._first
        return None if passed <= 0 else (self._clock() - self._begun) / passed * (of - done)


def _target(folder: Path, recipe: HeadsRecipe, device: str) -> HiddenStateRunner:
    """Load the target with a slot for each answer of a batch."""
    if not uses_own_decoder(folder, "auto"):
        raise ConfigurationError(
            f"target is {str(folder)!r}, whose family the own decoder does not know; heads are trained on "
            "targets that it runs."
        )
    config, how = read_config(folder), recipe.collecting
    length = how.prompt + how.new
    if length + 1 > config.context:
        raise ConfigurationError(
            f"prompt {how.prompt} and new {how.new} exceed the target's context of {config.context}."
        )
    taps = _shape(recipe, config).tapped(config.layers) if recipe.kind == "eagle3" else ()
    taps = tuple(sorted({*taps, config.layers}))
    placed = ModelPlacement("float32", str(resolve_device(device)))
    runner = load_model(folder, placed, slots=32, context=length + 1, taps=taps)
    assert isinstance(runner, HiddenStateRunner)
    return runner


def _frozen(lent: SharedTargetWeights) -> SharedTargetWeights:
    """Return copies that gradients may pass: what a model is loaded into may not."""
    return SharedTargetWeights(lent.embedding.clone(), lent.norm.clone(), lent.head.clone(), lent.eps)


def _shape(recipe: HeadsRecipe, target: DecoderConfig, draft_vocab: int = 0) -> EagleShape:
    """Return what an EAGLE head of a target is like: its layer, with plain rotations."""
    layer = replace(
        target,
        model_type="llama",
        layers=1,
        sliding=(False,),
        window=None,
        intermediate_size=recipe.ff or max(1, target.intermediate_size // 2),
        rope=Rope(theta=target.rope.theta),
        tied=False,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
    )
    kind: Literal["eagle", "eagle3"] = "eagle3" if recipe.kind == "eagle3" else "eagle"
    read = recipe.taps or (0, (target.layers + 1) // 2, target.layers - 1)
    shape = EagleShape(kind, layer, target.hidden_size, read if kind == "eagle3" else None, draft_vocab)
    taps = shape.tapped(target.layers)
    if kind == "eagle3" and (list(taps) != sorted(set(taps)) or taps[0] < 0 or taps[-1] >= target.layers):
        raise ConfigurationError(
            f"taps are {', '.join(map(str, taps))}; allowed are different numbers of layers from 0 to "
            f"{target.layers - 1}, ascending: name three that the target of {target.layers} layers has."
        )
    return shape


def _learner(
    recipe: HeadsRecipe, target: HiddenStateRunner, lent: SharedTargetWeights, pieces: CollectedAnswers
) -> HeadsLearner:
    config, how = target.config, recipe.collecting
    if recipe.kind == "medusa":
        shape = MedusaShape(recipe.levels, recipe.blocks, config.hidden_size, config.vocab_size, True)
        return MedusaLearner(shape, lent)
    ids = _frequent(pieces, config.vocab_size, recipe.draft_vocab) if recipe.kind == "eagle3" else None
    ids = None if ids is None else ids.to(target.device)
    own = _shape(recipe, config, 0 if ids is None else len(ids))
    return EagleLearner(own, lent, ids, depth=recipe.levels, length=how.prompt + how.new)


def _frequent(pieces: CollectedAnswers, vocab: int, count: int) -> Tensor:
    """Return the tokens that answers have most often, ascending."""
    found = torch.zeros(vocab, dtype=torch.int64)
    for ids in pieces.tokens():
        found += torch.bincount(ids.flatten(), minlength=vocab)
    return found.argsort(descending=True, stable=True)[: min(count, vocab)].sort().values


def _prompts(tokenizer: Tokenizer, texts: Sequence[str], count: int, recipe: HeadsRecipe) -> list[list[int]]:
    """Cut prompts out of texts, each from a line on; the same ones for the same seed."""
    need, dice = recipe.collecting.prompt, np.random.default_rng(recipe.seed)
    lines = [text.splitlines(keepends=True) for text in texts]
    found: list[list[int]] = []
    for _ in range(20 * count):
        if len(found) == count or not lines:
            break
        chosen = lines[int(dice.integers(len(lines)))]
        begin = int(dice.integers(max(1, len(chosen) - 10)))
        ids = tokenizer.encode("".join(chosen[begin : begin + need]))[:need]
        if len(ids) == need:
            found.append(ids)
    return found


def _claim(work: Path, recipe: HeadsRecipe, target: Path) -> None:
    """See that a work folder is this run's, or nobody's."""
    work.mkdir(parents=True, exist_ok=True)
    own: dict[str, Any] = {"target": str(target.resolve()), **asdict(recipe)}
    said, path = repr(sorted(own.items())), work / "recipe.txt"
    if path.exists() and path.read_text(encoding="utf-8") != said:
        raise ConfigurationError(
            f"{work} holds a run with other settings; give the same ones, another folder, or delete it."
        )
    path.write_text(said, encoding="utf-8")


def _save(out: Path, learner: HeadsLearner, target: str) -> None:
    """Write the heads in bfloat16."""
    weights = learner.weights()
    if isinstance(weights, MedusaWeights):
        assert isinstance(learner, MedusaLearner)
        write_medusa(out, learner.shape, weights, target, dtype=torch.bfloat16)
        return
    assert isinstance(learner, EagleLearner)
    write_eagle(out, learner.shape, weights, target, guesses=learner.depth, dtype=torch.bfloat16)
