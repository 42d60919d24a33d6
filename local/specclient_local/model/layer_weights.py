"""The fused weights of a decoder, and the reader from which a family takes the tensors of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from specclient_local.model.architecture import DecoderConfig

MATRICES = ("qkv", "o", "gate_up", "down")

TensorReader = Callable[[str, tuple[int, ...]], Tensor]
"""Returns the tensor of a name after comparing its shape with the given one."""


def no_weight() -> Tensor:
    """Return the empty tensor that stands for a weight that a layer does not have."""
    return torch.empty(0)


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """Fused weights of one expert, as those of :class:`LayerWeights`."""

    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    """Weights of a recurrent layer; see :mod:`specclient_local.model.delta_layer`.

    Attributes:
        inputs: ``[inputs, hidden]`` queries, keys and values, gate, beta, and step of the decay.
        conv: ``[channels, kernel]`` taps of the convolution of queries, keys and values.
        dt_bias: ``[value heads]`` bias of the step.
        decay: ``[value heads]`` rate of the decay.
        norm: ``[value_dim]`` factors of the norm of what is read.
        out: ``[hidden, value heads * value_dim]``.
    """

    inputs: Tensor
    conv: Tensor
    dt_bias: Tensor
    decay: Tensor
    norm: Tensor
    out: Tensor


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Fused weights of one layer: ``qkv`` ``[(H + 2 KV) D, hidden]``, ``gate_up`` ``[2 ff, hidden]``.

    Query and key rows are reordered so that the two elements of each rotated pair are adjacent. The
    attention scores do not change (both sides of the product are reordered), and the rotation becomes one
    complex multiplication.

    Attributes:
        input_norm: norm before attention; empty if there is none.
        post_norm: norm before the feed-forward network; empty if there is none.
        gate_up, down: empty if the layer has experts.
        attention_output_norm, mlp_output_norm: norms after attention and feed-forward network.
        sinks: ``[H]`` score of each head's sink.
        router: ``[E, hidden]`` scores of the experts, and its bias ``[E]``.
        experts: the layer's experts.
        shared_expert, shared_gate: the expert that computes every row, and ``[1, hidden]`` its weight.
        attention_gate: ``[H D, hidden]`` gate of what attention read.
        delta: weights of a recurrent layer, which has no attention.
    """

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    o: Tensor
    o_bias: Tensor | None
    post_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None
    attention_output_norm: Tensor | None = None
    mlp_output_norm: Tensor | None = None
    sinks: Tensor | None = None
    router: Tensor | None = None
    router_bias: Tensor | None = None
    experts: tuple[ExpertWeights, ...] = ()
    shared_expert: ExpertWeights | None = None
    shared_gate: Tensor | None = None
    attention_gate: Tensor | None = None
    delta: DeltaWeights | None = None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """A decoder's weights: ``embedding`` and ``head`` are ``[V, hidden]``, one tensor if they are tied."""

    embedding: Tensor
    layers: Sequence[LayerWeights]
    norm: Tensor
    head: Tensor

    def widened(self) -> DecoderWeights:
        """Return the weights with embedding, norms and biases in float32; weight matrices are unchanged."""
        return DecoderWeights(
            embedding=self.embedding.float(),
            layers=[widened_layer(layer) for layer in self.layers],
            norm=self.norm.float(),
            head=self.head,
        )


@dataclass(frozen=True, slots=True)
class LowRank:
    """A change of a matrix: ``x @ down.T @ up.T`` is added to the product of ``x``.

    Attributes:
        down: ``[R, in]``.
        up: ``[out, R]``, with the adapter's scale.
    """

    down: Tensor
    up: Tensor


LayerChanges = Mapping[str, LowRank]
"""The changes of a layer's matrices, by the fields of :class:`LayerWeights`."""


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """Reads the tensors of one layer of a checkpoint.

    Attributes:
        take: reads a tensor.
        index: the layer's number.
        config: the model's configuration.
        hold: returns a matrix as it is kept, quantised or not.
        prefix: begin of the names of the layer's tensors.
        names: of the checkpoint's tensors, where the family asks for them.
    """

    take: TensorReader
    index: int
    config: DecoderConfig
    hold: Callable[[Tensor], Tensor] = field(default=lambda matrix: matrix)
    prefix: str = "model.layers.{}."
    names: frozenset[str] = frozenset()

    def read(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of the layer, by its name without the prefix."""
        return self.take(self.prefix.format(self.index) + name, shape)

    def has(self, name: str) -> bool:
        """Return whether the layer has a tensor, by its name without the prefix."""
        return self.prefix.format(self.index) + name in self.names

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return tensors one after the other, as rows of one."""
        return torch.cat(list(tensors))

    def split(self, rows: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
        """Divide rows into tensors of the given numbers of rows."""
        return torch.split(rows, list(sizes))

    def in_pairs(self, rows: Tensor) -> Tensor:
        """Reorder the rows of queries or keys; see :class:`LayerWeights`."""
        return interleave(rows, self.config.head_dim, self.config.rope.rotated)

    def expert(
        self, gate_up: Tensor, down: Tensor, *, biases: tuple[Tensor, Tensor] | None = None
    ) -> ExpertWeights:
        """Return an expert's weights, with the biases of both matrices if it has them."""
        first, second = biases or (None, None)
        return ExpertWeights(self.hold(gate_up), first, self.hold(down), second)


def interleave(rows: Tensor, head_dim: int, rotated: int | None = None) -> Tensor:
    """Reorder each head's rows ``[H D, ...]`` from (first halves, second halves) to adjacent pairs.

    Args:
        rows: the rows of all heads.
        head_dim: D.
        rotated: number of leading rows of a head that are reordered; None for all.
    """
    rest = rows.shape[1:]
    if rotated is None or rotated == head_dim:
        return rows.view(-1, 2, head_dim // 2, *rest).transpose(1, 2).reshape(rows.shape)
    heads = rows.view(-1, head_dim, *rest)
    turned = interleave(heads[:, :rotated].reshape(-1, *rest), rotated).view(-1, rotated, *rest)
    return torch.cat((turned, heads[:, rotated:]), dim=1).reshape(rows.shape)


def widened_layer(layer: LayerWeights) -> LayerWeights:
    """Return a layer with norms and biases in float32; weight matrices are unchanged."""
    vectors: dict[str, Any] = {
        each.name: value.float()
        for each in fields(layer)
        if each.name not in MATRICES and isinstance(value := getattr(layer, each.name), Tensor)
    }
    return replace(layer, **vectors)
