"""One layer's kernels by PyTorch: norms, projections, and the feed-forward network or the experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.architecture import DecoderConfig, ExpertsConfig, Gate
from specclient_local.model.delta_layer import DeltaLayer
from specclient_local.model.layer_weights import LayerChanges, LayerWeights
from specclient_local.model.linear_kernels import KernelChooser, LinearKernel, plain_kernel
from specclient_local.model.row_functions import Project, by_row

GateKernel = Callable[[Tensor], Tensor]
"""Maps gate and up ``[N, 2 ff]`` to ``[N, ff]``."""


class FeedForward:
    """A feed-forward network.

    Args:
        gate_up, down: kernels of its projections.
        gate: its activation.
    """

    def __init__(self, gate_up: LinearKernel, down: LinearKernel, gate: GateKernel) -> None:
        self.down = down
        self._gate_up, self._gate = gate_up, gate

    def __call__(self, x: Tensor, project: Project) -> Tensor:
        """Return the output ``[N, hidden]`` of rows."""
        return project(self.down, self._gate(project(self._gate_up, x)))


class Experts:
    """Experts of which a router chooses some for each row; only the weights of chosen ones are read.

    The outputs of a row's experts are added in the order of the experts' numbers, which does not depend on
    the other rows.

    Args:
        config: their number, and how many compute a row.
        router: kernel of the scores ``[N, E]``.
        networks: the experts.
        shared: an expert that computes every row, and the kernel of its weight ``[N, 1]``.
    """

    def __init__(
        self,
        config: ExpertsConfig,
        router: LinearKernel,
        networks: list[FeedForward],
        shared: tuple[FeedForward, LinearKernel] | None = None,
    ) -> None:
        self._config, self._router, self._networks, self._shared = config, router, networks, shared

    def __call__(self, x: Tensor, project: Project) -> Tensor:
        """Return the output ``[N, hidden]`` of rows."""
        shares = project(self._router, x).float().softmax(dim=-1)
        weights, chosen = shares.topk(self._config.chosen, dim=-1)
        if self._config.normalised:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
        out = torch.zeros_like(x)
        for number in sorted(set(chosen.flatten().tolist())):
            rows, ranks = (chosen == number).nonzero(as_tuple=True)
            own = self._networks[number](x[rows], project)
            out.index_add_(0, rows, own * weights[rows, ranks, None])
        if self._shared is not None:
            network, gate = self._shared
            out = out + by_row(torch.sigmoid, project(gate, x)) * network(x, project)
        return out


class AdaptedLinear:
    """A projection that adapters change for the rows of some requests.

    Args:
        kernel: the projection.
        changes: for each adapter, the kernels of its two matrices; None where it does not change this one.
    """

    def __init__(
        self, kernel: LinearKernel, changes: Sequence[tuple[LinearKernel, LinearKernel] | None]
    ) -> None:
        self._kernel, self.changes = kernel, changes

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product without changes."""
        return self._kernel(x)


def adapted(project: Project, rows: Sequence[tuple[int, slice]]) -> Project:
    """Return a function that runs projections and adds the changes of adapters.

    Args:
        project: runs a projection.
        rows: adapters, and the rows of the pass that each changes.
    """
    if not rows:
        return project

    def run(kernel: LinearKernel, x: Tensor) -> Tensor:
        y = project(kernel, x)
        if isinstance(kernel, AdaptedLinear):
            for adapter, own in rows:
                if (change := kernel.changes[adapter]) is not None:
                    down, up = change
                    y[own] += project(up, project(down, x[own]))
        return y

    return run


@dataclass(frozen=True, slots=True)
class EagerLayer:
    """One layer's kernels, norms and properties.

    Attributes:
        input_norm, post_norm: before attention and feed-forward network; None for none.
        attention_output_norm, mlp_output_norm: after them; None for none.
        sliding: whether the layer has a sliding window.
        attention_gate: projection to the gate of what attention read.
        delta: the recurrent layer that takes the place of attention; ``qkv`` and ``o`` are then not called.
    """

    input_norm: LinearKernel | None
    qkv: LinearKernel
    qk_norm: Tensor | None
    o: LinearKernel
    post_norm: LinearKernel | None
    feed_forward: FeedForward | Experts
    sliding: bool = False
    attention_output_norm: LinearKernel | None = None
    mlp_output_norm: LinearKernel | None = None
    sinks: Tensor | None = None
    attention_gate: LinearKernel | None = None
    delta: DeltaLayer | None = None


