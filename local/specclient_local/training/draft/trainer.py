"""Train a draft to predict its target: sample the target's answers, distill, save.

A work folder keeps the sampled answers and the checkpoints. A run that was interrupted resumes with the same
command, and its result is the same as without the interruption.
"""

from __future__ import annotations

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
from specclient_local.loading.engine_loader import threads_for
from specclient_local.model.devices import resolve_device
from specclient_local.model.hf.checkpoint import load_net, read_hf_config
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.torch_threads import computing_with
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
from specclient_local.training.time_left import TimeLeft
from specclient_local.training.training_loop import TrainingSchedule, optimizers
from specclient_local.training.work_folder import claim_work_folder

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
    on_progress: Callable[[DraftProgress], None] = lambda _: None,
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
        device: as in :class:`specclient_local.loading.options.EngineOptions`.
        threads: torch threads; by default 1 for a small target, else torch's.
        on_progress: called with the progress of the run.
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
    tokenizer, resolved = _check_fit(*folders, recipe.sampling), resolve_device(device)
    names = {"target": str(folders[0].resolve()), "draft": str(folders[1].resolve())}
    claim_work_folder(work, names | asdict(recipe), corpus.texts, corpus.heldout)
    config, timer = read_hf_config(folders[0]), TimeLeft(clock)
    thread_count = threads or threads_for(config)

    def report(done: int, of: int) -> None:
        on_progress(DraftProgress("sample", done, of, left_s=timer.left(done, of)))

    with computing_with(thread_count):
        training, unseen = (
            sample(
                lambda: _load_engine(folders[0], recipe.sampling, str(resolved), thread_count),
                cut_prompts(tokenizer, texts, count, sampling, whole=corpus.whole),
                work / name,
                sampling,
                on_progress=report,
            )
            for name, texts, count, sampling in _samplings(recipe, corpus)
        )
        dtype = recipe.precision if resolved.type == "cuda" else "float32"
        teacher = load_net(folders[0], config, dtype, str(resolved))
        student = load_net(folders[1], read_hf_config(folders[1]), "float32", str(resolved))
        run = DraftTrainingRun(
            recipe, student, teacher, training, unseen, checkpoints=DraftCheckpoints(work, folders[1])
        )
        result = run.train(on_progress, clock)
    publish(student, folders[1], out)
    return result


