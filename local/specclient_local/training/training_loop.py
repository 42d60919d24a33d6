"""A resumable training loop, with its learning-rate schedule and optimizers.

Hidden matrices are trained by Muon (Jordan et al. 2024, scaled as in arXiv 2502.16982 §2.2), all other
parameters by AdamW. Matrix products run in bfloat16 under autocast; weights stay in float32.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn


@dataclass(frozen=True)
class TrainingSchedule:
    """The learning rate by step, and the optimizers' constants.

    Attributes:
        steps: optimizer steps.
        lr: peak learning rate, of Muon and AdamW alike.
        warmup: steps of linear rise; after it the rate falls linearly to zero.
        weight_decay: decoupled, on matrices only.
        clip: largest gradient norm.
    """

    steps: int
    lr: float
    warmup: int = 30
    weight_decay: float = 0.1
    clip: float = 1.0

    def at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        return self.lr * (self.steps - step) / max(1, self.steps - self.warmup)


def optimizers(model: nn.Module, schedule: TrainingSchedule) -> list[torch.optim.Optimizer]:
    """Split parameters between Muon (hidden matrices) and AdamW (embeddings and norms)."""
    named = list(model.named_parameters())
    hidden = [p for n, p in named if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
    ids = {id(p) for p in hidden}
    rest = [p for _, p in named if id(p) not in ids]
    return [
        torch.optim.Muon(
            hidden, lr=schedule.lr, weight_decay=schedule.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(rest, lr=schedule.lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def train(
    model: nn.Module,
    schedule: TrainingSchedule,
    loss_at: Callable[[int], torch.Tensor],
    *,
    checkpoint: Path | None = None,
    report: Callable[[str], None] = print,
    every: int = 20,
) -> float:
    """Run the schedule and return the mean loss of the last ``every`` steps, in nats per token.

    Args:
        model: changed in place.
        schedule: number of steps, learning rate and weight decay.
        loss_at: returns the scalar loss of a step. It selects the data, seeded by the step number, so that a
            resumed run uses the same data as an uninterrupted one.
        checkpoint: file to resume from and to save to (every 100 steps, replaced atomically).
        report: called with a line of progress.
        every: steps between these lines.
    """
    opts = optimizers(model, schedule)
    first, recent = _resume(checkpoint, model, opts)
    model.train()
    begun = time.monotonic()
    for step in range(first, schedule.steps):
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = schedule.at(step)
        loss = loss_at(step)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        recent = [*recent[-(every - 1) :], loss.item()]
        if not math.isfinite(recent[-1]):
            raise FloatingPointError(f"loss is {recent[-1]} at step {step}; lower the rate ({schedule.lr})")
        if (step + 1) % every == 0 or step + 1 == schedule.steps:
            pace = (time.monotonic() - begun) / (step + 1 - first)
            left = pace * (schedule.steps - step - 1)
            report(
                f"step {step + 1}/{schedule.steps}  loss {sum(recent) / len(recent):.3f}  "
                f"{pace:.2f} s/step  {left / 60:.0f} min left"
            )
        if checkpoint is not None and (step + 1) % 100 == 0:
            _save(checkpoint, step + 1, recent, model, opts)
    model.eval()
    return sum(recent) / max(1, len(recent))


def _save(
    path: Path, step: int, recent: list[float], model: nn.Module, opts: list[torch.optim.Optimizer]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    state = {
        "step": step,
        "recent": recent,
        "model": model.state_dict(),
        "opts": [o.state_dict() for o in opts],
    }
    torch.save(state, partial)
    partial.replace(path)


def _resume(
    path: Path | None, model: nn.Module, opts: list[torch.optim.Optimizer]
) -> tuple[int, list[float]]:
    if path is None or not path.exists():
        return 0, []
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for opt, saved in zip(opts, state["opts"], strict=True):
        opt.load_state_dict(saved)
    return int(state["step"]), list(state["recent"])
