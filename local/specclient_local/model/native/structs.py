"""The structures of the C sources as ctypes: matrices, layers, models, passes and rounds.

The order of the fields is that of the C structs in ``matmul.h``, ``row_ops.h``, ``forward_pass.h``,
``pack.h`` and ``entry_points.c``.
"""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_int64, c_void_p


class LinearStruct(Structure):
    """``Linear``: a packed matrix with its bias, scale, size and element type."""

    _fields_ = [
        *((name, c_void_p) for name in ("panels", "bias", "scale")),
        *((name, c_int64) for name in ("outputs", "inputs", "kind")),
    ]


class LayerStruct(Structure):
    """``Layer``: a layer's norms and matrices, and whether it has a sliding window."""

    _fields_ = [
        *((name, c_void_p) for name in ("input_norm", "post_norm", "qk_norm")),
        *((name, LinearStruct) for name in ("qkv", "o", "gate_up", "down")),
        ("sliding", c_int64),
    ]


class FusionStruct(Structure):
    """``Fusion``: how an EAGLE head combines a token and a state."""

    _fields_ = [
        *((name, c_void_p) for name in ("token_norm", "state_norm")),
        ("fc", LinearStruct),
        *((name, c_int64) for name in ("normed_residual", "normed_states")),
    ]


class ModelStruct(Structure):
    """``Model``: a model's shape and parameters; ``fusion`` and ``vocab_ids`` are used by EAGLE heads
    only."""

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
    """``Span``: a request's neighbouring rows in a pass.

    See :class:`specclient_local.model.pass_spans.PassSpan`.
    """

    _fields_ = [
        *((name, c_int64) for name in ("first", "rows", "start", "open", "length")),
        *((name, c_int64) for name in ("mask_stride", "window_stride")),
        *((name, c_void_p) for name in ("mask", "window", "cache")),
        ("causal", c_int64),
    ]


class PassStruct(Structure):
    """``Pass``: a pass's model, rows, scratch memory and outputs."""

    _fields_ = [
        ("model", POINTER(ModelStruct)),
        *((name, c_int64) for name in ("rows", "spans", "wanted", "capacity", "threads", "is_bfloat16")),
        *((name, c_void_p) for name in ("ids", "positions", "wanted_rows", "turns", "span")),
        *(
            (name, c_void_p)
            for name in ("x", "h", "qkv", "attended", "gated", "scores", "logits", "converted")
        ),
        ("taps", c_int64),
        *((name, c_void_p) for name in ("tapped", "features", "given", "states")),
    ]


class RoundStruct(Structure):
    """``GreedyRound``: a greedy round of some requests: its first two passes, and its results."""

    _fields_ = [
        *((name, POINTER(PassStruct)) for name in ("target", "draft")),
        ("drafting", c_void_p),
        ("vocab", c_int64),
        *((name, c_void_p) for name in ("ids", "drafted", "accepted", "tokens", "values")),
    ]


class MedusaStruct(Structure):
    """``Medusa``: rows of hidden states and the heads that read them."""

    _fields_ = [
        *((name, c_int64) for name in ("heads", "blocks", "rows", "threads")),
        *((name, POINTER(LinearStruct)) for name in ("block", "head")),
        ("shared", c_int64),
        ("eps", c_double),
        *((name, c_void_p) for name in ("norm", "given", "x", "h", "logits", "converted")),
    ]


class PackingStruct(Structure):
    """``Packing``: a matrix to pack, and its weights."""

    _fields_ = [
        ("linear", POINTER(LinearStruct)),
        ("weight", c_void_p),
        *((name, c_int64) for name in ("inputs", "is_bfloat16")),
        ("row", c_void_p),
    ]
