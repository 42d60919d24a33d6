"""Drafts within recorded rounds: by a draft model, by an EAGLE head, and by Medusa heads.

Each computes chains of K tokens for a batch of requests by tensors alone. Requests that do not draft in a
round write to cache positions behind the context, as padding does: their slot of the draft's cache may hold
a prefix that other requests share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.cuda_graphs.dense_decoder import HiddenStateWriter
from specclient_local.model.cuda_graphs.device_ops import DeviceOps, PassTables, TorchOps
from specclient_local.model.cuda_graphs.device_verify import DraftTensors, SamplingTensors
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.heads.eagle_runner import DraftHead, EagleRunner
from specclient_local.model.heads.medusa import MedusaHeads


@dataclass(frozen=True, slots=True)
class DraftInputs:
    """The inputs of a draft of a round: S requests, K tokens each.

    Attributes:
        slots: ``[S]`` cache slots.
        tail: ``[S, T]`` each request's last T tokens; T is :meth:`DeviceDraft.tail` of K.
        start: ``[S]`` position of the last token; beyond the context if the request does not draft.
        drafts: the tokens that are given; the others are drafted.
        shaping: the sampling parameters.
        uniform: ``[S, K]`` random numbers.
        draws: whether any request samples.
        vocab: V, the size of the target's vocabulary.
        length: number of positions to attend over, see :class:`DensePassLayout`.
        first: whether the slots are the first S ones, as there.
    """

    slots: Tensor
    tail: Tensor
    start: Tensor
    drafts: DraftTensors
    shaping: SamplingTensors
    uniform: Tensor
    draws: bool
    vocab: int
    length: int
    first: bool

    @property
    def depth(self) -> int:
        """K."""
        return self.drafts.tokens.shape[1]


@dataclass(slots=True)
class DraftedTokens:
    """Tokens of a batch while they are drafted.

    Attributes:
        tokens: ``[S]`` each.
        distributions: ``[S, V]`` each, from which they were drawn; empty if no request samples.
        finite: ``[S]`` each, whether the logits were finite.
    """

    tokens: list[Tensor]
    distributions: list[Tensor]
    finite: list[Tensor]

    @classmethod
    def empty(cls) -> DraftedTokens:
        """Return the state before the first token."""
        return cls([], [], [])

    def add(self, logits: Tensor, inputs: DraftInputs, ops: DeviceOps, ids: Tensor | None = None) -> Tensor:
        """Draw or pick a token from logits ``[S, 1, W]``; return it as ``[S, 1]``.

        Args:
            logits: a draft's logits.
            inputs: the draft's inputs.
            ops: the operations to compute with.
            ids: ``[W]`` the target's ids of the draft's tokens; None if they are the same.
        """
        step = len(self.tokens)
        if inputs.draws:
            p, largest = ops.probabilities(logits, inputs.shaping)
            own = ops.draw(p[:, 0], inputs.uniform[:, step])
            self.distributions.append(_widened(p[:, 0], ids, inputs.vocab))
        else:
            best, largest = ops.largest(logits)
            own = best[:, 0]
        own = own if ids is None else ids[own]
        self.finite.append(largest[:, 0].isfinite())
        given = inputs.drafts
        self.tokens.append(torch.where(given.picked[:, step], given.tokens[:, step], own))
        return self.tokens[-1][:, None]

    def finish(self, inputs: DraftInputs) -> tuple[DraftTensors, Tensor | None]:
        """Return the drafts, which end where logits were not finite, and q ``[S, K, V]``."""
        given = inputs.drafts
        whole = (torch.stack(self.finite, dim=1) | given.picked).long().cumprod(-1).sum(-1)
        found = DraftTensors(torch.stack(self.tokens, dim=1), given.picked, torch.minimum(given.depth, whole))
        return found, torch.stack(self.distributions, dim=1) if self.distributions else None


class DeviceDraft(Protocol):
    """Drafts chains within a recorded round."""

    def tail(self, depth: int) -> int:
        """Return the number of a request's last tokens that a draft of ``depth`` tokens reads."""
        ...

    def draft(self, inputs: DraftInputs) -> tuple[DraftTensors, Tensor | None]:
        """Return the drafts, and q ``[S, K, V]``: the distributions they were drawn from.

        None if no request samples, or all tokens are picked.
        """
        ...

    def use_torch_ops(self) -> None:
        """Compute by PyTorch from now on, without kernels of our own."""
        ...


