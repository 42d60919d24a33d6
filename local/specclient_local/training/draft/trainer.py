"""Train a draft to predict its target: sample the target's answers, distill, save.

A work folder keeps the sampled answers and the checkpoints. A run that was interrupted resumes with the same
command, and its result is the same as without the interruption.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specclient.errors import CheckpointError, ConfigurationError, EngineError
from specclient_local.engine.engine import Engine
from specclient_local.loading.configured_models import resolve_pair_name
from specclient_local.loading.engine_loader import computing_with, threads_for
from specclient_local.model.devices import resolve_device
from specclient_local.model.hf.checkpoint import load_net, read_hf_config
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.weights import resolve_checkpoint
from specclient_local.training.draft.checkpoints import DraftCheckpoints, publish
from specclient_local.training.draft.recipe import (
    DraftAgreement,
    DraftProgress,
    DraftRecipe,
    DraftTrainingResult,
    PromptCorpus,
)
from specclient_local.training.draft.samples import AnswerSampling, TargetAnswers, cut_prompts, sample
from specclient_local.training.losses import acceptance_chance, distillation_loss, replay_greedy
from specclient_local.training.training_loop import TrainingSchedule, optimizers

_DRAFTED = 4
"""Drafted tokens per round in replays of greedy speculation."""


def train_draft(
    target: str | Path,
    draft: str | Path | None,
    corpus: PromptCorpus,
    out: Path,
    recipe: DraftRecipe,
    *,
    work: Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    told: Callable[[DraftProgress], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> DraftTrainingResult:
    """Train a draft on its target's distribution, and save it as a Hugging Face folder.

    Args:
        target: folder or hub id of any causal model that transformers supports; ``demo`` is the bundled one.
        draft: folder or hub id of the initial draft, with the target's vocabulary; it is not modified.
            None is the bundled draft, with ``demo``.
        corpus: the texts from which prompts are taken.
        out: folder for the trained draft; :meth:`specclient_local.engine.engine.Engine.load` accepts it.
        recipe: the settings of the run.
        work: folder for answers and checkpoints; ``out``/work by default. A run resumes from its own.
        device: as in :meth:`specclient_local.engine.engine.Engine.load`.
        threads: torch threads; by default 1 for a small target, else torch's.
        told: called with the progress of the run.
        clock: returns monotonic seconds.

    Raises:
        CheckpointError: a model is invalid, or their vocabularies differ.
        ConfigurationError: there is no draft or no prompt, prompts and answers exceed the context, or the
            work folder belongs to another run.
        EngineError: the disk is full, or the loss is not finite; names the last checkpoint.
    """
    target, draft = resolve_pair_name(target, draft)
    if draft is None:
        raise ConfigurationError("draft is None; name the folder or hub id of the model to begin with.")
    folders, work = (resolve_checkpoint(target), resolve_checkpoint(draft)), work or out / "work"
    tokenizer, where = _fitting(*folders, recipe.sampling), resolve_device(device)
    _claim(work, recipe, corpus, folders)
    timer, config = _DraftTimeLeft(clock), read_hf_config(folders[0])
    own = threads or threads_for(config)
    with computing_with(own):
        learnt, unseen = (
            sample(
                lambda: _answering(folders[0], recipe.sampling, str(where), own),
                cut_prompts(tokenizer, texts, count, how, whole=corpus.whole),
                work / name,
                how,
                told=lambda done, of: told(DraftProgress("sample", done, of, left_s=timer.left(done, of))),
            )
            for name, texts, count, how in _samplings(recipe, corpus)
        )
        dtype = recipe.precision if where.type == "cuda" else "float32"
        teacher = load_net(folders[0], config, dtype, str(where))
        student = load_net(folders[1], read_hf_config(folders[1]), "float32", str(where))
        run = DraftTrainingRun(
            recipe, student, teacher, learnt, unseen, checkpoints=DraftCheckpoints(work, folders[1])
        )
        found = run.train(told, clock)
    publish(student, folders[1], out)
    return found


class DraftTrainingRun:
    """Trains a draft on the answers of its target."""

    def __init__(
        self,
        recipe: DraftRecipe,
        draft: PreTrainedModel,
        target: PreTrainedModel,
        learnt: TargetAnswers,
        unseen: TargetAnswers,
        *,
        checkpoints: DraftCheckpoints,
    ) -> None:
        self.recipe, self.draft, self.target = recipe, draft, target
        self._learnt, self._unseen, self._checkpoints = learnt, unseen, checkpoints
        self._device = draft.device
        draft.requires_grad_(requires_grad=True)
        warmup = min(recipe.warmup, max(1, recipe.steps // 2))
        self._schedule = TrainingSchedule(recipe.steps, recipe.lr, warmup=warmup)
        self._optimizers = optimizers(draft, self._schedule)
        # Small gradients underflow in float16: the scaler multiplies the loss, and skips steps that overflow.
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=recipe.precision == "float16")
        self._losses: list[float] = []

    def train(self, told: Callable[[DraftProgress], None], clock: Callable[[], float]) -> DraftTrainingResult:
        """Run the schedule from the last checkpoint on, and measure before and after.

        Raises:
            EngineError: a checkpoint cannot be written, or the loss or its gradient is not finite.
        """
        recipe, before = self.recipe, self.measure()
        first = self._resume()
        last, timer = before if first == 0 else self.measure(), _DraftTimeLeft(clock)
        told(DraftProgress("train", first, recipe.steps, self._mean(), last))
        timer.left(first, recipe.steps)
        for number in range(first, recipe.steps):
            self._losses = [*self._losses[-19:], self.step(number)]
            done = number + 1
            if done % recipe.every == 0 or done == recipe.steps:
                last = self.measure()
                self._keep(done)
            left = timer.left(done, recipe.steps)
            told(DraftProgress("train", done, recipe.steps, self._mean(), last, left))
        return DraftTrainingResult(before, last)

    def step(self, number: int) -> float:
        """Run one optimizer step; its number alone determines the answers used. Return the mean loss."""
        recipe, size = self.recipe, min(self.recipe.batch, len(self._learnt))
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._schedule.at(number)
        dice, total = np.random.default_rng((recipe.seed, number)), 0.0
        torch.manual_seed(recipe.seed * 1_000_003 + number)  # for drafts with dropout
        self.draft.train()
        for _ in range(recipe.accumulate):
            rows = self._learnt.rows(dice.choice(len(self._learnt), size, replace=False).tolist())
            loss = self._loss(rows) / recipe.accumulate
            total += loss.item()
            self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        for optimizer in self._optimizers:
            self._scaler.unscale_(optimizer)
        norm = float(nn.utils.clip_grad_norm_(self.draft.parameters(), self._schedule.clip))
        if not math.isfinite(total) or not (math.isfinite(norm) or self._scaler.is_enabled()):
            raise self._diverged(number, total, norm)
        for optimizer in self._optimizers:
            self._scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        self._scaler.update()
        return total

    @torch.no_grad()
    def measure(self) -> DraftAgreement:
        """Return the draft's agreement with the target on the held-out answers."""
        self.draft.eval()  # type: ignore[no-untyped-call]
        drawn: list[Tensor] = []
        greedy: list[bool] = []
        rounds = tokens = 0
        for rows in self._unseen.batches(self.recipe.batch):
            said, wanted = self._both(rows)
            agrees = (said.argmax(-1) == rows.ids[:, 1:].to(self._device)).tolist()
            for i, (begun, length) in enumerate(zip(rows.begun.tolist(), rows.lengths.tolist(), strict=True)):
                places = slice(begun - 1, length - 1)
                if rows.greedy[i]:
                    greedy += agrees[i][places]
                    made = replay_greedy(agrees[i][begun : length - 1], _DRAFTED)
                    rounds, tokens = rounds + made[0], tokens + made[2]
                else:
                    drawn.append(acceptance_chance(said[i, places], wanted[i, places]).cpu())
        places_drawn = torch.cat(drawn) if drawn else torch.zeros(0)
        return DraftAgreement(
            drawn=float(places_drawn.mean()) if len(places_drawn) else math.nan,
            greedy=sum(greedy) / len(greedy) if greedy else math.nan,
            tokens_per_round=tokens / rounds if rounds else math.nan,
        )

    def _both(self, rows: TargetAnswers) -> tuple[Tensor, Tensor]:
        """Return the logits of draft and target at all positions but the last, each ``[B, L - 1, V]``."""
        ids = rows.ids.to(self._device)[:, :-1]
        half = self.recipe.precision != "float32"
        with torch.autocast(
            self._device.type, dtype=getattr(torch, self.recipe.precision) if half else None, enabled=half
        ):
            with torch.no_grad():
                wanted = self.target(input_ids=ids, use_cache=False).logits
            said = self.draft(input_ids=ids, use_cache=False).logits
        # Models of one family pad the same vocabulary to different widths.
        both = min(said.shape[-1], wanted.shape[-1])
        return said[..., :both], wanted[..., :both]

    def _loss(self, rows: TargetAnswers) -> Tensor:
        """Return the mean loss over all positions of some rows, including their prompts."""
        said, wanted = self._both(rows)
        counts = torch.arange(said.shape[1])[None] < (rows.lengths - 1)[:, None]
        counts = counts.to(self._device)
        return distillation_loss(self.recipe.loss, said[counts], wanted[counts])

    def _mean(self) -> float | None:
        return sum(self._losses) / len(self._losses) if self._losses else None

    def _keep(self, done: int) -> None:
        held = [optimizer.state_dict() for optimizer in self._optimizers]
        state = {"held": held, "scaler": self._scaler.state_dict(), "losses": self._losses}
        self._checkpoints.save(done, self.draft, state)

    def _resume(self) -> int:
        """Load the last checkpoint; return the number of its finished steps, 0 without one."""
        found = self._checkpoints.last()
        if found is None:
            return 0
        state = self._checkpoints.load(found, self.draft)
        for optimizer, held in zip(self._optimizers, state["held"], strict=True):
            optimizer.load_state_dict(held)
        self._scaler.load_state_dict(state["scaler"])
        self._losses = list(state["losses"])
        return found

    def _diverged(self, number: int, loss: float, norm: float) -> EngineError:
        last = self._checkpoints.last()
        kept = "there is no checkpoint yet"
        if last is not None:
            kept = f"the last good checkpoint, of step {last}, is {self._checkpoints.folder(last)}"
        return EngineError(
            f"the loss is {loss} and its gradient's norm {norm} at step {number + 1}; {kept}. Train on from "
            f"it, as --draft of a new run, at a rate lower than {self.recipe.lr}, or in another precision "
            f"than {self.recipe.precision}."
        )


