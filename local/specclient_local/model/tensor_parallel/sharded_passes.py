"""Passes of a model that is divided among several devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.eager_layer import FeedForward
from specclient_local.model.eager_passes import EagerPasses
from specclient_local.model.linear_kernels import LinearKernel
from specclient_local.model.pass_spans import HiddenStateTaps, PassSpan
from specclient_local.model.tensor_parallel.device_group import DeviceGroup
from specclient_local.model.weights import DecoderWeights


class ShardedPasses(EagerPasses):
    """Passes of one part of a model, which add up what the parts of attention and MLP return.

    Args:
        config: the part's configuration.
        weights: its weights.
        turns, exact, most: see :class:`EagerPasses`.
        group: the processes that have the other parts.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        turns: Tensor,
        group: DeviceGroup,
        *,
        exact: bool,
        most: int,
    ) -> None:
        super().__init__(config, weights, turns, exact=exact, most=most)
        self._group = group
        networks = [layer.feed_forward for layer in self._layers]
        partial = [layer.o for layer in self._layers]
        partial += [network.down for network in networks if isinstance(network, FeedForward)]
        self._partial = {id(kernel) for kernel in partial}

    def _run(
        self,
        ids: Tensor,
        turns: tuple[Tensor, Tensor],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        project: Callable[[LinearKernel, Tensor], Tensor],
        *,
        taps: HiddenStateTaps | None,
    ) -> Tensor:
        def whole(kernel: LinearKernel, x: Tensor) -> Tensor:
            y = project(kernel, x)
            return self._group.add_up(y) if id(kernel) in self._partial else y

        return super()._run(ids, turns, spans, wanted, whole, taps=taps)
