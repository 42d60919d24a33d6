"""The shape of a decoder: what its layers compute, independent of the field names of ``config.json``."""

from __future__ import annotations

from dataclasses import dataclass

from specclient_local.model.rope_config import Rope


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """The experts of a mixture-of-experts model (Shazeer et al., arXiv 1701.06538).

    Attributes:
        count: number of experts E of a layer.
        chosen: number of experts that compute a row.
        width: intermediate size of one expert.
        sparse: for each layer, whether it has experts instead of one feed-forward network.
        normalised: whether the weights of the chosen experts are divided by their sum.
        biased: whether the router and the experts add biases.
        shared: intermediate size of an expert that computes every row, weighted by a gate; 0 for none.
    """

    count: int
    chosen: int
    width: int
    sparse: tuple[bool, ...]
    normalised: bool = True
    biased: bool = False
    shared: int = 0


@dataclass(frozen=True, slots=True)
class DeltaConfig:
    """The recurrent layers of a hybrid model; see :mod:`specclient_local.model.delta_layer`.

    Attributes:
        recurrent: for each layer, whether it is recurrent instead of attention.
        key_heads, value_heads: numbers of heads; neighbouring value heads share a key head.
        key_dim, value_dim: sizes of a key and of a value.
        kernel: positions that the convolution of queries, keys and values reads, its own included.
    """

    recurrent: tuple[bool, ...]
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def channels(self) -> int:
        """Number of elements of queries, keys and values together."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def inputs(self) -> int:
        """Number of outputs of the projections that a layer's input goes through."""
        return self.channels + self.value_heads * (self.value_dim + 2)

    @property
    def state_size(self) -> int:
        """Number of elements of a layer's state."""
        state = self.value_heads * self.key_dim * self.value_dim
        return state + (self.kernel - 1) * self.channels

    def recorded(self, rows: int) -> int:
        """Return the number of elements that a layer records of a pass, so that rows can be rejected."""
        row = self.channels + self.value_heads * (self.key_dim + self.value_dim + 2)
        return rows * row + (self.kernel - 1) * self.channels


@dataclass(frozen=True, slots=True)
class Gate:
    """The gated activation of a feed-forward network.

    Attributes:
        kind: ``silu``: ``silu(gate) * up``; ``gelu_tanh``: the same with GELU, approximated by tanh;
            ``clamped``: ``gate * sigmoid(alpha * gate) * (up + 1)`` of values clamped to ``limit`` (gpt-oss).
        alpha: factor of the gate in the sigmoid.
        limit: largest value of the gate, and largest magnitude of ``up``.
    """

    kind: str = "silu"
    alpha: float = 1.702
    limit: float = 7.0


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Configuration of a decoder, independent of the field names in ``config.json``.

    Attributes:
        context: maximum number of positions.
        window: positions that a sliding-window layer attends to, including its own; None if no layer has
            a sliding window.
        sliding: for each layer, whether it has a sliding window.
        tied: whether the head shares the embedding's weights.
        qkv_bias, o_bias, mlp_bias: whether these projections add a bias.
        qk_norm: whether queries and keys are RMS-normalised before rotation.
        eos: end token ids.
        bos: token id that begins an empty prompt.
        whole_qk_norm: whether that norm is over all heads together instead of each head (OLMo 2).
        input_norms: whether attention and feed-forward network read normalised hidden states.
        output_norms: whether their outputs are normalised before they are added.
        gate: activation of the feed-forward network.
        embedding_scale: factor of the embedding.
        attention_scale: factor of the attention scores; None for ``head_dim ** -0.5``.
        attention_cap: bound c of the attention scores, ``c * tanh(score / c)``; None for no bound.
        logit_cap: the same for the logits.
        sinks: whether each head has a sink, a score without a value (gpt-oss).
        local_rope: rotary embeddings of the layers with a sliding window, if they have their own.
        experts: the experts of a mixture-of-experts model; None for others.
        attention_gate: whether a gate made of a row multiplies what its attention read.
        delta: the recurrent layers of a hybrid model; None for others.
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
    whole_qk_norm: bool = False
    input_norms: bool = True
    output_norms: bool = False
    gate: Gate = Gate()
    embedding_scale: float = 1.0
    attention_scale: float | None = None
    attention_cap: float | None = None
    logit_cap: float | None = None
    sinks: bool = False
    local_rope: Rope | None = None
    experts: ExpertsConfig | None = None
    attention_gate: bool = False
    delta: DeltaConfig | None = None

    @property
    def kv_layers(self) -> int:
        """Number of layers that have keys and values."""
        return self.layers if self.delta is None else self.layers - sum(self.delta.recurrent)

    @property
    def llama_layout(self) -> bool:
        """Whether layers compute what Llama's do, apart from biases, windows and norms of each head.

        Compiled passes and passes with static shapes compute such layers only; see
        :mod:`specclient_local.model.eager_passes` for the others.
        """
        extras = (
            self.attention_scale,
            self.attention_cap,
            self.logit_cap,
            self.local_rope,
            self.experts,
            self.delta,
        )
        norms = (self.whole_qk_norm, self.output_norms, self.sinks, self.attention_gate)
        same = self.input_norms and self.gate.kind == "silu" and self.embedding_scale == 1.0
        return same and not any(norms) and all(extra is None for extra in extras)

    @property
    def parameters(self) -> int:
        """Number of matrix parameters, without biases and norms (a fraction of a percent)."""
        sparse = 0 if self.experts is None else sum(self.experts.sparse[: self.layers])
        gates = self.heads if self.attention_gate else 0
        attention = self.hidden_size * (2 * (self.heads + self.kv_heads) + gates) * self.head_dim
        dense = 3 * self.hidden_size * self.intermediate_size
        outer = (1 if self.tied else 2) * self.vocab_size * self.hidden_size
        total = self.kv_layers * attention + (self.layers - sparse) * dense + outer
        if self.experts is not None:
            each = self.hidden_size * (3 * self.experts.width + 1)
            total += sparse * (self.experts.count * each + 3 * self.hidden_size * self.experts.shared)
        if self.delta is not None:
            out = self.delta.value_heads * self.delta.value_dim
            total += (self.layers - self.kv_layers) * self.hidden_size * (self.delta.inputs + out)
        return total