class _DraftTimeLeft:
    """Estimates the remaining seconds of a stage, from its pace since the first call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._of, self._first, self._begun = clock, -1, 0, 0.0

    def left(self, done: int, of: int) -> float | None:
        """Return the remaining seconds; None at a stage's first call."""
        if of != self._of:
            self._of, self._first, self._begun = of, done, self._clock()
        passed = done - self._first
        return None if passed <= 0 else (self._clock() - self._begun) / passed * (of - done)


def _samplings(
    recipe: DraftRecipe, corpus: PromptCorpus
) -> list[tuple[str, Sequence[str], int, AnswerSampling]]:
    """Return name, texts, count and sampling settings of the training and of the held-out answers."""
    how = recipe.sampling
    # Held-out answers have both temperatures, whatever the training answers have.
    heldout = AnswerSampling(how.prompt, how.new, (0.0, 1.0), how.slots, how.seed + 1)
    return [
        ("train", corpus.texts, recipe.prompts, how),
        ("heldout", corpus.heldout, recipe.heldout, heldout),
    ]


def _answering(folder: Path, how: AnswerSampling, device: str, threads: int) -> Engine:
    """Load the target as an engine that answers prompts in batches."""
    room = how.prompt + how.new
    return Engine.load(folder, method="plain", slots=how.slots, context=room, device=device, threads=threads)


