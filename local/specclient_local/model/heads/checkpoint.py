"""Loading of published EAGLE, MTP and Medusa heads, checked against their target.

Layouts, by ``config.json``:

- ``speculators_model_type`` ``eagle`` or ``eagle3``: github.com/vllm-project/speculators (``config.py``,
  ``models/eagle3``; ``eagle`` as up to its version 0.3);
- a decoder of one layer, with ``draft_vocab_size`` for EAGLE-3: github.com/SafeAILab/EAGLE
  (``model/cnets.py`` and ``cnets1.py``);
- ``medusa_num_heads``, and the file ``medusa_lm_head.safetensors``: github.com/FasterDecoding/Medusa;
- the target's own checkpoint, by the names of its tensors: see :mod:`.mtp_weights`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from specclient_local.model.checkpoint_files import is_gguf, read_json, whole_number
from specclient_local.model.config import DecoderConfig
from specclient_local.model.heads.eagle_checkpoint import EagleCheckpoint, read_eagle, read_eagle_shape
from specclient_local.model.heads.eagle_weights import EagleShape
from specclient_local.model.heads.medusa_weights import MedusaShape, MedusaWeights
from specclient_local.model.heads.mtp_checkpoint import has_mtp, read_mtp_shape
from specclient_local.model.heads.mtp_weights import MtpShape
from specclient_local.model.heads.tensors import CheckpointTensors

MEDUSA_FILE = "medusa_lm_head.safetensors"
EAGLE_FILE = "model.safetensors"
_MAX_HEADS = 256  # of Medusa, and residual blocks of each


@dataclass(frozen=True, slots=True)
class MedusaCheckpoint:
    """Loaded Medusa heads."""

    shape: MedusaShape
    weights: MedusaWeights
    method: Literal["medusa"] = "medusa"


HeadsCheckpoint = MedusaCheckpoint | EagleCheckpoint


def required_hidden_layers(folder: Path, target: DecoderConfig) -> tuple[int, ...]:
    """Return the depths at which heads read the target's hidden states, as numbers of preceding layers.

    Args:
        folder: the heads' checkpoint.
        target: configuration of their target.

    Raises:
        CheckpointError: see :func:`read_heads`.
    """
    if is_mtp(folder, target):
        return read_mtp_shape(folder, target).tapped(target.layers)
    raw = read_json(folder / "config.json")
    if _is_medusa(raw, folder):
        return (target.layers,)
    return read_eagle_shape(raw, folder, target).tapped(target.layers)


def read_heads_shape(folder: Path, target: DecoderConfig) -> EagleShape | MedusaShape | MtpShape:
    """Return the shape of a checkpoint's heads, from ``config.json`` and the names of its tensors.

    The number of Medusa heads is the configured one, or 1; :func:`read_heads` counts them in the file.

    Args:
        folder: the heads' checkpoint.
        target: configuration of their target.

    Raises:
        CheckpointError: see :func:`read_heads`.
    """
    if is_mtp(folder, target):
        return read_mtp_shape(folder, target)
    path = folder / "config.json"
    raw = read_json(path)
    if not _is_medusa(raw, folder):
        return read_eagle_shape(raw, folder, target)
    counts = {name: raw.get(name) or 1 for name in ("medusa_num_heads", "medusa_num_layers")}
    heads, blocks = (whole_number(counts, name, path, 1, _MAX_HEADS) for name in counts)
    shares = bool(raw.get("original_lm_head", False))
    return MedusaShape(heads, blocks, target.hidden_size, target.vocab_size, shares)


def read_heads(
    folder: Path,
    target: DecoderConfig,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> HeadsCheckpoint:
    """Read a checkpoint of EAGLE or Medusa heads; see :func:`is_mtp` for the others.

    Args:
        folder: the heads' checkpoint.
        target: configuration of their target.
        dtype: type of the loaded weights.
        device: device to load onto; the CPU by default.

    Raises:
        CheckpointError: the layout is unknown, there are no safetensors, or the heads do not fit the target;
            names the file, the tensor, its shape and the expected one.
    """
    raw = read_json(folder / "config.json")
    device = device or torch.device("cpu")
    if _is_medusa(raw, folder):
        with CheckpointTensors(folder, MEDUSA_FILE, dtype, device) as tensors:
            return _medusa(raw, target, tensors)
    shape = read_eagle_shape(raw, folder, target)
    with CheckpointTensors(folder, EAGLE_FILE, dtype, device) as tensors:
        return read_eagle(shape, target, tensors)


def is_mtp(folder: Path, target: DecoderConfig) -> bool:
    """Return whether heads are the MTP heads in the target's own checkpoint, which is no folder of heads.

    Args:
        folder: the target's checkpoint, or that of EAGLE or Medusa heads.
        target: the target's configuration.
    """
    if is_gguf(folder):
        return True
    raw = read_json(folder / "config.json")
    same = raw.get("model_type") == target.model_type and raw.get("num_hidden_layers") == target.layers
    heads = "draft_vocab_size" in raw or "speculators_model_type" in raw
    # The configuration of an EAGLE head of the first version is that of a model of one layer.
    return same and not heads and (target.layers > 1 or has_mtp(folder, target))


def _is_medusa(raw: Mapping[str, Any], folder: Path) -> bool:
    return "speculators_model_type" not in raw and (
        "medusa_num_heads" in raw or raw.get("model_type") == "medusa" or (folder / MEDUSA_FILE).is_file()
    )


def _medusa(raw: Mapping[str, Any], target: DecoderConfig, tensors: CheckpointTensors) -> MedusaCheckpoint:
    """Read Medusa heads; they are counted in the file, because published configs give smaller numbers."""
    heads = sum(name.endswith(".0.linear.weight") for name in tensors.names)
    blocks = sum(name.startswith("0.") and name.endswith(".linear.weight") for name in tensors.names)
    hidden, vocab = target.hidden_size, target.vocab_size
    shares = f"0.{blocks}.weight" not in tensors and bool(raw.get("original_lm_head", False))
    shape = MedusaShape(max(1, heads), max(1, blocks), hidden, vocab, shares)
    weights = MedusaWeights(
        [
            [
                (
                    tensors.take(f"{head}.{block}.linear.weight", (hidden, hidden)),
                    tensors.take(f"{head}.{block}.linear.bias", (hidden,)),
                )
                for block in range(shape.blocks)
            ]
            for head in range(shape.heads)
        ],
        []
        if shares
        else [tensors.take(f"{head}.{shape.blocks}.weight", (vocab, hidden)) for head in range(shape.heads)],
    )
    return MedusaCheckpoint(shape, weights)