class ModelDraft:
    """Drafts by a draft model with static shapes.

    The first step reads the last two tokens: after a fully accepted draft, the draft model has not read the
    last but one yet, and reading a token again changes nothing.

    Args:
        runner: the model.
        context: the target's context.
    """

    def __init__(self, runner: StaticRunner, context: int) -> None:
        self.runner = runner
        self._context = context

    def tail(self, depth: int) -> int:  # noqa: ARG002
        """Return 2."""
        return 2

    def use_torch_ops(self) -> None:
        """See :class:`DeviceDraft`."""
        self.runner.use_torch_ops()

    def draft(self, inputs: DraftInputs) -> tuple[DraftTensors, Tensor | None]:
        """See :class:`DeviceDraft`."""
        model, cache = self.runner.dense, self.runner.cache
        found, ids = DraftedTokens.empty(), inputs.tail
        first, later = _layouts(inputs, 2, inputs.start, cache.positions, self._context)
        tables = [model.tables(first, cache)]
        if later is not None:
            tables += model.tables(later, cache).split(inputs.depth - 1)
        for own in tables:
            hidden = model.hidden(ids, own, cache)[:, -1:]
            ids = found.add(model.logits(hidden)[..., : inputs.vocab], inputs, model.ops)
        return found.finish(inputs)


class EagleDraft:
    """Drafts by an EAGLE head, or by an MTP head, which reads and writes the same.

    The head's row at a position combines the target's hidden state there with the next token. The first step
    reads K + 1 rows that end at the last token: those that the last round accepted, with the target's states,
    and earlier ones again, which changes nothing. Later steps read the head's own states.

    Args:
        runner: the head.
        states: the target's hidden states.
        ops: the operations to compute with.
        context: the target's context.
    """

    def __init__(self, runner: EagleRunner, states: HiddenStateWriter, ops: DeviceOps, context: int) -> None:
        self.runner = runner
        self._states, self._ops, self._context = states, ops, context
        layers = runner.head.shape.tapped(states.depth)
        self._taps = torch.tensor([states.layers.index(tap) for tap in layers], device=runner.device)

    def tail(self, depth: int) -> int:
        """Return K + 1: the tokens that the last round can have added at most, if it was no longer."""
        return depth + 1

    def use_torch_ops(self) -> None:
        """See :class:`DeviceDraft`."""
        self._ops = TorchOps()

    def draft(self, inputs: DraftInputs) -> tuple[DraftTensors, Tensor | None]:
        """See :class:`DeviceDraft`."""
        head, rows = self.runner.head, inputs.tail.shape[1]
        ids, found = inputs.tail, DraftedTokens.empty()
        at = inputs.start[:, None] - rows + torch.arange(rows, device=ids.device)
        states = head.read(self._states.read(inputs.slots, at)[:, :, self._taps])
        for tables in self._tables(inputs, rows):
            hidden = self._step(head, ids, states, tables)[:, -1:]
            ids = found.add(head.logits(hidden), inputs, self._ops, head.weights.ids)
            states = head.fed(hidden)
        return found.finish(inputs)

    def _tables(self, inputs: DraftInputs, rows: int) -> list[PassTables]:
        """Return the tables of each step."""
        cache, config = self.runner.cache.rows[0], self.runner.config
        groups, dtype = config.heads // config.kv_heads, cache.dtype
        first, later = _layouts(inputs, rows, inputs.start - 1, cache.shape[2], self._context)
        tables = [_head_tables(first, cache, self._ops, groups=groups, dtype=dtype)]
        if later is not None:
            together = _head_tables(later, cache, self._ops, groups=groups, dtype=dtype)
            tables += together.split(inputs.depth - 1)
        return tables

    def _step(self, head: DraftHead, ids: Tensor, states: Tensor, tables: PassTables) -> Tensor:
        """Return hidden states ``[S, R, width]`` after rows, and write their keys and values."""
        cache, heads, layout = self.runner.cache.rows[0], self.runner.config.heads, tables.layout

        def attend(qkv: Tensor) -> Tensor:
            cache[layout.slots[:, None], :, tables.places] = qkv[:, :, heads:]
            queries = qkv[:, :, :heads].contiguous()
            return self._ops.attend(queries, cache, tables, sliding=False).view(*qkv.shape[:2], -1)

        positions = layout.positions.clamp(0, self.runner.context - 1)
        known = torch.where(ids < len(head.embedding), ids, 0)
        return head.step(known, states, self.runner.decoder.turns(positions), attend)


