"""Distillation of the bundled draft from its target, on real text and on the target's continuations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from specclient_local.training.corpus import TokenArray
from specclient_local.training.losses import replay_greedy
from specclient_local.training.pretrain import training_window
from specclient_local.training.training_loop import TrainingSchedule, train


@torch.inference_mode()
def continuations(
    target: PreTrainedModel,
    data: TokenArray,
    rows: int,
    *,
    prompt: int = 48,
    new: int = 208,
    wander: int = 0,
    batch: int = 192,
    seed: int = 2,
    report: Callable[[str], None] = print,
) -> torch.Tensor:
    """Return the target's continuations of training prefixes, alternately greedy and at temperature 1.

    A draft must predict the target's text, not human text: greedy text of a small model repeats itself in
    ways that no corpus does (on-policy data, as in DistillSpec, arXiv 2310.08461 §4).

    Args:
        target: the model that continues the prefixes.
        data: text from which prefixes are taken.
        rows: number of continuations.
        prompt: tokens per prefix.
        new: generated tokens per continuation.
        wander: number of sampled tokens after which all rows continue greedily. They lead away from memorized
            training text, into contexts like those of real requests.
        batch: rows per generation.
        seed: seed of prefixes and sampling.
        report: called with a line of progress.

    Returns:
        ids ``[rows, prompt + new]``.
    """
    torch.manual_seed(seed)
    done: list[torch.Tensor] = []
    for i, begin in enumerate(range(0, rows, batch)):
        size = min(batch, rows - begin)
        rng = np.random.default_rng((seed, i))
        ids = torch.from_numpy(data.windows(rng, size, prompt - 1))
        if wander:
            ids = _continue(target, ids, wander, sample=True)
        done.append(_continue(target, ids, new - wander, sample=not wander and i % 2 == 1))
        report(f"continuations {begin + size}/{rows}")
    return torch.cat(done)


def _continue(target: PreTrainedModel, ids: torch.Tensor, new: int, *, sample: bool) -> torch.Tensor:
    out: torch.Tensor = target.generate(  # type: ignore[operator]  # GenerationMixin is untyped
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=sample,
        temperature=1.0,
        max_new_tokens=new,
        min_new_tokens=new,
        pad_token_id=0,
        cache_implementation="static",
        disable_compile=True,
    )
    return out


def distill(
    draft: PreTrainedModel,
    target: PreTrainedModel,
    data: TokenArray,
    own: torch.Tensor,
    schedule: TrainingSchedule,
    *,
    tokens_per_step: int = 4096,
    soft: float = 0.5,
    seed: int = 3,
    checkpoint: Path | None = None,
    report: Callable[[str], None] = print,
) -> float:
    """Train the draft on the target's distribution; return the last training loss.

    Steps alternate between real text and the target's continuations. The loss mixes the forward KL
    divergence from the target's distribution (for sampling) with the cross-entropy on its most likely token
    (for greedy decoding).

    Args:
        draft: the model to train; modified.
        target: the model to imitate.
        data: real text.
        own: the target's continuations, ids ``[rows, length]``.
        schedule: number of steps, learning rate and weight decay.
        tokens_per_step: tokens of a step's batch.
        soft: weight of the KL term; the rest is the weight of the cross-entropy.
        seed: seed of the choice of text.
        checkpoint: file to resume from and to save to.
        report: called with a line of progress.
    """

    def ids_at(step: int) -> torch.Tensor:
        if step % 2 == 0:
            return training_window(step, schedule.steps, data, tokens_per_step, seed)[:, :-1]
        rng = np.random.default_rng((seed, step))
        rows = rng.choice(own.shape[0], size=tokens_per_step // own.shape[1], replace=False)
        return own[torch.from_numpy(rows)]

    def loss_at(step: int) -> torch.Tensor:
        ids = ids_at(step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                teacher = target(input_ids=ids, use_cache=False).logits.flatten(0, 1)
            student = draft(input_ids=ids, use_cache=False).logits.flatten(0, 1)
        # One cross-entropy to the mixed target is both losses at once (up to the teacher's own entropy),
        # with half the passes over [tokens, vocabulary].
        wanted = F.softmax(teacher.float(), dim=-1).mul_(soft)
        best = teacher.argmax(dim=-1, keepdim=True)
        wanted.scatter_add_(1, best, torch.full_like(best, 1 - soft, dtype=wanted.dtype))
        return F.cross_entropy(student.float(), wanted)

    target.eval()  # type: ignore[no-untyped-call]
    return train(draft, schedule, loss_at, checkpoint=checkpoint, report=report)


@torch.inference_mode()
def greedy_agreement(
    draft: PreTrainedModel, ids: torch.Tensor, *, prompt: int, drafted: int = 4
) -> tuple[float, float]:
    """Replay greedy speculation over greedy continuations of the target, without running it.

    See :func:`specclient_local.training.losses.replay_greedy`.

    Args:
        draft: the draft.
        ids: ``[B, T]``, prompts of ``prompt`` tokens and then the target's own greedy tokens.
        prompt: tokens per prompt.
        drafted: drafted tokens per round.

    Returns:
        The share of rounds whose first drafted token is accepted, and the mean number of tokens per round.
    """
    agree = draft(input_ids=ids, use_cache=False).logits[:, :-1].argmax(-1) == ids[:, 1:]
    rows = agree[:, prompt:].tolist()  # the token at `prompt` comes from the prefill
    rounds, first, tokens = map(sum, zip(*(replay_greedy(row, drafted) for row in rows), strict=True))
    return first / rounds, tokens / rounds
