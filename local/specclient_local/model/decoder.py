"""A Llama-family decoder: token ids, positions and cached keys and values to logits.

Rows of several requests go through one pass together; attention runs over each request's own cache. The
compiled passes (``native``) and the PyTorch passes (``eager_passes``) both give a row the same bits alone and
in a batch.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.eager_passes import EagerPasses
from specclient_local.model.layer_weights import LayerChanges
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST
from specclient_local.model.native.passes import NativePasses, native_passes
from specclient_local.model.pass_spans import HiddenStateTaps, PassSpan
from specclient_local.model.rope import turns
from specclient_local.model.weights import DecoderWeights


class ForwardPasses(Protocol):
    """Computes the passes of a model."""

    @property
    def exact_rows(self) -> bool:
        """Whether a row has the same bits in a pass of any size, including a prefill."""
        ...

    @property
    def kernels(self) -> dict[tuple[int, int], str]:
        """Names of the chosen linear kernels by weight shape (outputs, inputs); empty if there was no
        choice.
        """
        ...

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        taps: HiddenStateTaps | None = None,
    ) -> Tensor:
        """Run one pass; see :meth:`TransformerDecoder.forward`."""
        ...

    def only(self, config: DecoderConfig, layers: Sequence[int]) -> ForwardPasses:
        """Return passes through some of the layers, which share the weights."""
        ...


class TransformerDecoder:
    """A loaded model without request state; caches are passed in.

    A float32 model on a CPU is computed by compiled passes where a C compiler is available.

    Args:
        config: its configuration.
        weights: its weights.
        context: number of positions; sizes the rotation table.
        exact: whether rows must not depend on other rows of the pass; see :class:`KernelChooser`.
        most: maximum rows of a pass that several requests share.
        adapters: the changes of every layer by each adapter; with any, torch computes the passes.
        passes: makes the passes, from configuration, weights and rotation table; None for the fastest ones.
        rounded_to: format to which compiled passes round the matrices; see :class:`NativePasses`.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        context: int,
        *,
        exact: bool = True,
        most: int = MAX_ROWS_PER_REQUEST,
        adapters: Sequence[Sequence[LayerChanges]] = (),
        passes: Callable[[DecoderConfig, DecoderWeights, Tensor], ForwardPasses] | None = None,
        rounded_to: str | None = None,
    ) -> None:
        self.config = config
        self.dtype = weights.embedding.dtype
        self.embedding = weights.embedding
        self._turns = turns(config.rope, config.head_dim, context).to(weights.embedding.device)
        self.passes: ForwardPasses
        if passes is not None:
            self.passes = passes(config, weights, self._turns)
        else:
            compiles = config.llama_layout and not adapters
            compiled = native_passes(config, weights, self._turns, rounded_to) if compiles else None
            self.passes = compiled or EagerPasses(
                config, weights, self._turns, exact=exact, most=most, adapters=adapters
            )

    def only(self, layers: Sequence[int]) -> TransformerDecoder:
        """Return a decoder of some of the layers, in that order, which shares the weights."""
        other = copy.copy(self)
        sliding = tuple(self.config.sliding[i] for i in layers)
        other.config = dataclasses.replace(self.config, layers=len(layers), sliding=sliding)
        other.passes = self.passes.only(other.config, layers)
        return other

    @property
    def exact_rows(self) -> bool:
        """Whether a row has the same bits in a pass of any size, including a prefill."""
        return self.passes.exact_rows

    @property
    def kv_dtype(self) -> torch.dtype:
        """Data type of the keys and values in its caches."""
        return self.passes.kv_dtype if isinstance(self.passes, NativePasses) else self.dtype

    def turns(self, positions: Tensor | slice) -> Tensor:
        """Return the rotary embeddings of positions, ``[N, 1, D / 2]`` complex64."""
        return self._turns[positions]

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        taps: HiddenStateTaps | None = None,
    ) -> Tensor:
        """Run N rows through the model, and write their keys and values to the caches.

        Args:
            ids: ``[N]`` tokens.
            positions: ``[N]`` their positions.
            spans: which rows belong to which request, in order.
            wanted: indices of the rows whose logits are wanted; None for all.
            taps: hidden states to store, of all rows; None for none.

        Returns:
            ``[wanted, V]`` logits.
        """
        return self.passes.forward(ids, positions, spans, wanted, taps)

    @property
    def can_draft_chain(self) -> bool:
        """Whether :meth:`draft_chains` can be called: passes are compiled and no layer has a sliding
        window.
        """
        return isinstance(self.passes, NativePasses) and self.config.window is None

    def draft_chains(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        steps: Sequence[int],
        vocab: int,
    ) -> list[list[int]]:
        """Run rows of some requests, then draft the most likely tokens one by one, in one compiled call.

        Args:
            ids: ``[N]`` tokens of the requests' chains.
            positions: ``[N]`` their positions.
            spans: the requests' spans. All earlier positions are visible to drafted tokens.
            steps: number of tokens to draft for each, at least 1; the last one does not go through the model.
            vocab: only ids below it are drafted.

        Returns:
            The drafted tokens of each; fewer if logits were not finite.
        """
        assert isinstance(self.passes, NativePasses)
        return self.passes.draft_chains(ids, positions, spans, steps, vocab)
