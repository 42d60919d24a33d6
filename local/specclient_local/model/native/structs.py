"""Turn the C sources' structures into Python's: what the library is told of matrices, models and passes."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_int64, c_void_p


class LinearStruct(Structure):
    """What the library knows of a matrix: where its panels lie, its bias and scale, its size and numbers."""

    _fields_ = [
        *((name, c_void_p) for name in ("panels", "bias", "scale")),
        *((name, c_int64) for name in ("outputs", "inputs", "kind")),
    ]


class LayerStruct(Structure):
    """A layer's norms and matrices, and whether it slides."""

    _fields_ = [
        *((name, c_void_p) for name in ("input_norm", "post_norm", "qk_norm")),
        *((name, LinearStruct) for name in ("qkv", "o", "gate_up", "down")),
        ("sliding", c_int64),
    ]


class FusionStruct(Structure):
    """How an EAGLE head makes a row of a token and a state."""

    _fields_ = [
        *((name, c_void_p) for name in ("token_norm", "state_norm")),
        ("fc", LinearStruct),
        *((name, c_int64) for name in ("normed_residual", "normed_states")),
    ]


class ModelStruct(Structure):
    """A model's shape and parameters; ``fusion`` and ``vocab_ids`` are an EAGLE head's."""

    _fields_ = [
        *((name, c_int64) for name in ("hidden", "heads", "kv_heads", "dim", "ff", "layers")),
        ("eps", c_double),
        ("embedding", c_void_p),
        ("norm", c_void_p),
        ("head", LinearStruct),
        ("layer", POINTER(LayerStruct)),
        ("fusion", POINTER(FusionStruct)),
        ("vocab_ids", c_void_p),
    ]


class SpanStruct(Structure):
    """Neighbouring rows of a pass that are one request's; see
    :class:`specclient_local.model.pass_spans.PassSpan`."""

    _fields_ = [
        *((name, c_int64) for name in ("first", "rows", "start", "open", "length")),
        *((name, c_int64) for name in ("mask_stride", "window_stride")),
        *((name, c_void_p) for name in ("mask", "window", "cache")),
    ]


class PassStruct(Structure):
    """A pass: its model, rows and scratch memory, and where its results go."""

    _fields_ = [
        ("model", POINTER(ModelStruct)),
        *((name, c_int64) for name in ("rows", "spans", "wanted", "capacity", "threads")),
        *((name, c_void_p) for name in ("ids", "positions", "wanted_rows", "turns", "span")),
        *((name, c_void_p) for name in ("x", "h", "qkv", "attended", "gated", "scores", "logits")),
        ("taps", c_int64),
        *((name, c_void_p) for name in ("tapped", "features", "given", "states")),
    ]


class RoundStruct(Structure):
    """A greedy round of one request: who guesses, who verifies, and what comes of it."""

    _fields_ = [
        *((name, POINTER(PassStruct)) for name in ("target", "draft")),
        *((name, c_int64) for name in ("guesses", "vocab")),
        *((name, c_void_p) for name in ("ids", "values")),
        *((name, c_int64) for name in ("accepted", "token")),
    ]


class MedusaStruct(Structure):
    """Rows of states and the Medusa heads that read them."""

    _fields_ = [
        *((name, c_int64) for name in ("heads", "blocks", "rows", "threads")),
        *((name, POINTER(LinearStruct)) for name in ("block", "head")),
        ("shared", c_int64),
        ("eps", c_double),
        *((name, c_void_p) for name in ("norm", "given", "x", "h", "logits")),
    ]
