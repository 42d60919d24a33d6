"""Turn a target, a draft and texts into a draft that agrees with the target there: sample, learn, save.

What is sampled and learnt is kept in a work folder as it comes about, so that a run which is killed goes on
with the same command, and ends with the same draft as one that was not.
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
"""Tokens a round where greedy speculation is replayed."""


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
        target: folder or hub id, of any causal model that transformers has; ``demo`` is the bundled one.
        draft: folder or hub id of the model to begin with, which stays as it is; of the target's vocabulary.
            None is the bundled draft, for ``demo``.
        corpus: what the target's answers begin with.
        out: folder for the draft; :meth:`specclient_local.engine.engine.Engine.load` takes it.
        recipe: every number of the run.
        work: for answers and checkpoints; ``out``/work by default. A run that finds its own goes on.
        device: as in :meth:`specclient_local.engine.engine.Engine.load`.
        threads: torch threads; 1 for a small target, else torch's, by default.
        told: hears how far the run is.
        clock: monotonic seconds.

    Raises:
        CheckpointError: of either model, or two whose vocabularies differ.
        ConfigurationError: no draft, no prompts, prompts and answers beyond the context, or a work folder of
            another run.
        EngineError: no space left, or a loss that is no number; the last checkpoint is named.
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
    """A draft, what it learns from, and how."""

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
        # Half precision has no room for small gradients: losses are scaled up, steps that overflow left out.
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=recipe.precision == "float16")
        self._losses: list[float] = []

    def train(self, told: Callable[[DraftProgress], None], clock: Callable[[], float]) -> DraftTrainingResult:
        """Run the schedule from where a checkpoint left it, and measure before and after.

        Raises:
            EngineError: no space for a checkpoint, or a loss or gradient that is no number.
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
        """Learn from some answers, drawn by the step's number alone; return the mean loss."""
        recipe, size = self.recipe, min(self.recipe.batch, len(self._learnt))
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._schedule.at(number)
        dice, total = np.random.default_rng((recipe.seed, number)), 0.0
        torch.manual_seed(recipe.seed * 1_000_003 + number)  # of dropout, where a draft has it
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
        """Return how well the draft agrees on answers that it does not learn from."""
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
        """Return what draft and target say at each place but the last, ``[B, L - 1, V]``."""
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
        """Return the mean loss over the places of some rows, those of their prompts included."""
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
        """Take what the last checkpoint holds; return how many steps it had done."""
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
    """How long what is left takes, at the pace since a stage was first heard of."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._of, self._first, self._begun = clock, -1, 0, 0.0

    def left(self, done: int, of: int) -> float | None:
        """Return seconds; None at a stage's first call."""
        if of != self._of:
            self._of, self._first, self._begun = of, done, self._clock()
        passed = done - self._first
        return None if passed <= 0 else (self._clock() - self._begun) / passed * (of - done)


def _samplings(
    recipe: DraftRecipe, corpus: PromptCorpus
) -> list[tuple[str, Sequence[str], int, AnswerSampling]]:
    """Return name, texts, count and settings of what is learnt and of what is measured on."""
    how = recipe.sampling
    # Both kinds are measured, whatever is learnt.
    heldout = AnswerSampling(how.prompt, how.new, (0.0, 1.0), how.slots, how.seed + 1)
    return [
        ("train", corpus.texts, recipe.prompts, how),
        ("heldout", corpus.heldout, recipe.heldout, heldout),
    ]


def _answering(folder: Path, how: AnswerSampling, device: str, threads: int) -> Engine:
    """Load the target to answer prompts, a batch at a time."""
    room = how.prompt + how.new
    return Engine.load(folder, method="plain", slots=how.slots, context=room, device=device, threads=threads)


def _fitting(target: Path, draft: Path, how: AnswerSampling) -> Tokenizer:
    """Return the target's tokenizer, having seen that the draft has its vocabulary and both the room.

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
            f"prompts of {how.prompt} tokens and answers of {how.new} exceed the context of {context}; ask "
            "for shorter ones."
        )
    return tokenizer


def _claim(work: Path, recipe: DraftRecipe, corpus: PromptCorpus, folders: tuple[Path, Path]) -> None:
    """See that a work folder is this run's, or nobody's.

    Raises:
        ConfigurationError: it is another's.
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