class MedusaDraft:
    """Drafts by Medusa heads: each head's most likely token, picked at any temperature.

    Args:
        heads: the heads.
        states: the target's hidden states.
        ops: the operations to compute with.
    """

    def __init__(self, heads: MedusaHeads, states: HiddenStateWriter, ops: DeviceOps) -> None:
        self._heads, self._states, self._ops = heads, states, ops
        self._tap = states.layers.index(states.depth)

    def tail(self, depth: int) -> int:  # noqa: ARG002
        """Return 2, the least that requests send: the heads read no token."""
        return 2

    def use_torch_ops(self) -> None:
        """See :class:`DeviceDraft`."""
        self._ops = TorchOps()

    def draft(self, inputs: DraftInputs) -> tuple[DraftTensors, Tensor | None]:
        """See :class:`DeviceDraft`."""
        known = self._states.read(inputs.slots, inputs.start[:, None] - 1)[:, 0]
        states = self._heads.read(known[:, self._tap : self._tap + 1])
        given, heads = inputs.drafts, min(inputs.depth, self._heads.shape.heads)
        best, largest = self._ops.largest(self._heads.logits(states, heads))
        if heads < inputs.depth:  # other requests of the round verify more tokens, which are given
            beyond = (0, inputs.depth - heads)
            best, largest = F.pad(best, beyond), F.pad(largest, beyond)
        tokens = torch.where(given.picked, given.tokens, best)
        whole = (largest.isfinite() | given.picked).long().cumprod(-1).sum(-1)
        depth = torch.minimum(given.depth, whole)
        return DraftTensors(tokens, torch.ones_like(given.picked), depth), None


def _layouts(
    inputs: DraftInputs, rows: int, end: Tensor, cache_length: int, context: int
) -> tuple[DensePassLayout, DensePassLayout | None]:
    """Return the layout of a draft's first step, and those of all later steps together.

    Args:
        inputs: the draft's inputs.
        rows: rows of the first step.
        end: ``[S]`` position of the last of them; each later step has one row at the next position.
        cache_length: capacity of the draft's cache.
        context: the target's context.
    """

    def chain(slots: Tensor, starts: Tensor, count: int) -> DensePassLayout:
        length = min(inputs.length, cache_length)
        return DensePassLayout.chain(slots, starts, count, length, context=context, first=inputs.first)

    first, later = chain(inputs.slots, end - rows + 1, rows), inputs.depth - 1
    if not later:
        return first, None
    ahead = torch.arange(1, inputs.depth, device=end.device)[:, None]
    return first, chain(inputs.slots.repeat(later), (end + ahead).flatten(), 1)


def _head_tables(
    layout: DensePassLayout, cache: Tensor, ops: DeviceOps, *, groups: int, dtype: torch.dtype
) -> PassTables:
    """Return the tables of an EAGLE head's pass over its cache ``[slots, 2 KV, capacity, D]``."""
    mask = None
    if not ops.reads_in_place:
        seen = layout.seen()
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)
        mask = mask[:, None].expand(-1, groups, -1, -1).flatten(1, 2)[:, None]
    places = layout.places.clamp(0, cache.shape[2] - 1)
    return PassTables(layout, places, mask=mask, cos=places, sin=places, window_mask=None, window=None)


def _widened(p: Tensor, ids: Tensor | None, vocab: int) -> Tensor:
    """Return probabilities ``[S, W]`` of a draft's tokens as ``[S, V]`` of the target's."""
    if ids is not None:
        return p.new_zeros(len(p), vocab).index_copy_(1, ids, p)
    return p if p.shape[1] == vocab else F.pad(p, (0, vocab - p.shape[1]))