def eager_layer(
    config: DecoderConfig,
    w: LayerWeights,
    choose: KernelChooser,
    *,
    sliding: bool,
    changes: Sequence[LayerChanges] = (),
) -> EagerLayer:
    """Build a layer's kernels.

    Args:
        config: the model's configuration.
        w: the layer's weights.
        choose: chooses the kernels of projections.
        sliding: whether the layer has a sliding window.
        changes: the changes of each adapter.
    """

    def linear(field: str, bias: Tensor | None) -> LinearKernel:
        kernel = choose(getattr(w, field), bias)
        own = [each.get(field) for each in changes]
        if not any(own):
            return kernel
        return AdaptedLinear(kernel, [None if c is None else (choose(c.down), choose(c.up)) for c in own])

    def norm(weight: Tensor | None) -> LinearKernel | None:
        return None if weight is None or not len(weight) else norm_kernel(weight, config.norm_eps)

    delta = None
    if w.delta is not None and config.delta is not None:
        delta = DeltaLayer(config.delta, w.delta, choose, config.norm_eps)
    gate = gate_kernel(config.gate)
    network: FeedForward | Experts
    if w.experts and config.experts is not None and w.router is not None:
        each = [
            FeedForward(choose(own.gate_up, own.gate_up_bias), choose(own.down, own.down_bias), gate)
            for own in w.experts
        ]
        shared = None
        if w.shared_expert is not None and w.shared_gate is not None:
            own_matrices = choose(w.shared_expert.gate_up), choose(w.shared_expert.down)
            shared = FeedForward(*own_matrices, gate), choose(w.shared_gate)
        network = Experts(config.experts, choose(w.router, w.router_bias), each, shared)
    else:
        network = FeedForward(linear("gate_up", w.gate_up_bias), linear("down", w.down_bias), gate)
    return EagerLayer(
        input_norm=norm(w.input_norm),
        qkv=linear("qkv", w.qkv_bias) if delta is None else plain_kernel(w.qkv, None),
        qk_norm=w.qk_norm,
        o=linear("o", w.o_bias) if delta is None else plain_kernel(w.o, None),
        post_norm=norm(w.post_norm),
        feed_forward=network,
        sliding=sliding,
        attention_output_norm=norm(w.attention_output_norm),
        mlp_output_norm=norm(w.mlp_output_norm),
        sinks=w.sinks,
        attention_gate=None if w.attention_gate is None else choose(w.attention_gate),
        delta=delta,
    )


def gate_kernel(gate: Gate) -> GateKernel:
    """Return a gated activation."""

    def silu(gate_up: Tensor) -> Tensor:
        own, up = gate_up.chunk(2, dim=-1)
        return F.silu(own) * up

    def gelu_tanh(gate_up: Tensor) -> Tensor:
        own, up = gate_up.chunk(2, dim=-1)
        return F.gelu(own, approximate="tanh") * up

    def clamped(gate_up: Tensor) -> Tensor:
        own, up = gate_up.chunk(2, dim=-1)
        own, up = own.clamp(max=gate.limit), up.clamp(-gate.limit, gate.limit)
        return own * by_row(torch.sigmoid, gate.alpha * own) * (up + 1)

    return {"silu": silu, "gelu_tanh": gelu_tanh, "clamped": clamped}[gate.kind]


def norm_kernel(weight: Tensor, eps: float) -> LinearKernel:
    """Return the RMS norm with a weight; its result has the type of its input.

    In float32 on the CPU it uses the Euclidean norm, √(‖x‖² + n·eps), with half the calls of PyTorch's
    composite. Otherwise PyTorch's own, which accumulates in float32.
    """
    size = len(weight)
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return lambda x: F.rms_norm(x.to(weight.dtype), (size,), weight, eps).to(x.dtype)
    scaled, floor = weight * size**0.5, torch.tensor((size * eps) ** 0.5)

    def norm(x: Tensor) -> Tensor:
        wide = x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        return wide.div(length.hypot_(floor)).mul_(scaled).to(x.dtype)

    return norm
