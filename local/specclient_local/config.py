"""Turn a checkpoint's ``config.json`` and a caller's settings into checked, frozen values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeGuard

from specclient.errors import BadRequestError, CheckpointError

Method = Literal["plain", "draft", "prediction"]
METHODS: tuple[Method, ...] = ("plain", "draft", "prediction")
ENGINE_METHODS: tuple[Method, ...] = ("plain", "draft")
"""What an engine can be loaded to do; a prediction comes with its request."""

DTYPES = ("float32", "bfloat16", "float16")
MAX_DRAFT_LENGTH = 8
MAX_PREDICTED_LENGTH = 15
MAX_STOPS = 16
MAX_LOGPROBS = 20

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


class Parameters(TypedDict, total=False):
    """The fields of :class:`SamplingParams` as keyword arguments."""

    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    stop: str | Sequence[str] | None
    draft_length: int | None
    method: Method | None
    logprobs: int | None
    prompt_logprobs: int | None
    prediction: str | Sequence[int] | None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How an answer is drawn and when it ends; checked on construction.

    Attributes:
        max_tokens: most new tokens, at least 1, or 0 to only read the prompt (with ``prompt_logprobs``);
            None means up to the context.
        temperature: 0 is greedy; any finite value above it divides the logits.
        top_p: smallest set of tokens with this share of the probability, in (0, 1].
        top_k: that many most likely tokens; 0 keeps all.
        seed: of the request's own random stream; None draws one.
        stop: strings that end the answer and are not part of it; one string or up to 16.
        draft_length: draft tokens a round, 0 to 8; None adapts it to the measured acceptance.
        method: ``plain``, ``draft`` or ``prediction``; None takes ``prediction`` where there is one, else
            the engine's.
        logprobs: how many alternatives each new token is told with, 0 to 20; None tells no log-probabilities.
        prompt_logprobs: the same for the tokens of the prompt.
        prediction: what the answer is expected to be, or to have much of: text, or token ids. It makes the
            answer faster where it is right, and never another one.

    Raises:
        BadRequestError: naming the parameter, the value and what is allowed.
    """

    max_tokens: int | None = 128
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: Sequence[str] | str | None = ()
    draft_length: int | None = None
    method: Method | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prediction: str | Sequence[int] | None = None

    def __post_init__(self) -> None:
        least = 1 if self.prompt_logprobs is None else 0
        tokens = f"an integer of at least {least}, or None"
        _check("max_tokens", self.max_tokens, tokens, _optional(_integer(least)))
        _check("temperature", self.temperature, "a finite number of at least 0", _number(0.0, math.inf))
        _check("top_p", self.top_p, "a number above 0 and at most 1", _number(0.0, 1.0, open_low=True))
        _check("top_k", self.top_k, "an integer of at least 0 (0 keeps all tokens)", _integer(0))
        _check(
            "seed", self.seed, "an integer from -2**63 to 2**64 - 1", _optional(_integer(-(2**63), 2**64 - 1))
        )
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        _check("stop", stop, f"up to {MAX_STOPS} non-empty strings", _stops)
        object.__setattr__(self, "stop", tuple(stop or ()))
        drafts = f"an integer from 0 to {MAX_DRAFT_LENGTH}, or None"
        _check("draft_length", self.draft_length, drafts, _optional(_integer(0, MAX_DRAFT_LENGTH)))
        _check(
            "method", self.method, f"one of {', '.join(METHODS)}, or None", lambda v: v in (None, *METHODS)
        )
        if self.method == "prediction" and self.prediction is None:
            raise bad_parameter("method", "prediction", "plain or draft, or to give a prediction with it")
        told = f"an integer from 0 to {MAX_LOGPROBS}, or None"
        _check("logprobs", self.logprobs, told, _optional(_integer(0, MAX_LOGPROBS)))
        _check("prompt_logprobs", self.prompt_logprobs, told, _optional(_integer(0, MAX_LOGPROBS)))


def bad_parameter(name: str, value: object, allowed: str) -> BadRequestError:
    """Return (not raise) the error for a parameter with an unusable value."""
    error = BadRequestError(f"{name} is {value!r}; allowed is {allowed}.")
    error.param = name
    return error


def _check(name: str, value: object, allowed: str, usable: Any) -> None:
    if not usable(value):
        raise bad_parameter(name, value, allowed)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(low: float, high: float, *, open_low: bool = False) -> Any:
    def usable(value: object) -> bool:
        return (
            _is_number(value)
            and math.isfinite(value)
            and (low < value if open_low else low <= value)
            and value <= high
        )

    return usable


def _integer(low: int, high: int | None = None) -> Any:
    def usable(value: object) -> bool:
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and low <= value
            and (high is None or value <= high)
        )

    return usable


def _optional(usable: Any) -> Any:
    return lambda value: value is None or usable(value)


def _stops(value: object) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, list | tuple)
        and len(value) <= MAX_STOPS
        and all(isinstance(s, str) and s for s in value)
    )
