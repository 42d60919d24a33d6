"""Pretraining of the bundled target, a Llama-shaped model of Python source code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from specclient_local.training.corpus import TokenArray
from specclient_local.training.training_loop import TrainingSchedule, train

CONTEXT = 1024


def llama(
    layers: int, width: int, heads: int, ff: int, *, vocab: int, bos: int, eos: int
) -> LlamaForCausalLM:
    """Build an untrained Llama with tied embeddings; weights N(0, 0.02), residual outputs scaled down."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=ff,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=width // heads,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=bos,
        eos_token_id=eos,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_((2 * layers) ** -0.5)
    return model


def training_window(step: int, steps: int, data: TokenArray, tokens_per_step: int, seed: int) -> torch.Tensor:
    """Return the token ids of a step, ``[B, T + 1]``: T is 512, and the full context in the last eighth."""
    length = CONTEXT if step >= steps * 7 // 8 else CONTEXT // 2
    rng = np.random.default_rng((seed, step))
    return torch.from_numpy(data.windows(rng, tokens_per_step // length, length))


def pretrain(
    model: PreTrainedModel,
    data: TokenArray,
    schedule: TrainingSchedule,
    *,
    tokens_per_step: int = 8192,
    seed: int = 0,
    checkpoint: Path | None = None,
    report: Callable[[str], None] = print,
) -> float:
    """Train by next-token cross-entropy; return the last training loss, nats per token."""

    def loss_at(step: int) -> torch.Tensor:
        ids = training_window(step, schedule.steps, data, tokens_per_step, seed)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    return train(model, schedule, loss_at, checkpoint=checkpoint, report=report)


@torch.no_grad()
def heldout_loss(model: PreTrainedModel, data: TokenArray, *, batches: int = 8, seed: int = 1) -> float:
    """Return the cross-entropy on held-out windows of 512 tokens, nats per token, in float32."""
    total = 0.0
    for i in range(batches):
        rng = np.random.default_rng((seed, i))
        ids = torch.from_numpy(data.windows(rng, 8, 512))
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        total += F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()
    return total / batches
