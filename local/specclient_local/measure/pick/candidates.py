"""Turn the names of what may draft for a target into ways to load it, and what each takes of memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import safe_open

from specclient.errors import ConfigurationError
from specclient_local.engine.engine import Engine
from specclient_local.loading.memory_plan import ModelMemory, compute_and_weight_dtypes
from specclient_local.loading.model_loader import read_any_config
from specclient_local.model.config import DecoderConfig, read_json
from specclient_local.model.devices import resolve_device
from specclient_local.model.weights import count_numbers, resolve_checkpoint
from specclient_local.request.params import Method

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class DraftCandidate:
    """Something that may draft for a target.

    Attributes:
        name: as asked for: ``ngram``, ``layer_skip``, ``layer_skip:N``, a folder or a hub id.
        loading: what an engine is loaded with for it, beside the target.
        memory: bytes that it takes beside the target, one slot's cache included; heads' caches are left out.
    """

    name: str
    loading: Mapping[str, Any]
    memory: int

    def method(self, engine: Engine) -> Method:
        """Return the method that it stands for in an engine loaded with it."""
        if "heads" in self.loading:
            return "medusa" if "medusa" in engine.methods else "eagle"
        if "layer_skip" in self.loading:
            return "layer_skip"
        return "draft" if "draft" in self.loading else "ngram"


def candidate(
    name: str, target: Path, *, context: int, dtype: str = "float32", device: str = "cpu"
) -> DraftCandidate:
    """Return what a name stands for.

    Args:
        name: ``ngram``; ``layer_skip`` (the first half of the target's layers) or ``layer_skip:N``; a folder
            or hub id of a draft model, or of Medusa or EAGLE heads.
        target: folder of its checkpoint.
        context: positions of a cache.
        dtype: that it computes in.
        device: where.

    Raises:
        CheckpointError: no such checkpoint.
        ConfigurationError: layers that the target has not.
    """
    if name == "ngram":
        return DraftCandidate(name, {}, 0)
    method, _, count = name.partition(":")
    sums, held = compute_and_weight_dtypes(dtype, None, resolve_device(device))
    if method == "layer_skip":
        return _skipping(name, count, target, context, sums)
    folder = resolve_checkpoint(name)
    if _is_heads(folder):
        return DraftCandidate(name, {"heads": str(folder)}, _numbers(folder) * _BYTES[dtype])
    config = read_any_config(folder)
    memory = count_numbers(folder) * _BYTES[dtype]
    if isinstance(config, DecoderConfig):
        planned = ModelMemory("draft", config, sums, held)
        memory = planned.weights + planned.caches(1, context)
    return DraftCandidate(name, {"draft": str(folder)}, memory)


def _skipping(name: str, count: str, target: Path, context: int, dtype: str) -> DraftCandidate:
    config = read_any_config(target)
    if not isinstance(config, DecoderConfig):
        raise ConfigurationError(
            f"candidate is {name!r}, but transformers runs the target; only models of the own decoder can "
            "skip layers. Leave it out."
        )
    layers = max(1, config.layers // 2) if not count else int(count) if count.isdecimal() else 0
    if not 1 <= layers < config.layers:
        raise ConfigurationError(
            f"candidate is {name!r}; allowed is layer_skip:N with 1 to {config.layers - 1} of the target's "
            "layers."
        )
    kept = replace(config, layers=layers, sliding=config.sliding[:layers])
    return DraftCandidate(
        name,
        {"layer_skip": layers},
        ModelMemory("layers", kept, dtype, shares_weights=True).caches(1, context),
    )


def _numbers(folder: Path) -> int:
    """Count the numbers in a folder's safetensors, whatever they are named."""
    found = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return found


def _is_heads(folder: Path) -> bool:
    """Tell heads of a target from a model of its own, which brings its tokenizer."""
    raw = read_json(folder / "config.json")
    known = "speculators_model_type" in raw or "medusa_num_heads" in raw or raw.get("model_type") == "medusa"
    return known or not (folder / "tokenizer.json").is_file()