def _fitting(target: Path, draft: Path, how: AnswerSampling) -> Tokenizer:
    """Check that vocabularies and contexts fit; return the target's tokenizer.

    Raises:
        CheckpointError, ConfigurationError: see :func:`train_draft`.
    """
    tokenizer = Tokenizer(target)
    difference = tokenizer.difference(Tokenizer(draft))
    if difference is not None:
        raise CheckpointError(
            f"the draft {draft} does not fit the target {target}: their vocabularies differ ({difference}, "
            "target first). Choose a draft of the same family."
        )
    context = min(read_hf_config(folder).context for folder in (target, draft))
    if how.prompt + how.new > context:
        raise ConfigurationError(
            f"prompts of {how.prompt} tokens and answers of {how.new} exceed the context of {context}; make "
            "them shorter."
        )
    return tokenizer


def _claim(work: Path, recipe: DraftRecipe, corpus: PromptCorpus, folders: tuple[Path, Path]) -> None:
    """Check that a work folder is new or belongs to this run, and record the run's settings in it.

    Raises:
        ConfigurationError: it belongs to another run.
    """
    read = hashlib.sha256()
    for text in (*corpus.texts, "\0", *corpus.heldout):
        read.update(hashlib.sha256(text.encode()).digest())
    target, draft = (str(folder.resolve()) for folder in folders)
    own = {"target": target, "draft": draft, "data": read.hexdigest(), **asdict(recipe)}
    said, path = json.dumps(own, indent=1), work / "recipe.json"
    if path.exists() and path.read_text(encoding="utf-8") != said:
        raise ConfigurationError(
            f"{work} holds a run with other settings or texts; give the same ones, name another folder, or "
            "delete it."
        )
    work.mkdir(parents=True, exist_ok=True)
    path.write_text(said, encoding="utf-8")
