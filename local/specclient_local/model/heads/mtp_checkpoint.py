"""Reading of the multi-token prediction head (MTP) that a target's own checkpoint ships."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import is_gguf
from specclient_local.model.config import DecoderConfig
from specclient_local.model.families import family_of
from specclient_local.model.heads.mtp_weights import MTP_LAYOUTS, MtpLayout, MtpShape, MtpWeights
from specclient_local.model.layer_weights import LayerTensors
from specclient_local.model.weights import tensor_names, tensor_reader


@dataclass(frozen=True, slots=True)
class MtpCheckpoint:
    """A loaded MTP head."""

    shape: MtpShape
    weights: MtpWeights
    method: Literal["mtp"] = "mtp"


def has_mtp(folder: Path, target: DecoderConfig) -> bool:
    """Return whether a checkpoint ships an MTP head of a known layout, by the names of its tensors."""
    return not is_gguf(folder) and _layout(tensor_names(folder), target) is not None


def read_mtp_shape(folder: Path, target: DecoderConfig) -> MtpShape:
    """Return the shape of the MTP head in a target's checkpoint; no weights are read.

    Args:
        folder: the target's checkpoint.
        target: its configuration.

    Raises:
        CheckpointError: the checkpoint has no such head, or its layer computes what heads cannot.
    """
    if is_gguf(folder):
        raise CheckpointError(
            f"{folder} is a GGUF file, whose MTP heads are not read; name the folder of safetensors, or use "
            "another method."
        )
    names = tensor_names(folder)
    layout = _layout(names, target)
    if layout is None:
        known = ", ".join(each.fc.format(target.layers) for each in MTP_LAYOUTS.values())
        raise CheckpointError(
            f"{folder} ships no MTP head: it has none of the tensors {known}. heads takes folders or hub ids "
            "of EAGLE, P-EAGLE and Medusa heads (bundled:eagle3 and bundled:medusa for demo), and the "
            "target's checkpoint if it ships an MTP head; leave it out, or use another method than 'mtp'."
        )
    if target.output_norms or target.whole_qk_norm or target.sinks or target.attention_cap is not None:
        raise CheckpointError(
            f"{folder} ships an MTP head in a {target.model_type} model, whose layers heads cannot compute; "
            "use another method."
        )
    prefix = layout.layer.format(target.layers)
    sparse = any(name.startswith(prefix) and ".experts." in name for name in names)
    experts = None if target.experts is None else replace(target.experts, sparse=(sparse,))
    experts = experts if sparse else None
    layer = replace(target, layers=1, sliding=(False,), window=None, experts=experts, delta=None)
    own_head = layout.head is not None and layout.head.format(target.layers) in names
    return MtpShape(layer, target.layers, layout.norm_output, own_head)


def read_mtp(folder: Path, target: DecoderConfig, dtype: torch.dtype, device: torch.device) -> MtpCheckpoint:
    """Read the MTP head in a target's checkpoint, the first one if there are several.

    Args:
        folder: the target's checkpoint.
        target: its configuration.
        dtype: type of the loaded weights.
        device: device to load onto.

    Raises:
        CheckpointError: see :func:`read_mtp_shape`; or a tensor is missing or has another shape.
    """
    shape = read_mtp_shape(folder, target)
    found = _layout(tensor_names(folder), target)
    assert found is not None  # read_mtp_shape() checks it
    config, hidden = shape.config, target.hidden_size
    family = family_of(target.model_type)
    with ExitStack() as stack:
        take = tensor_reader(folder, target, stack, dtype, str(device))

        def tensor(name: str, *size: int) -> Tensor:
            return take(name.format(target.layers), size)

        fc = tensor(found.fc, hidden, 2 * hidden)
        token, state = reversed(fc.chunk(2, dim=1)) if found.state_first else fc.chunk(2, dim=1)
        head = tensor(found.head, target.vocab_size, hidden) if found.head and shape.own_head else None
        weights = MtpWeights(
            token_norm=family.norm(tensor(found.token_norm, hidden)),
            state_norm=family.norm(tensor(found.state_norm, hidden)),
            fc=torch.cat((token, state), dim=1),
            layer=family.layer(LayerTensors(take, 0, config, prefix=found.layer.format(target.layers))),
            norm=family.norm(tensor(found.norm, hidden)),
            head=head,
        )
    return MtpCheckpoint(shape, weights)


def _layout(names: frozenset[str], target: DecoderConfig) -> MtpLayout | None:
    """Return the layout of the head among a checkpoint's tensors; None if there is no head."""
    return next((each for each in MTP_LAYOUTS.values() if each.fc.format(target.layers) in names), None)
