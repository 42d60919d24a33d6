"""Runs an EAGLE head over KV caches of its own: by compiled passes if its target has them, else by
PyTorch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from specclient_local.model.attention_backends import masked_attention
from specclient_local.model.config import DecoderConfig
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.eager_attention import store_and_attend
from specclient_local.model.heads.eagle import AttentionFunction, EagleHead
from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.kernels import fast_kernels
from specclient_local.model.heads.mtp_weights import MtpShape, MtpWeights
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.native.eagle import NativeEagle, native_eagle
from specclient_local.model.native.mtp import NativeMtp
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.pass_spans import HiddenStateTaps, PassSpan
from specclient_local.model.rope import turns

SPARE_POSITIONS = 64
"""Additional positions beyond the target's context, for a tree's nodes while it grows."""


class DraftHead(Protocol):
    """A head that drafts from the target's hidden states and its own; see :class:`EagleHead`."""

    embedding: Tensor

    @property
    def shape(self) -> EagleShape | MtpShape:
        """Its shape."""
        ...

    @property
    def weights(self) -> EagleWeights | MtpWeights:
        """Its parameters."""
        ...

    def read(self, features: Tensor) -> Tensor:
        """Return the head's states from the target's hidden states."""
        ...

    def step(self, ids: Tensor, states: Tensor, turned: Tensor, attend: AttentionFunction) -> Tensor:
        """Run rows through the layer."""
        ...

    def fed(self, hidden: Tensor) -> Tensor:
        """Return the states that the next step reads."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits after each row."""
        ...


class EaglePasses:
    """A head's passes by PyTorch, for a :class:`DecoderRunner`.

    Attributes:
        given: ``[N, width]`` input states of the next pass.
        hidden: ``[wanted, width]`` output states of the last pass, as the next pass reads them.
    """

    exact_rows = False
    kernels: ClassVar[dict[tuple[int, int], str]] = {}

    def __init__(self, head: DraftHead, table: Tensor) -> None:
        self.given = self.hidden = table.new_empty(0)
        self._head, self._table = head, table

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        taps: HiddenStateTaps | None = None,  # noqa: ARG002 - no head drafts from a draft
    ) -> Tensor:
        """Run one pass; see :meth:`specclient_local.model.decoder.TransformerDecoder.forward`."""
        device, config, numbers = self._table.device, self._head.shape.config, itertools.count()

        def attend(qkv: Tensor) -> Tensor:
            layer = next(numbers)
            return torch.cat(
                [store_and_attend(config, qkv[s.rows], s.cache[layer], s, s.mask) for s in spans]
            )

        turned = self._table[torch.tensor(positions, device=device)]
        with masked_attention(device):
            x = self._head.step(torch.tensor(ids, device=device), self.given, turned, attend)
        if wanted is not None:
            x = x[torch.tensor(wanted, dtype=torch.int64, device=device)]
        self.hidden = self._head.fed(x)
        return self._head.logits(x)

    def only(self, config: DecoderConfig, layers: Sequence[int]) -> EaglePasses:  # noqa: ARG002
        """Return itself: a head drafts with all of its layers."""
        return self


class EagleDecoder(TransformerDecoder):
    """An EAGLE head as the decoder of a :class:`DecoderRunner`: layers without a sliding window.

    Args:
        head: the head.
        target: the target, whose output head and compiled passes it may use.
        context: number of positions.
        compiled: whether to use compiled passes if the target has them.
    """

    passes: EaglePasses | NativeEagle | NativeMtp

    def __init__(
        self, head: EagleHead, target: TransformerDecoder, context: int, *, compiled: bool = True
    ) -> None:
        layers = head.shape.config.layers
        self.config = replace(head.shape.config, sliding=(False,) * layers, window=None)
        self.embedding, self.dtype = head.embedding, head.embedding.dtype
        table = turns(self.config.rope, self.config.head_dim, context).to(self.embedding.device)
        self._turns = table
        native = native_eagle(self.config, head, table, target.passes) if compiled else None
        self.passes = native or EaglePasses(head, table)


class EagleRunner(DecoderRunner):
    """An EAGLE head with caches for as many slots as its target has.

    Args:
        shape: its shape.
        weights: its parameters.
        target: the runner whose hidden states it reads.
        compiled: whether to use compiled passes and kernels. PyTorch's alone can be recorded.
    """

    decoder: EagleDecoder
    head: DraftHead

    def __init__(
        self, shape: EagleShape, weights: EagleWeights, target: HiddenStateRunner, *, compiled: bool = True
    ) -> None:
        lent, context = target.shared_weights(), target.context + SPARE_POSITIONS
        self.head = head = EagleHead(shape, weights, lent, fast_kernels() if compiled else None)
        decoder = EagleDecoder(head, target.decoder, context, compiled=compiled)
        super().__init__(decoder, target.slots, context)
        if self.decoder.can_draft_chain:  # compiled passes have their own copy
            self.head = EagleHead(shape, weights.reading(), lent, fast_kernels())

    def step(self, parts: Sequence[SlotInput], states: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Append each input's rows; return logits and states after the wanted rows.

        Args:
            parts: inputs of one pass, at most ``MAX_PASS_ROWS`` rows each.
            states: ``[rows, width]`` input states of each.
        """
        passes = self.decoder.passes
        passes.given = states[0] if len(states) == 1 else torch.cat(list(states))
        logits = self.run_pass(parts)
        if len(parts) == 1:
            return logits, [passes.hidden]
        counts = [part.rows - part.unread for part in parts]
        return logits, list(torch.split(passes.hidden, counts))

    def extend(self, slot: int, tokens: Sequence[int], states: Tensor) -> None:
        """Append up to ``MAX_PASS_ROWS`` tokens with their states, without logits."""
        self.decoder.passes.given = states
        self.run_pass([SlotInput(slot, tokens)], unread=True)

    def follow(self, slot: int, tokens: Sequence[int], states: Tensor, steps: int) -> list[int]:
        """Append tokens with their states, and draft the ``steps`` most likely tokens after them.

        The slot then holds the tokens and all drafted ones but the last.

        Args:
            slot: the slot; the decoder must satisfy ``can_draft_chain``.
            tokens: ``[N]``, at most ``MAX_PASS_ROWS``.
            states: ``[N, width]``.
            steps: number of tokens to draft.

        Returns:
            The target's ids of the drafted tokens; fewer if logits were not finite.
        """
        self.decoder.passes.given = states
        found = self.draft_chains([SlotInput(slot, tokens)], [steps], self.config.vocab_size)
        assert found is not None
        return found[0]