class DraftTrainingRun:
    """Trains a draft on the answers of its target.

    Args:
        recipe: the settings of the run.
        draft: the initial draft; modified.
        target: its target.
        training: answers to learn from.
        unseen: held-out answers for measurements.
        checkpoints: stores the checkpoints.
    """

    def __init__(
        self,
        recipe: DraftRecipe,
        draft: PreTrainedModel,
        target: PreTrainedModel,
        training: TargetAnswers,
        unseen: TargetAnswers,
        *,
        checkpoints: DraftCheckpoints,
    ) -> None:
        self.recipe, self.draft, self.target = recipe, draft, target
        self._training, self._unseen, self._checkpoints = training, unseen, checkpoints
        self._device = draft.device
        draft.requires_grad_(requires_grad=True)
        warmup = min(recipe.warmup, max(1, recipe.steps // 2))
        self._schedule = TrainingSchedule(recipe.steps, recipe.lr, warmup=warmup)
        self._optimizers = optimizers(draft, self._schedule)
        # Small gradients underflow in float16: the scaler multiplies the loss, and skips steps that overflow.
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=recipe.precision == "float16")
        self._losses: list[float] = []

    def train(
        self, on_progress: Callable[[DraftProgress], None], clock: Callable[[], float]
    ) -> DraftTrainingResult:
        """Run the schedule from the last checkpoint on, and measure before and after.

        Raises:
            EngineError: a checkpoint cannot be written, or the loss or its gradient is not finite.
        """
        recipe, before = self.recipe, self.measure()
        first = self._resume()
        last, timer = before if first == 0 else self.measure(), TimeLeft(clock)
        on_progress(DraftProgress("train", first, recipe.steps, self._mean(), last))
        timer.left(first, recipe.steps)
        for number in range(first, recipe.steps):
            self._losses = [*self._losses[-19:], self.step(number)]
            done = number + 1
            if done % recipe.every == 0 or done == recipe.steps:
                last = self.measure()
                self._save(done)
            left = timer.left(done, recipe.steps)
            on_progress(DraftProgress("train", done, recipe.steps, self._mean(), last, left))
        return DraftTrainingResult(before, last)

    def step(self, number: int) -> float:
        """Run one optimizer step; its number alone determines the answers used. Return the mean loss."""
        recipe, size = self.recipe, min(self.recipe.batch, len(self._training))
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._schedule.at(number)
        rng, total = np.random.default_rng((recipe.seed, number)), 0.0
        torch.manual_seed(recipe.seed * 1_000_003 + number)  # for drafts with dropout
        self.draft.train()
        for _ in range(recipe.accumulate):
            rows = self._training.rows(rng.choice(len(self._training), size, replace=False).tolist())
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
            predicted, wanted = self._both(rows)
            agrees = (predicted.argmax(-1) == rows.ids[:, 1:].to(self._device)).tolist()
            for i, (begun, length) in enumerate(zip(rows.begun.tolist(), rows.lengths.tolist(), strict=True)):
                answer = slice(begun - 1, length - 1)
                if rows.greedy[i]:
                    greedy += agrees[i][answer]
                    replayed = replay_greedy(agrees[i][begun : length - 1], _DRAFTED)
                    rounds, tokens = rounds + replayed[0], tokens + replayed[2]
                else:
                    drawn.append(acceptance_chance(predicted[i, answer], wanted[i, answer]).cpu())
        chances = torch.cat(drawn) if drawn else torch.zeros(0)
        return DraftAgreement(
            drawn=float(chances.mean()) if len(chances) else math.nan,
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
            predicted = self.draft(input_ids=ids, use_cache=False).logits
        # Models of one family pad the same vocabulary to different widths.
        vocab = min(predicted.shape[-1], wanted.shape[-1])
        return predicted[..., :vocab], wanted[..., :vocab]

    def _loss(self, rows: TargetAnswers) -> Tensor:
        """Return the mean loss over all positions of some rows, including their prompts."""
        predicted, wanted = self._both(rows)
        counts = torch.arange(predicted.shape[1])[None] < (rows.lengths - 1)[:, None]
        counts = counts.to(self._device)
        return distillation_loss(self.recipe.loss, predicted[counts], wanted[counts])

    def _mean(self) -> float | None:
        return sum(self._losses) / len(self._losses) if self._losses else None

    def _save(self, done: int) -> None:
        held = [optimizer.state_dict() for optimizer in self._optimizers]
        state = {"held": held, "scaler": self._scaler.state_dict(), "losses": self._losses}
        self._checkpoints.save(done, self.draft, state)

    def _resume(self) -> int:
        """Load the last checkpoint; return the number of its finished steps, 0 without one."""
        done = self._checkpoints.last()
        if done is None:
            return 0
        state = self._checkpoints.load(done, self.draft)
        for optimizer, held in zip(self._optimizers, state["held"], strict=True):
            optimizer.load_state_dict(held)
        self._scaler.load_state_dict(state["scaler"])
        self._losses = list(state["losses"])
        return done

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


def _samplings(
    recipe: DraftRecipe, corpus: PromptCorpus
) -> list[tuple[str, Sequence[str], int, AnswerSampling]]:
    """Return name, texts, count and sampling settings of the training and of the held-out answers."""
    sampling = recipe.sampling
    # Held-out answers have both temperatures, whatever the training answers have.
    heldout = AnswerSampling(sampling.prompt, sampling.new, (0.0, 1.0), sampling.slots, sampling.seed + 1)
    return [
        ("train", corpus.texts, recipe.prompts, sampling),
        ("heldout", corpus.heldout, recipe.heldout, heldout),
    ]


def _load_engine(folder: Path, sampling: AnswerSampling, device: str, threads: int) -> Engine:
    """Load the target as an engine that answers prompts in batches."""
    return Engine.load(
        folder,
        method="plain",
        slots=sampling.slots,
        context=sampling.prompt + sampling.new,
        device=device,
        threads=threads,
    )


def _check_fit(target: Path, draft: Path, sampling: AnswerSampling) -> Tokenizer:
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
    if sampling.prompt + sampling.new > context:
        raise ConfigurationError(
            f"prompts of {sampling.prompt} tokens and answers of {sampling.new} exceed the context of "
            f"{context}; make them shorter."
        )
    return tokenizer
