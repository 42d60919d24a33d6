"""The shape and the parameters of a multi-token prediction head (MTP) that a checkpoint ships.

Layouts, as the publishers' modelling code and vLLM's have them (``vllm/model_executor/models/mimo_mtp.py``,
``deepseek_mtp.py``, ``glm4_moe_mtp.py`` and ``qwen3_next_mtp.py``, read in November 2026):

- ``mimo`` (MiMo): ``model.mtp_layers.0``; the state comes first in the joined input, and the next step reads
  the normalised output;
- ``deepseek`` (DeepSeek-V3 and GLM-4.5): the layer after the model's last one, with norms and an output
  head of its own; the next step reads the output before its norm;
- ``qwen`` (Qwen 3-Next and 3.5): ``mtp``; the next step reads the normalised output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.layer_weights import LayerWeights, widened_layer


@dataclass(frozen=True, slots=True)
class MtpLayout:
    """Names of a head's tensors in its target's checkpoint; ``{}`` is the number of the target's layers.

    Attributes:
        layer: begin of the names of its decoder layer.
        token_norm, state_norm: norms of the token's embedding and of the target's hidden state.
        fc: the matrix ``[hidden, 2 hidden]`` that joins the two.
        norm: last norm.
        head: output head, if the head may have one of its own.
        state_first: whether the joined input begins with the state.
        norm_output: whether the next step reads the output of the last norm.
    """

    layer: str
    token_norm: str
    state_norm: str
    fc: str
    norm: str
    head: str | None = None
    state_first: bool = False
    norm_output: bool = True


_MIMO, _DEEPSEEK = "model.mtp_layers.0.", "model.layers.{}."

MTP_LAYOUTS: Final[Mapping[str, MtpLayout]] = {
    "mimo": MtpLayout(
        _MIMO,
        token_norm=f"{_MIMO}token_layernorm.weight",
        state_norm=f"{_MIMO}hidden_layernorm.weight",
        fc=f"{_MIMO}input_proj.weight",
        norm=f"{_MIMO}final_layernorm.weight",
        state_first=True,
    ),
    "deepseek": MtpLayout(
        _DEEPSEEK,
        token_norm=f"{_DEEPSEEK}enorm.weight",
        state_norm=f"{_DEEPSEEK}hnorm.weight",
        fc=f"{_DEEPSEEK}eh_proj.weight",
        norm=f"{_DEEPSEEK}shared_head.norm.weight",
        head=f"{_DEEPSEEK}shared_head.head.weight",
        norm_output=False,
    ),
    "qwen": MtpLayout(
        "mtp.layers.0.",
        token_norm="mtp.pre_fc_norm_embedding.weight",  # noqa: S106 - a name
        state_norm="mtp.pre_fc_norm_hidden.weight",
        fc="mtp.fc.weight",
        norm="mtp.norm.weight",
    ),
}
"""The known layouts by name."""


@dataclass(frozen=True, slots=True)
class MtpShape:
    """The shape of an MTP head.

    Attributes:
        config: the target's configuration with the head's one layer, which has no sliding window.
        depth: number of the target's layers, after which its hidden states are read.
        norm_output: see :class:`MtpLayout`.
        own_head: whether it has an output head of its own.
    """

    config: DecoderConfig
    depth: int
    norm_output: bool
    own_head: bool = False

    @property
    def parameters(self) -> int:
        """Number of elements of its matrices, without the embedding and the output head that it shares."""
        c = self.config
        outer = (1 if c.tied else 2) * c.vocab_size * c.hidden_size
        own = c.vocab_size * c.hidden_size if self.own_head else 0
        return c.parameters - outer + 2 * c.hidden_size**2 + own

    def tapped(self, layers: int) -> tuple[int, ...]:
        """Return the depths at which hidden states are read of a target with ``layers`` layers."""
        return (layers,)


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """The parameters of an MTP head.

    Attributes:
        token_norm, state_norm: ``[hidden]`` norms of token and state.
        fc: ``[hidden, 2 hidden]`` over token and state, in this order.
        layer: the decoder layer.
        norm: ``[hidden]`` last norm.
        head: ``[V, hidden]`` output head; None if it is the target's.
        ids: None: its tokens are the target's.
    """

    token_norm: Tensor
    state_norm: Tensor
    fc: Tensor
    layer: LayerWeights
    norm: Tensor
    head: Tensor | None = None
    ids: None = None

    def reading(self) -> MtpWeights:
        """Return the norms, which compiled passes do not have a copy of; the matrices are empty."""
        none = self.fc.new_empty(0)
        empty = replace(self.layer, qkv=none, o=none, gate_up=none, down=none, experts=())
        return replace(self, fc=none, layer=empty, head=None)

    def widened(self) -> MtpWeights:
        """Return the parameters with norms and biases in float32; matrices are unchanged."""
        norms = (each.float() for each in (self.token_norm, self.state_norm, self.norm))
        token, state, norm = norms
        return replace(self, token_norm=token, state_norm=state, norm=norm, layer=widened_layer(self.layer))
