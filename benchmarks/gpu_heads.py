"""An EAGLE-3 head of a given target's shape with random weights, to time rounds that it drafts in.

Its drafts are nearly never accepted. The time of a round does not depend on that, so a speed-up at a given
acceptance rate is the tokens of the closed form over the measured time.
"""

from __future__ import annotations

import dataclasses

import torch
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.model.config import DecoderConfig
from specclient_local.model.cuda_graphs.static_hidden_runner import StaticHiddenRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.heads.eagle_runner import EagleRunner
from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.weights import DecoderWeights
from torch import Tensor

_DRAFT_VOCAB = 32_000
"""Tokens of the output head of most published EAGLE-3 heads."""


@torch.inference_mode()
def eagle_speculator(
    config: DecoderConfig, weights: DecoderWeights, *, slots: int, context: int
) -> DeviceSpeculator:
    """Return a speculator of the target and a random EAGLE-3 head.

    Args:
        config: the target's shape.
        weights: its weights, which are shared.
        slots: concurrent requests.
        context: positions per request.
    """
    taps = (1, config.layers // 2, config.layers - 1)
    layer = dataclasses.replace(config, layers=1, sliding=(False,), qk_norm=False)
    draft_vocab = min(_DRAFT_VOCAB, config.vocab_size)
    shape = EagleShape("eagle3", layer, config.hidden_size, taps=taps, draft_vocab=draft_vocab)
    decoder = TransformerDecoder(config, weights, context)
    target = StaticHiddenRunner(decoder, weights, slots, context, taps)
    head = EagleRunner(shape, _random_head(shape, weights.embedding), target, compiled=False)
    return DeviceSpeculator(target, {"eagle": EagleDrafter(target, head)})


def _random_head(shape: EagleShape, like: Tensor) -> EagleWeights:
    c, width = shape.config, shape.width
    generator = torch.Generator(like.device).manual_seed(1)

    def matrix(rows: int, columns: int) -> Tensor:
        drawn = torch.empty(rows, columns, dtype=like.dtype, device=like.device)
        return drawn.normal_(std=columns**-0.5, generator=generator)

    ones = torch.ones(width, dtype=like.dtype, device=like.device)
    return EagleWeights(
        fc=matrix(width, shape.depths * shape.target_hidden),
        qkv=matrix((c.heads + 2 * c.kv_heads) * c.head_dim, 2 * width),
        o=matrix(width, c.heads * c.head_dim),
        post_norm=ones,
        gate_up=matrix(2 * c.intermediate_size, width),
        down=matrix(width, c.intermediate_size),
        token_norm=ones,
        state_norm=ones,
        norm=ones,
        head=matrix(shape.draft_vocab, width),
        ids=torch.arange(shape.draft_vocab, device=like.device),
    )
