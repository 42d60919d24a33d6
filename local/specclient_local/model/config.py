"""Model configuration: ``config.json`` read into a checked, frozen description of the model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specclient.errors import CheckpointError
from specclient.runtime.masked_urls import mask_url
from specclient_local.model.checkpoint_files import checkpoint_errors, label, read_json, shown, whole_number

BUNDLED = Path(__file__).parent.parent / "bundled"
"""Folder of the bundled checkpoints: a target, its draft and its heads."""

BUNDLED_MARK = "bundled:"  # prefix of their names
_HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")

DTYPES = ("float32", "bfloat16", "float16")

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
_MAX_LAYERS, _MAX_HEADS, _MAX_HEAD_DIM = 2**10, 2**14, 2**12
_MAX_WIDTH, _MAX_VOCABULARY, _MAX_POSITIONS = 2**22, 2**24, 2**31 - 1
"""Bounds of a configuration, several times those of the largest published models."""

_LEAST_FACTOR, _MAX_FACTOR = 1e-6, 1e15
"""Bounds of the numbers of RoPE, within which its formulas stay finite."""

ROPE_KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")


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

    Raises:
        CheckpointError: names the file, the value and the supported values.
    """
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
    rope = _rope(raw, head_dim, path)
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
        norm_eps=_number(raw, "rms_norm_eps", 1e-6, path, least=0.0),
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


def _number(
    table: Mapping[str, Any], name: str, default: float, path: Path, *, least: float = _LEAST_FACTOR
) -> float:
    """Return a finite number of a ``config.json`` in the range that formulas can take."""
    value = _or(table.get(name), default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= _MAX_FACTOR:
        raise CheckpointError(
            f"{path}: {name} is {shown(value)}; it must be a number from {least:g} to {_MAX_FACTOR:g}."
        )
    return float(value)


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
    return whole_number({"sliding_window": value}, "sliding_window", path, 1, _MAX_POSITIONS)


def _context(raw: Mapping[str, Any], rope: Rope, path: Path) -> int:
    """Return the maximum positions; a yarn model may give only the original number (as Qwen 2.5's card)."""
    named = whole_number(raw, "max_position_embeddings", path, 2, _MAX_POSITIONS)
    if rope.kind != "yarn":
        return named
    return min(max(named, int(rope.original_context * rope.factor)), _MAX_POSITIONS)


def _rope(raw: Mapping[str, Any], head_dim: int, path: Path) -> Rope:
    """Read RoPE fields as in transformers 5 (``rope_parameters``) or 4 (``rope_theta``, ``rope_scaling``)."""
    table = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = table.get("rope_type", table.get("type", "default"))
    if kind not in ROPE_KINDS:
        raise CheckpointError(
            f"{path}: RoPE type {shown(kind)} is not supported; supported are {', '.join(ROPE_KINDS)}."
        )
    if table.get("partial_rotary_factor", 1.0) != 1.0:
        raise CheckpointError(
            f"{path}: partial_rotary_factor is {shown(table['partial_rotary_factor'])}; supported is 1.0. "
            "Load it with runner='hf'."
        )
    most = whole_number(raw, "max_position_embeddings", path, 2, _MAX_POSITIONS)
    # Some checkpoints (the Phi 3 family) have this field outside the table; that one takes precedence.
    name = "original_max_position_embeddings"
    original = _or(raw.get(name), table.get(name, most))
    original = whole_number({name: original}, name, path, 2, _MAX_POSITIONS)
    stretched = most / original if kind in ("yarn", "longrope") else 1.0
    factor = _number(table, "factor", stretched, path)
    short, long = (_factors(table, f"{n}_factor", path) for n in ("short", "long"))
    if kind == "longrope" and not len(short) == len(long) == head_dim // 2:
        raise CheckpointError(
            f"{path}: short_factor has {len(short)} and long_factor {len(long)} numbers; "
            f"longrope needs {head_dim // 2} of each, half of head_dim."
        )
    low, high = (_number(table, f"{n}_freq_factor", d, path) for n, d in (("low", 1.0), ("high", 4.0)))
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
        beta_fast=_number({"beta_fast": table.get("beta_fast") or 32.0}, "beta_fast", 32.0, path),
        beta_slow=_number({"beta_slow": table.get("beta_slow") or 1.0}, "beta_slow", 1.0, path),
        truncate=bool(table.get("truncate", True)),
        short_factor=short,
        long_factor=long,
    )


def _theta(raw: Mapping[str, Any], table: Mapping[str, Any], path: Path) -> float:
    """Return the base of the frequencies; above 1, because yarn divides by its logarithm."""
    value = _or(table.get("rope_theta"), raw.get("rope_theta", 10_000.0))
    return _number({"rope_theta": value}, "rope_theta", 10_000.0, path, least=1.0 + _LEAST_FACTOR)


def _factors(table: Mapping[str, Any], name: str, path: Path) -> tuple[float, ...]:
    """Return longrope's factors of each frequency."""
    return tuple(_number({name: value}, name, 1.0, path) for value in table.get(name) or ())


def _attention_factor(kind: str, table: Mapping[str, Any], factor: float, original: int, path: Path) -> float:
    """Return the factor of queries and keys: the configured one, else the formula of the kind's paper."""

    def yarn(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0

    given = table.get("attention_factor")
    if kind not in ("yarn", "longrope"):
        return 1.0
    if given is not None:
        return _number(table, "attention_factor", 1.0, path)
    if kind == "longrope":
        return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1.0 else 1.0
    above, below = table.get("mscale"), table.get("mscale_all_dim")
    ratio = yarn(above) / yarn(below) if above and below else yarn(1.0)
    return _number({"mscale": ratio}, "mscale", 1.0, path)


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


def local_folder(name: str) -> Path | None:
    """Return the folder of a local checkpoint, or None for a hub id. No network access.

    Args:
        name: folder, hub id, or ``bundled:`` and the name of a bundled checkpoint.

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
    if folder.exists():
        raise CheckpointError(
            f"{name} is a file; name the folder that contains config.json and *.safetensors."
        )
    if not _HUB_ID.fullmatch(name):
        raise CheckpointError(
            f"{mask_url(name) if '://' in name else name} is not a folder; name one with config.json and "
            "*.safetensors, or a hub id as owner/name."
        )
    return None


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
