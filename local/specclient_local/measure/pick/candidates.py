"""Candidate drafts for a target: parse their names into load options and estimate their memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specclient.errors import ConfigurationError
from specclient_local.drafting.modelless import MODELLESS_ENGINE_METHODS
from specclient_local.engine.engine import Engine
from specclient_local.loading.memory_plan import compute_and_weight_dtypes
from specclient_local.loading.model_loader import read_any_config, rounded_cache_dtype
from specclient_local.loading.model_memory import ModelMemory
from specclient_local.model.checkpoint_files import read_json
from specclient_local.model.config import DecoderConfig, read_config
from specclient_local.model.devices import resolve_device
from specclient_local.model.heads.mtp_checkpoint import read_mtp_shape
from specclient_local.model.weights import count_numbers, open_tensors, resolve_checkpoint, tensor_errors
from specclient_local.request.params import Method

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class DraftCandidate:
    """A draft that is compared with others for one target.

    Attributes:
        name: a method without a model (``ngram``), ``layer_skip``, ``layer_skip:N``, a folder or a hub id.
        load_options: keyword arguments of ``Engine.load`` that select it.
        memory: bytes that it needs in addition to the target, including one slot's KV cache; for heads
            without their caches.
    """

    name: str
    load_options: Mapping[str, Any]
    memory: int

    def method(self, engine: Engine) -> Method:
        """Return the candidate's method in an engine that was loaded with it."""
        if "heads" in self.load_options:
            heads: tuple[Method, ...] = ("medusa", "eagle", "peagle", "mtp")
            return next(method for method in heads if method in engine.methods)
        if "layer_skip" in self.load_options:
            return "layer_skip"
        if "draft" in self.load_options:
            return "draft"
        return next(method for method in MODELLESS_ENGINE_METHODS if method == self.name)


def parse_candidate(
    name: str, target: Path, *, context: int, dtype: str = "float32", device: str = "cpu"
) -> DraftCandidate:
    """Parse a candidate's name.

    Args:
        name: a method without a model (``ngram``); ``mtp`` for the head that the target ships; ``layer_skip``
            (the first half of the target's layers) or ``layer_skip:N``; a folder or hub id of a draft model,
            or of Medusa, EAGLE or P-EAGLE heads.
        target: the target's checkpoint folder.
        context: positions of a slot's KV cache.
        dtype: data type of computation.
        device: device that it runs on.

    Raises:
        CheckpointError: the checkpoint does not exist or is invalid.
        ConfigurationError: the target does not have so many layers.
    """
    if name in MODELLESS_ENGINE_METHODS:
        return DraftCandidate(name, {}, 0)
    method, _, count = name.partition(":")
    if method == "layer_skip":
        return _layer_skip_candidate(name, count, target, context=context, dtype=dtype, device=device)
    if name == "mtp":
        weights = read_mtp_shape(target, read_config(target)).parameters
        return DraftCandidate(name, {"heads": str(target)}, weights * _BYTES[dtype])
    folder = resolve_checkpoint(name)
    if _is_heads(folder):
        return DraftCandidate(name, {"heads": str(folder)}, _count_weights(folder) * _BYTES[dtype])
    config = read_any_config(folder)
    memory = count_numbers(folder) * _BYTES[dtype]
    if isinstance(config, DecoderConfig):
        compute_dtype, weight_dtype = compute_and_weight_dtypes(config, dtype, None, resolve_device(device))
        kv_dtype = rounded_cache_dtype(config, dtype, None, str(resolve_device(device)))
        planned = ModelMemory("draft", config, compute_dtype, kv_dtype, quantize=weight_dtype)
        memory = planned.weights + planned.caches(1, context)
    return DraftCandidate(name, {"draft": str(folder)}, memory)


def _layer_skip_candidate(
    name: str, count: str, target: Path, *, context: int, dtype: str, device: str
) -> DraftCandidate:
    config = read_any_config(target)
    if not isinstance(config, DecoderConfig):
        raise ConfigurationError(
            f"candidate is {name!r}, but transformers runs the target; only models that the built-in "
            "decoder runs can skip layers. Leave it out."
        )
    layers = max(1, config.layers // 2) if not count else int(count) if count.isdecimal() else 0
    if not 1 <= layers < config.layers:
        raise ConfigurationError(
            f"candidate is {name!r}; allowed is layer_skip:N with 1 to {config.layers - 1} of the target's "
            "layers."
        )
    kept = replace(config, layers=layers, sliding=config.sliding[:layers])
    kv_dtype = rounded_cache_dtype(config, dtype, None, str(resolve_device(device)))
    dtype, _ = compute_and_weight_dtypes(config, dtype, None, resolve_device(device))
    return DraftCandidate(
        name,
        {"layer_skip": layers},
        ModelMemory("layers", kept, dtype, kv_dtype, shares_weights=True).caches(1, context),
    )


def _count_weights(folder: Path) -> int:
    """Return the number of weights in a folder's safetensors files."""
    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        with open_tensors(path) as file, tensor_errors(path):
            count += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return count


def _is_heads(folder: Path) -> bool:
    """Return whether a folder has heads of a target rather than a model, which has its own tokenizer."""
    raw = read_json(folder / "config.json")
    known = "speculators_model_type" in raw or "medusa_num_heads" in raw or raw.get("model_type") == "medusa"
    return known or not (folder / "tokenizer.json").is_file()
