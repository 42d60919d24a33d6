"""Turn token ids, their positions and the cached keys and values into logits: one Llama-family forward pass.

The rows of several requests go through together: as one block through all that looks at a row alone, each
request's over its own cache through attention. Who computes them (``native`` or ``eager``) sees to it that a
row has the same bits alone and in company.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.eager_passes import EagerPasses
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST
from specclient_local.model.native.passes import NativePasses, native_passes
from specclient_local.model.pass_spans import HiddenStateTaps, PassSpan
from specclient_local.model.rope import turns
from specclient_local.model.weights import DecoderWeights


class ForwardPasses(Protocol):
    """What computes a model's passes."""

    @property
    def exact_rows(self) -> bool:
        """Whether a row has the same bits in a pass of any size, a prompt's rows too."""
        ...

    @property
    def kernels(self) -> dict[tuple[int, int], str]:
        """Which kernel each shape of weight got, where there was a choice."""
        ...

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        taps: HiddenStateTaps | None = None,
    ) -> Tensor:
        """Do as :meth:`TransformerDecoder.forward`."""
        ...

    def only(self, config: DecoderConfig, layers: Sequence[int]) -> ForwardPasses:
        """Return passes through some of the layers, over the same weights."""
        ...


class TransformerDecoder:
    """A loaded model. It holds no state of any request; the cache is handed in.

    A float32 model on a processor is computed by passes compiled for it, where that is possible.

    Args:
        config: its shape.
        weights: as loaded.
        context: positions it must serve; sizes the rotation table.
        exact: whether rows must not depend on their company; see :class:`KernelChooser`.
        most: rows of the largest pass that several requests share.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        context: int,
        *,
        exact: bool = True,
        most: int = MAX_ROWS_PER_REQUEST,
    ) -> None:
        self.config = config
        self.dtype = weights.embedding.dtype
        self.embedding = weights.embedding
        self._turns = turns(config.rope, config.head_dim, context).to(weights.embedding.device)
        self.passes: ForwardPasses = native_passes(config, weights, self._turns) or EagerPasses(
            config, weights, self._turns, exact=exact, most=most
        )

    def only(self, layers: Sequence[int]) -> TransformerDecoder:
        """Return a decoder of some of the layers, in that order, over the same weights."""
        other = copy.copy(self)
        sliding = tuple(self.config.sliding[i] for i in layers)
        other.config = dataclasses.replace(self.config, layers=len(layers), sliding=sliding)
        other.passes = self.passes.only(other.config, layers)
        return other

    @property
    def exact_rows(self) -> bool:
        """Whether a row has the same bits in a pass of any size, a prompt's rows too."""
        return self.passes.exact_rows

    def turns(self, positions: Tensor | slice) -> Tensor:
        """Return the rotations of some positions, ``[N, 1, D / 2]`` complex."""
        return self._turns[positions]

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        taps: HiddenStateTaps | None = None,
    ) -> Tensor:
        """Run N rows through the model and write their keys and values into the caches.

        Args:
            ids: ``[N]`` tokens.
            positions: ``[N]`` where they stand.
            spans: whose they are, in order.
            wanted: the rows whose logits are wanted; None for all.
            taps: where hidden states of all rows are left.

        Returns:
            ``[wanted, V]``.
        """
        return self.passes.forward(ids, positions, spans, wanted, taps)

    @property
    def can_draft_chain(self) -> bool:
        """Whether :meth:`draft_chain` can be called: passes are compiled, and no layer slides."""
        return isinstance(self.passes, NativePasses) and self.config.window is None

    def draft_chain(
        self, ids: Sequence[int], positions: Sequence[int], span: PassSpan, steps: int, vocab: int
    ) -> list[int]:
        """Run a request's rows and then, token by token, the likeliest ones that follow, in one call.

        Args:
            ids: ``[N]`` tokens of a chain; ``positions``: ``[N]`` where they stand.
            span: where they go; what follows them is seen whole, so no layer may slide.
            steps: how many tokens to find; the last one does not go through the model.
            vocab: only ids below it.

        Returns:
            the tokens, fewer where logits were not finite.
        """
        assert isinstance(self.passes, NativePasses)
        return self.passes.draft_chain(ids, positions, span, steps, vocab)
