"""A family of models: how its configuration and its tensors are read. The base is Llama's layout.

Subclasses override what differs. Their fields are tables of names, their methods the few things that no table
says; :mod:`specclient_local.model.eager_passes` computes every combination.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from specclient.errors import CheckpointError
from specclient_local.model.architecture import DecoderConfig, ExpertsConfig
from specclient_local.model.families.fields import (
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    ConfigFields,
)
from specclient_local.model.rope_config import MAX_POSITIONS, Rope

if TYPE_CHECKING:
    from torch import Tensor

    from specclient_local.model.layer_weights import ExpertWeights, LayerTensors, LayerWeights


class Family:
    """The layout of Llama, and the base of the others.

    Attributes:
        model_types: values of ``model_type`` in ``config.json``.
        activations: allowed values of ``hidden_act``; the first one is the default.
        norms: names of a layer's norms in a checkpoint, by the fields of :class:`LayerWeights`.
        biased: whether the field ``attention_bias`` adds biases to the attention's projections.
        norm_offset: number that is added to the weights of norms.
        root: begin of the names of the decoder's tensors.
    """

    model_types: ClassVar[tuple[str, ...]] = ()
    activations: ClassVar[tuple[str, ...]] = ("silu", "swish")
    activation_field: ClassVar[str] = "hidden_act"
    norms: ClassVar[Mapping[str, str]] = {
        "input_norm": "input_layernorm",
        "post_norm": "post_attention_layernorm",
    }
    biased: ClassVar[bool] = False
    norm_offset: ClassVar[float] = 0.0
    root: ClassVar[str] = "model."

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration.

        Raises:
            KeyError: a field is missing.
            CheckpointError: names the file, the value and the supported values.
        """
        f = fields
        f.only(self.activation_field, *self.activations)
        heads, hidden = f.number("num_attention_heads", MAX_HEADS), f.number("hidden_size", MAX_WIDTH)
        kv_heads = f.number("num_key_value_heads", MAX_HEADS, heads)
        head_dim = f.number("head_dim", MAX_HEAD_DIM, self.head_dim(hidden, heads))
        layers, vocabulary = f.number("num_hidden_layers", MAX_LAYERS), f.number("vocab_size", MAX_VOCABULARY)
        rope = self.rope(f, head_dim)
        window, sliding = self.windows(f, layers)
        if heads % kv_heads or head_dim % 2 or not head_dim:
            raise CheckpointError(
                f"{f.path}: num_attention_heads {heads} must be a multiple of num_key_value_heads "
                f"{kv_heads}, and head_dim {head_dim} even and above 0."
            )
        attention_bias = self.biased and f.flag("attention_bias")
        return DecoderConfig(
            model_type=f.kind,
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=f.number("intermediate_size", MAX_WIDTH),
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            norm_eps=f.real("rms_norm_eps", 1e-6),
            context=_context(f, rope),
            window=window if any(sliding) else None,
            sliding=sliding if window is not None else (False,) * layers,
            rope=rope,
            tied=f.flag("tie_word_embeddings"),
            qkv_bias=attention_bias,
            o_bias=attention_bias,
            mlp_bias=False,
            qk_norm=False,
            eos=tuple(token for token in f.eos if 0 <= token < vocabulary),  # others are never generated
            bos=_start_token(f, vocabulary),
        )

    def head_dim(self, hidden: int, heads: int) -> int:
        """Return the size of a head where ``config.json`` does not have it."""
        return hidden // heads

    def rope(self, fields: ConfigFields, head_dim: int) -> Rope:
        """Read the rotary embeddings of layers without a sliding window."""
        fields.refuse_partial_rotation()
        return fields.rope(head_dim)

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return the width of sliding windows, and for each layer whether it has one."""
        del fields
        return None, (False,) * layers

    def norm(self, weight: Tensor) -> Tensor:
        """Return the factors of a norm, given its weight."""
        return weight if not self.norm_offset else weight.float() + self.norm_offset

    def layer(self, tensors: LayerTensors) -> LayerWeights:
        """Read and fuse the tensors of a layer.

        Raises:
            CheckpointError: names the tensor, its shape and the expected one.
        """
        from specclient_local.model.layer_weights import LayerWeights, no_weight  # noqa: PLC0415 - imports torch

        t, c = tensors, tensors.config
        norms = {
            field: self.norm(t.read(f"{name}.weight", c.hidden_size)) for field, name in self.norms.items()
        }
        qkv, qkv_bias = self.qkv(t)
        sparse = c.experts is not None and c.experts.sparse[t.index]
        gate_up, down = (no_weight(), no_weight()) if sparse else (self.gate_up(t), self.down(t))
        router, router_bias = self.router(t) if sparse else (None, None)
        biases = c.mlp_bias and not sparse
        return LayerWeights(
            input_norm=norms.get("input_norm", no_weight()),
            qkv=t.hold(qkv),
            qkv_bias=qkv_bias,
            qk_norm=self.qk_norm(t) if c.qk_norm else None,
            o=self.o(t),
            o_bias=t.read("self_attn.o_proj.bias", c.hidden_size) if c.o_bias else None,
            post_norm=norms.get("post_norm", no_weight()),
            gate_up=gate_up,
            gate_up_bias=t.join([t.read(f"mlp.{n}_proj.bias", c.intermediate_size) for n in ("gate", "up")])
            if biases
            else None,
            down=down,
            down_bias=t.read("mlp.down_proj.bias", c.hidden_size) if biases else None,
            attention_output_norm=norms.get("attention_output_norm"),
            mlp_output_norm=norms.get("mlp_output_norm"),
            sinks=t.read("self_attn.sinks", c.heads) if c.sinks else None,
            router=router,
            router_bias=router_bias,
            experts=self.experts(t, c.experts) if sparse and c.experts is not None else (),
        )

    def qkv(self, tensors: LayerTensors) -> tuple[Tensor, Tensor | None]:
        """Return the fused weight ``[(H + 2 KV) D, hidden]`` of queries, keys and values, and its bias."""
        c = tensors.config

        def projections(end: str, *rest: int) -> Tensor:
            heads = {"q": c.heads, "k": c.kv_heads, "v": c.kv_heads}
            rows = [
                tensors.read(f"self_attn.{n}_proj.{end}", h * c.head_dim, *rest) for n, h in heads.items()
            ]
            return tensors.join([*map(tensors.in_pairs, rows[:2]), rows[2]])

        return projections("weight", c.hidden_size), projections("bias") if c.qkv_bias else None

    def qk_norm(self, tensors: LayerTensors) -> Tensor:
        """Return the factors ``[H + KV, D]`` of the norms of queries and keys."""
        c = tensors.config
        heads = {"q": c.heads, "k": c.kv_heads}
        if c.whole_qk_norm:
            rows = [tensors.read(f"self_attn.{n}_norm.weight", h * c.head_dim) for n, h in heads.items()]
            return tensors.join([tensors.in_pairs(self.norm(row)) for row in rows]).view(-1, c.head_dim)
        rows = [tensors.read(f"self_attn.{n}_norm.weight", c.head_dim) for n in heads]
        norms = [tensors.in_pairs(self.norm(row)) for row in rows]
        return tensors.join([n.expand(h, c.head_dim) for n, h in zip(norms, heads.values(), strict=True)])

    @staticmethod
    def o(tensors: LayerTensors) -> Tensor:
        """Return the weight ``[hidden, H D]`` of the attention's output projection."""
        c = tensors.config
        return tensors.hold(tensors.read("self_attn.o_proj.weight", c.hidden_size, c.heads * c.head_dim))

    def gate_up(self, tensors: LayerTensors) -> Tensor:
        """Return the fused weight ``[2 ff, hidden]`` of a feed-forward network."""
        c = tensors.config
        halves = [
            tensors.read(f"mlp.{n}_proj.weight", c.intermediate_size, c.hidden_size) for n in ("gate", "up")
        ]
        return tensors.hold(tensors.join(halves))

    def down(self, tensors: LayerTensors) -> Tensor:
        """Return the weight ``[hidden, ff]`` of a feed-forward network."""
        c = tensors.config
        return tensors.hold(tensors.read("mlp.down_proj.weight", c.hidden_size, c.intermediate_size))

    def router(self, tensors: LayerTensors) -> tuple[Tensor, Tensor | None]:
        """Return the weight ``[E, hidden]`` and the bias ``[E]`` of the router."""
        raise NotImplementedError(f"{type(self).__name__} reads no experts")

    def experts(self, tensors: LayerTensors, experts: ExpertsConfig) -> tuple[ExpertWeights, ...]:
        """Return the experts of a layer."""
        raise NotImplementedError(f"{type(self).__name__} reads no experts")


def _start_token(fields: ConfigFields, vocabulary: int) -> int | None:
    """Return the start token; None if there is none, or none in the vocabulary."""
    bos = fields.raw.get("bos_token_id")
    return bos if isinstance(bos, int) and not isinstance(bos, bool) and 0 <= bos < vocabulary else None


def _context(fields: ConfigFields, rope: Rope) -> int:
    """Return the maximum positions; a yarn model may give only the original number (as Qwen 2.5's card)."""
    named = fields.number("max_position_embeddings", MAX_POSITIONS, least=2)
    if rope.kind != "yarn":
        return named
    return min(max(named, int(rope.original_context * rope.factor)), MAX_POSITIONS)
