"""Configuration of rotary position embeddings (RoPE), as checkpoints have it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import LEAST_FACTOR, finite_number, shown, whole_number

ROPE_KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")

MAX_POSITIONS = 2**31 - 1
"""Bound of the positions in a configuration."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Parameters of rotary position embeddings (RoPE) and their scaling.

    See :mod:`specclient_local.model.rope`.

    Attributes:
        theta: base of the frequencies.
        kind: ``default``; ``linear``: positions are divided by ``factor``; ``dynamic``: default up to the
            original context, and longer requests are not served (each length would have its own
            frequencies, which would invalidate cached keys); ``yarn`` and ``llama3``: low frequencies are
            divided by ``factor``, high ones kept, those between blended; ``longrope``: each frequency has
            its own factor.
        factor: scaling factor of the context.
        attention_factor: factor by which yarn and longrope multiply queries and keys.
        original_context: context length of the original training, in tokens.
        low_freq_factor, high_freq_factor: bounds of llama3's blended range.
        beta_fast, beta_slow: bounds of yarn's blended range, in rotations within the original context;
            ``truncate`` rounds them to whole pairs.
        short_factor, long_factor: longrope's factors ``[D / 2]`` up to the original context and beyond it.
        rotated: number of leading elements of a head that are rotated; None for all.
    """

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    attention_factor: float = 1.0
    original_context: int = 8192
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    rotated: int | None = None


def read_rope(raw: Mapping[str, Any], head_dim: int, path: Path) -> Rope:
    """Read RoPE fields as in transformers 5 (``rope_parameters``) or 4 (``rope_theta``, ``rope_scaling``).

    Args:
        raw: content of ``config.json``.
        head_dim: number of elements of a head that are rotated.
        path: the file, for error messages.

    Raises:
        CheckpointError: names the file, the value and the supported values.
    """
    table = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = table.get("rope_type", table.get("type", "default"))
    if kind not in ROPE_KINDS:
        raise CheckpointError(
            f"{path}: RoPE type {shown(kind)} is not supported; supported are {', '.join(ROPE_KINDS)}."
        )
    most = whole_number(raw, "max_position_embeddings", path, 2, MAX_POSITIONS)
    # Some checkpoints (the Phi 3 family) have this field outside the table; that one takes precedence.
    name = "original_max_position_embeddings"
    original = raw.get(name)
    if original is None:
        original = table.get(name, most)
    original = whole_number({name: original}, name, path, 2, MAX_POSITIONS)
    stretched = most / original if kind in ("yarn", "longrope") else 1.0
    factor = finite_number(table, "factor", stretched, path)
    short, long = (_factors(table, f"{n}_factor", path) for n in ("short", "long"))
    if kind == "longrope" and not len(short) == len(long) == head_dim // 2:
        raise CheckpointError(
            f"{path}: short_factor has {len(short)} and long_factor {len(long)} numbers; "
            f"longrope needs {head_dim // 2} of each, half of head_dim."
        )
    low, high = (finite_number(table, f"{n}_freq_factor", d, path) for n, d in (("low", 1.0), ("high", 4.0)))
    if kind == "llama3" and low >= high:
        raise CheckpointError(f"{path}: low_freq_factor {low:g} must be below high_freq_factor {high:g}.")
    return Rope(
        theta=_theta(raw, table, path),
        kind=str(kind),
        factor=factor,
        attention_factor=_attention_factor(kind, table, factor, original, path),
        original_context=original,
        low_freq_factor=low,
        high_freq_factor=high,
        beta_fast=finite_number({"beta_fast": table.get("beta_fast") or 32.0}, "beta_fast", 32.0, path),
        beta_slow=finite_number({"beta_slow": table.get("beta_slow") or 1.0}, "beta_slow", 1.0, path),
        truncate=bool(table.get("truncate", True)),
        short_factor=short,
        long_factor=long,
    )


def _theta(raw: Mapping[str, Any], table: Mapping[str, Any], path: Path) -> float:
    """Return the base of the frequencies; above 1, because yarn divides by its logarithm."""
    value = table.get("rope_theta")
    if value is None:
        value = raw.get("rope_theta", 10_000.0)
    return finite_number({"rope_theta": value}, "rope_theta", 10_000.0, path, least=1.0 + LEAST_FACTOR)


def _factors(table: Mapping[str, Any], name: str, path: Path) -> tuple[float, ...]:
    """Return longrope's factors of each frequency."""
    return tuple(finite_number({name: value}, name, 1.0, path) for value in table.get(name) or ())


def _attention_factor(kind: str, table: Mapping[str, Any], factor: float, original: int, path: Path) -> float:
    """Return the factor of queries and keys: the configured one, else the formula of the kind's paper."""

    def yarn(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0

    given = table.get("attention_factor")
    if kind not in ("yarn", "longrope"):
        return 1.0
    if given is not None:
        return finite_number(table, "attention_factor", 1.0, path)
    if kind == "longrope":
        return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1.0 else 1.0
    above, below = table.get("mscale"), table.get("mscale_all_dim")
    ratio = yarn(above) / yarn(below) if above and below else yarn(1.0)
    return finite_number({"mscale": ratio}, "mscale", 1.0, path)
