"""Turn a checkpoint's ``config.json`` into a checked, frozen description of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specclient.errors import CheckpointError

DTYPES = ("float32", "bfloat16", "float16")

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
ROPE_KINDS = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding (Su et al., arXiv 2104.09864) and how it is stretched.

    Attributes:
        theta: base of the frequencies.
        kind: ``default``, ``linear`` (positions divided by ``factor``) or ``llama3`` (low frequencies
            divided by ``factor``, high ones kept, those between blended).
        original_context: tokens the model was first trained on; ``llama3`` only.
    """

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Shape of a Llama-family decoder, whatever its ``config.json`` calls things.

    Attributes:
        context: most positions the model may see; a sliding window caps it, since within the window
            sliding attention is full attention.
        qkv_bias, o_bias, mlp_bias: whether those projections add a bias.
        qk_norm: whether queries and keys are RMS-normalised per head before rotation (Qwen 3).
        eos: ids that end an answer; ``bos``: id that begins an empty prompt.
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
        """Numbers in the matrices; biases and norms, a fraction of a percent, are left out."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        layer = self.hidden_size * (attention + 3 * self.intermediate_size)
        return self.layers * layer + (1 if self.tied else 2) * self.vocab_size * self.hidden_size


def read_config(folder: Path) -> DecoderConfig:
    """Read ``config.json`` (and the end tokens of ``generation_config.json``) of a checkpoint folder.

    Raises:
        CheckpointError: naming the file, the value and what is supported.
    """
    path = folder / "config.json"
    raw = _read_json(path)
    kind = raw.get("model_type")
    if kind not in SUPPORTED:
        named = ", ".join(raw.get("architectures") or []) or "unnamed"
        raise CheckpointError(
            f"{path}: model_type {kind!r} (architecture {named}) is not supported; "
            f"supported are {', '.join(SUPPORTED)}. Choose a checkpoint of one of these families."
        )
    try:
        return _decoder_config(str(kind), raw, _end_tokens(folder, raw), path)
    except KeyError as error:
        raise CheckpointError(
            f"{path}: {error.args[0]!r} is missing; the file is no whole config.json."
        ) from None
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: a value has the wrong type ({error}).") from error


def _decoder_config(kind: str, raw: Mapping[str, Any], eos: tuple[int, ...], path: Path) -> DecoderConfig:
    _refuse_unknown(raw, path)
    heads, hidden = int(raw["num_attention_heads"]), int(raw["hidden_size"])
    kv_heads = int(_or(raw.get("num_key_value_heads"), heads))
    head_dim = int(_or(raw.get("head_dim"), 128 if kind == "qwen3" else hidden // heads))
    context = int(raw["max_position_embeddings"])
    if heads % kv_heads or head_dim % 2:
        raise CheckpointError(
            f"{path}: num_attention_heads {heads} must be a multiple of num_key_value_heads {kv_heads}, "
            f"and head_dim {head_dim} even."
        )
    attention_bias = bool(raw.get("attention_bias", False)) and kind in ("llama", "qwen3")
    return DecoderConfig(
        model_type=kind,
        vocab_size=int(raw["vocab_size"]),
        hidden_size=hidden,
        intermediate_size=int(raw["intermediate_size"]),
        layers=int(raw["num_hidden_layers"]),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        context=min(context, _window(kind, raw) or context),
        rope=_rope(raw, context, path),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=attention_bias or kind == "qwen2",
        o_bias=attention_bias,
        mlp_bias=bool(raw.get("mlp_bias", False)) and kind == "llama",
        qk_norm=kind == "qwen3",
        eos=eos,
        bos=raw.get("bos_token_id"),
    )


def _refuse_unknown(raw: Mapping[str, Any], path: Path) -> None:
    for name, allowed in (
        ("hidden_act", ("silu", "swish")),
        ("quantization_config", (None,)),
        ("partial_rotary_factor", (None, 1, 1.0)),
    ):
        value = raw.get(name, allowed[0])
        if value not in allowed:
            raise CheckpointError(
                f"{path}: {name} is {value!r}; supported is {allowed[0]!r}. "
                "Choose the unquantised checkpoint of a plain Llama-family model."
            )


def _window(kind: str, raw: Mapping[str, Any]) -> int | None:
    """Return the sliding window in use, in tokens, or None."""
    window = raw.get("sliding_window")
    if kind == "llama" or (kind in ("qwen2", "qwen3") and not raw.get("use_sliding_window", False)):
        return None
    return None if window is None else int(window)


def _rope(raw: Mapping[str, Any], context: int, path: Path) -> Rope:
    """Read RoPE as transformers 5 (``rope_parameters``) or 4 (``rope_theta``, ``rope_scaling``) writes it."""
    table = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = table.get("rope_type", table.get("type", "default"))
    if kind not in ROPE_KINDS:
        raise CheckpointError(
            f"{path}: RoPE type {kind!r} is not supported; supported are {', '.join(ROPE_KINDS)}."
        )
    return Rope(
        theta=float(_or(table.get("rope_theta"), raw.get("rope_theta", 10_000.0))),
        kind=str(kind),
        factor=float(table.get("factor", 1.0)),
        low_freq_factor=float(table.get("low_freq_factor", 1.0)),
        high_freq_factor=float(table.get("high_freq_factor", 4.0)),
        original_context=int(table.get("original_max_position_embeddings", context)),
    )


def _end_tokens(folder: Path, raw: Mapping[str, Any]) -> tuple[int, ...]:
    """Collect the end tokens; a chat model's extra ones stand in ``generation_config.json`` alone."""
    path = folder / "generation_config.json"
    tables = [raw, _read_json(path)] if path.is_file() else [raw]
    found: list[int] = []
    for table in tables:
        value = table.get("eos_token_id")
        found += value if isinstance(value, list) else [] if value is None else [int(value)]
    return tuple(dict.fromkeys(found))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing; name a folder with config.json, tokenizer.json and *.safetensors."
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not readable JSON ({error}); download the checkpoint again."
        ) from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds a {type(raw).__name__} where an object is expected.")
    return raw


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
