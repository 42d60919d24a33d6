"""Model configuration: ``config.json`` read into a checked, frozen description of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specclient.errors import CheckpointError
from specclient.runtime.masked_urls import mask_url
from specclient_local.model.checkpoint_files import (
    checkpoint_errors,
    finite_number,
    is_gguf,
    label,
    read_json,
    shown,
    whole_number,
)
from specclient_local.model.rope_config import MAX_POSITIONS, Rope, read_rope

BUNDLED = Path(__file__).parent.parent / "bundled"
"""Folder of the bundled checkpoints: a target, its draft and its heads."""

BUNDLED_MARK = "bundled:"  # prefix of their names
_HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")

DTYPES = ("float32", "bfloat16", "float16")

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
_MAX_LAYERS, _MAX_HEADS, _MAX_HEAD_DIM = 2**10, 2**14, 2**12
_MAX_WIDTH, _MAX_VOCABULARY = 2**22, 2**24
"""Bounds of a configuration, several times those of the largest published models."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Configuration of a Llama-family decoder, independent of the field names in ``config.json``.

    Attributes:
        context: maximum number of positions.
        window: positions that a sliding-window layer attends to, including its own; None if no layer has
            a sliding window.
        sliding: for each layer, whether it has a sliding window.
        tied: whether the head shares the embedding's weights.
        qkv_bias, o_bias, mlp_bias: whether these projections add a bias.
        qk_norm: whether queries and keys are RMS-normalised per head before rotation (Qwen 3).
        eos: end token ids.
        bos: token id that begins an empty prompt.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    context: int
    window: int | None
    sliding: tuple[bool, ...]
    rope: Rope
    tied: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    eos: tuple[int, ...]
    bos: int | None

    @property
    def parameters(self) -> int:
        """Number of matrix parameters, without biases and norms (a fraction of a percent)."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        layer = self.hidden_size * (attention + 3 * self.intermediate_size)
        return self.layers * layer + (1 if self.tied else 2) * self.vocab_size * self.hidden_size


def read_config(folder: Path) -> DecoderConfig:
    """Read a checkpoint's ``config.json``, and the end tokens of its ``generation_config.json``.

    Args:
        folder: the checkpoint's folder, or a GGUF file, whose metadata is read instead.

    Raises:
        CheckpointError: names the file, the value and the supported values.
        ConfigurationError: the package that reads GGUF files is not installed.
    """
    if is_gguf(folder):
        from specclient_local.model.gguf.metadata import config_fields  # noqa: PLC0415 - imports numpy

        with checkpoint_errors(folder):
            fields, ends = config_fields(folder)
        return decoder_config(fields, ends, folder)
    path = folder / "config.json"
    raw = read_json(path)
    with checkpoint_errors(folder):
        eos = end_tokens(folder, raw)
    return decoder_config(raw, eos, path)


def decoder_config(raw: Mapping[str, Any], eos: tuple[int, ...], path: Path) -> DecoderConfig:
    """Parse and check the fields of a ``config.json``.

    Args:
        raw: content of the file.
        eos: end token ids.
        path: the file, for error messages.

    Raises:
        CheckpointError: names the file, the value and the supported values.
    """
    kind = raw.get("model_type")
    if kind not in SUPPORTED:
        named = label(raw["architectures"]) if raw.get("architectures") else "unnamed"
        raise CheckpointError(
            f"{path}: model_type {shown(kind)} (architecture {named}) is not supported; "
            f"supported are {', '.join(SUPPORTED)}. Choose a checkpoint of one of these families, or load it "
            "with runner='hf'."
        )
    with checkpoint_errors(path):
        return _decoder_config(str(kind), raw, eos, path)


def _decoder_config(kind: str, raw: Mapping[str, Any], eos: tuple[int, ...], path: Path) -> DecoderConfig:
    _refuse_unknown(raw, path)

    def number(name: str, most: int, default: int | None = None) -> int:
        if default is not None and raw.get(name) is None:
            return default
        return whole_number(raw, name, path, 1, most)

    heads, hidden = number("num_attention_heads", _MAX_HEADS), number("hidden_size", _MAX_WIDTH)
    kv_heads = number("num_key_value_heads", _MAX_HEADS, heads)
    head_dim = number("head_dim", _MAX_HEAD_DIM, 128 if kind == "qwen3" else hidden // heads)
    layers, vocabulary = number("num_hidden_layers", _MAX_LAYERS), number("vocab_size", _MAX_VOCABULARY)
    rope = read_rope(raw, head_dim, path)
    window, sliding = _sliding(kind, raw, layers, path)
    if heads % kv_heads or head_dim % 2 or not head_dim:
        raise CheckpointError(
            f"{path}: num_attention_heads {heads} must be a multiple of num_key_value_heads {kv_heads}, "
            f"and head_dim {head_dim} even and above 0."
        )
    attention_bias = bool(raw.get("attention_bias", False)) and kind in ("llama", "qwen3")
    return DecoderConfig(
        model_type=kind,
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=number("intermediate_size", _MAX_WIDTH),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=finite_number(raw, "rms_norm_eps", 1e-6, path, least=0.0),
        context=_context(raw, rope, path),
        window=window,
        sliding=sliding,
        rope=rope,
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=attention_bias or kind == "qwen2",
        o_bias=attention_bias,
        mlp_bias=bool(raw.get("mlp_bias", False)) and kind == "llama",
        qk_norm=kind == "qwen3",
        eos=tuple(token for token in eos if 0 <= token < vocabulary),  # others are never generated
        bos=_start_token(raw, vocabulary),
    )


def _start_token(raw: Mapping[str, Any], vocabulary: int) -> int | None:
    """Return the start token; None if there is none, or none in the vocabulary."""
    bos = raw.get("bos_token_id")
    return bos if isinstance(bos, int) and not isinstance(bos, bool) and 0 <= bos < vocabulary else None


def _refuse_unknown(raw: Mapping[str, Any], path: Path) -> None:
    for name, allowed in (
        ("hidden_act", ("silu", "swish")),
        ("partial_rotary_factor", (None, 1, 1.0)),
    ):
        value = raw.get(name, allowed[0])
        if value not in allowed:
            raise CheckpointError(
                f"{path}: {name} is {shown(value)}; supported is {allowed[0]!r}. "
                "Choose a checkpoint of a plain Llama-family model, or load it with runner='hf'."
            )
    quantized = raw.get("quantization_config")
    if quantized is not None:
        kind = quantized.get("quant_method", "unnamed") if isinstance(quantized, dict) else quantized
        raise CheckpointError(
            f"{path}: quantization_config says that the weights are quantised ({label(kind)}), which is not "
            "supported. Choose the unquantised checkpoint, and quantise it at loading with quantize='int8'."
        )


def _sliding(
    kind: str, raw: Mapping[str, Any], layers: int, path: Path
) -> tuple[int | None, tuple[bool, ...]]:
    """Return the sliding window (None if no layer has one), and whether each layer uses it."""
    window = raw.get("sliding_window", 4096)  # the default of transformers
    switched_off = kind in ("qwen2", "qwen3") and not raw.get("use_sliding_window", False)
    if kind == "llama" or window is None or switched_off:
        return None, (False,) * layers
    if kind == "mistral":
        return _window(window, path), (True,) * layers
    full = int(raw.get("max_window_layers", 28))
    types = raw.get("layer_types") or [
        "sliding_attention" if i >= full else "full_attention" for i in range(layers)
    ]
    if len(types) != layers or set(types) - {"sliding_attention", "full_attention"}:
        raise CheckpointError(
            f"{path}: layer_types is {shown(types)}; supported are sliding_attention and full_attention, "
            f"one for each of the {layers} layers."
        )
    sliding = tuple(name == "sliding_attention" for name in types)
    if not any(sliding):
        return None, sliding
    return _window(window, path), sliding


def _window(value: Any, path: Path) -> int:
    return whole_number({"sliding_window": value}, "sliding_window", path, 1, MAX_POSITIONS)


def _context(raw: Mapping[str, Any], rope: Rope, path: Path) -> int:
    """Return the maximum positions; a yarn model may give only the original number (as Qwen 2.5's card)."""
    named = whole_number(raw, "max_position_embeddings", path, 2, MAX_POSITIONS)
    if rope.kind != "yarn":
        return named
    return min(max(named, int(rope.original_context * rope.factor)), MAX_POSITIONS)


def end_tokens(folder: Path, raw: Mapping[str, Any]) -> tuple[int, ...]:
    """Collect the end token ids; a chat model may list more in ``generation_config.json``."""
    path = folder / "generation_config.json"
    tables = [raw, read_json(path)] if path.is_file() else [raw]
    found: list[int] = []
    for table in tables:
        value = table.get("eos_token_id")
        ids = value if isinstance(value, list) else [] if value is None else [value]
        for token in ids:
            if not isinstance(token, int) or isinstance(token, bool):
                raise CheckpointError(f"{folder}: eos_token_id has {shown(token)}; it must be a token id.")
        found += ids
    return tuple(dict.fromkeys(found))


def short_name(path: str) -> str:
    """Return a short name of a checkpoint for messages: the last two parts of its path, or its hub id."""
    return "/".join(Path(path).parts[-2:])


def local_folder(name: str) -> Path | None:
    """Return the folder of a local checkpoint or its GGUF file, or None for a hub id. No network access.

    Args:
        name: folder, GGUF file, hub id, or ``bundled:`` and the name of a bundled checkpoint.

    Raises:
        CheckpointError: the name is none of these.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name.startswith(BUNDLED_MARK):
        known = {path.parent.name: path.parent for path in BUNDLED.glob("*/config.json")}
        if (own := name.removeprefix(BUNDLED_MARK)) not in known:
            there = ", ".join(BUNDLED_MARK + each for each in sorted(known))
            raise CheckpointError(f"{name} does not exist; bundled are {there}.")
        return known[own]
    if is_gguf(folder):
        if not folder.exists():
            raise CheckpointError(f"{name} does not exist; name a GGUF file, a folder, or a hub id.")
        return folder
    if folder.exists():
        raise CheckpointError(
            f"{name} is a file; name the folder that contains config.json and *.safetensors, or a GGUF file."
        )
    if not _HUB_ID.fullmatch(name):
        raise CheckpointError(
            f"{mask_url(name) if '://' in name else name} is not a folder; name one with config.json and "
            "*.safetensors, or a hub id as owner/name."
        )
    return None
