"""Rotary position embeddings (RoPE): the rotation of each position, with scaled frequencies and a magnitude.

Su et al. (arXiv 2104.09864). The results equal those of ``transformers.modeling_rope_utils``, whose
configuration fields checkpoints use.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specclient_local.model.rope_config import Rope


def turns(rope: Rope, head_dim: int, context: int) -> Tensor:
    """Return each position's rotation, ``[context, 1, D / 2]`` complex64.

    The magnitude is 1 except for yarn and longrope, which scale queries and keys.

    Args:
        rope: RoPE parameters.
        head_dim: D.
        context: number of positions.
    """
    rotated = rope.rotated or head_dim
    angles = torch.outer(torch.arange(context).float(), frequencies(rope, rotated, context))
    table = torch.polar(torch.full_like(angles, rope.attention_factor), angles)
    kept = torch.ones(context, (head_dim - rotated) // 2, dtype=table.dtype)  # elements that are not rotated
    return torch.cat((table, kept), dim=1).unsqueeze(1)


def frequencies(rope: Rope, head_dim: int, context: int) -> Tensor:
    """Return each pair's rotation angle per position in radians, ``[D / 2]`` float32.

    Args:
        rope: RoPE parameters.
        head_dim: number of elements of a head that are rotated.
        context: maximum positions the model is loaded for. Longrope has one set of factors up to the
            original context and another beyond. Cached keys cannot be rotated again, so this value selects
            the set, not the current length of a request.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    inverse = 1.0 / (rope.theta**exponents)
    match rope.kind:
        case "linear":
            return inverse / rope.factor
        case "llama3":
            return _llama3(rope, inverse)
        case "yarn":
            return _yarn(rope, inverse, head_dim)
        case "longrope":
            factors = rope.long_factor if context > rope.original_context else rope.short_factor
            return 1.0 / (torch.tensor(factors) * rope.theta**exponents)
        case _:  # dynamic equals default up to the original context; longer requests are not served
            return inverse


def _llama3(rope: Rope, inverse: Tensor) -> Tensor:
    """Stretch wavelengths beyond the original context, keep short ones, blend those between."""
    wavelength = 2 * math.pi / inverse
    low = rope.original_context / rope.low_freq_factor
    high = rope.original_context / rope.high_freq_factor
    share = (rope.original_context / wavelength - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    blended = (1 - share) * inverse / rope.factor + share * inverse
    stretched = torch.where(wavelength > low, inverse / rope.factor, inverse)
    between = (wavelength >= high) & (wavelength <= low)
    return torch.where(between, blended, stretched)


def _yarn(rope: Rope, inverse: Tensor, head_dim: int) -> Tensor:
    """Blend by a pair's number of rotations within the original context (arXiv 2309.00071 section 3.2)."""

    def pair(rotations: float) -> float:
        """Return the index of the pair with this many rotations; a fraction lies between two pairs."""
        wavelengths = math.log(rope.original_context / (rotations * 2 * math.pi))
        return head_dim * wavelengths / (2 * math.log(rope.theta))

    low, high = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low if high != low else 0.001
    stretched = torch.clamp((torch.arange(len(inverse), dtype=torch.float32) - low) / width, 0, 1)
    return inverse / rope.factor * stretched + inverse * (1 - stretched)
