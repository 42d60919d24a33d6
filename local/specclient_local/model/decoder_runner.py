"""Runs a decoder over the KV caches of its slots: new tokens and trees of several slots in one pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from specclient_local.model.attention_backends import aligned_mask
from specclient_local.model.config import DecoderConfig, read_config
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.kv_cache import POSITION_BLOCK, KVCache
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST
from specclient_local.model.paged_cache import PagedKVCache
from specclient_local.model.pass_input import EMPTY_TREE, MAX_PASS_ROWS, SlotInput, shared_passes
from specclient_local.model.pass_spans import PassSpan, wanted_rows, within_window
from specclient_local.model.recurrent_states import slot_states
from specclient_local.model.weights import load_weights
from specclient_local.request.token_tree import TokenTree

_MAX_SHARED_ROWS = 128
"""Maximum rows of a pass that slots share. Beyond it, sharing no longer makes a row cheaper."""


def max_shared_rows(slots: int) -> int:
    """Return the maximum number of rows of a pass that several slots share."""
    return min(_MAX_SHARED_ROWS, slots * MAX_ROWS_PER_REQUEST)


class DecoderRunner:
    """A decoder with its KV cache, which only this class writes.

    Args:
        decoder: the model.
        slots: number of sequences that it holds at once.
        context: number of positions that a slot can hold.
        spare: additional cache positions for passes that pad their rows.
        pages: number of pages of the cache; None for one with a place for each position of each slot.

    Attributes:
        shared: maximum rows of a pass that several slots share.
        adapters: number of the adapter of each slot; None for none.
        recurrent_states: states of the recurrent layers of each slot; None if there are none.
        causal: ``[MAX_PASS_ROWS, columns]`` the causal mask from which :meth:`_span` takes views.
        window: width of the sliding window; None if there is none within the context.
        sliding_mask: as ``causal`` for layers with a sliding window, or None.
    """

    def __init__(
        self,
        decoder: TransformerDecoder,
        slots: int,
        context: int,
        spare: int = 0,
        *,
        pages: int | None = None,
    ) -> None:
        self.decoder = decoder
        self.context = context
        self.shared = max_shared_rows(slots)
        shape = decoder.config, slots, context + spare, decoder.kv_dtype, decoder.embedding.device
        self.cache = KVCache(*shape) if pages is None else PagedKVCache(*shape, pages=pages)
        self.device = decoder.embedding.device
        self.adapters: list[int | None] = [None] * slots
        self.recurrent_states = slot_states(decoder.config, slots, self.device)
        # Row i of a pass that starts at position s sees positions up to s + i. Each such mask is a view of
        # this one table, shifted by s: column x of row i is visible if x <= context + i.
        columns, rows = torch.arange(2 * (context + POSITION_BLOCK)), torch.arange(MAX_PASS_ROWS)
        ahead = columns[None, :] - context - rows[:, None]
        self.causal = self._mask(ahead > 0)
        window = decoder.config.window
        self.window = None if window is None or window >= context else window
        self.sliding_mask = None if self.window is None else self._mask((ahead > 0) | (ahead <= -self.window))

    @classmethod
    def load(
        cls, folder: Path, *, dtype: str, slots: int, context: int, exact: bool = True, device: str = "cpu"
    ) -> DecoderRunner:
        """Load a checkpoint folder onto a device; ``exact`` as for :class:`TransformerDecoder`.

        Raises:
            CheckpointError: see :mod:`specclient_local.model.weights`.
        """
        config = read_config(folder)
        with torch.inference_mode():
            weights = load_weights(folder, config, dtype, device)
            decoder = TransformerDecoder(config, weights, context, exact=exact, most=max_shared_rows(slots))
            return cls(decoder, slots, context)

    @property
    def config(self) -> DecoderConfig:
        """The model's configuration."""
        return self.decoder.config

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.cache.lengths)

    @property
    def prefix_granularity(self) -> int:
        """See :class:`~specclient_local.model.model_runner.ModelRunner`."""
        return 1 if self.decoder.exact_rows else MAX_PASS_ROWS

    @property
    def recurrent(self) -> bool:
        """See :class:`~specclient_local.model.model_runner.ModelRunner`."""
        return self.recurrent_states is not None

    def length(self, slot: int) -> int:
        """Return the number of positions of a slot that are in use."""
        return self.cache.lengths[slot]

    def reserve(self, slot: int, end: int) -> int:
        """See :class:`~specclient_local.model.model_runner.ModelRunner`."""
        return self.cache.reserve(slot, end)

    def unmoved_length(self, slot: int) -> int:
        """Return the number of leading positions whose rows were computed at that position, not moved
        there.
        """
        return min(self.cache.lengths[slot], self.cache.moved[slot])

    def use_adapter(self, slot: int, adapter: int | None) -> None:
        """Change the rows of a slot by an adapter from now on; None for none."""
        self.adapters[slot] = adapter

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append tokens to a slot's cache without logits, in passes of at most ``MAX_PASS_ROWS`` rows."""
        for begin in range(0, len(tokens), MAX_PASS_ROWS):
            self.run_pass([SlotInput(slot, tokens[begin : begin + MAX_PASS_ROWS])], unread=True)

    def read(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Append up to ``MAX_PASS_ROWS`` tokens in one pass; return the logits after each, ``[N, V]``."""
        return self.run_pass([SlotInput(slot, tokens, every=True)])[0]

    def score(self, slot: int, tokens: Sequence[int], tree: TokenTree = EMPTY_TREE) -> Tensor:
        """Score one slot; see :meth:`score_all`."""
        return self.score_all([SlotInput(slot, tokens, tree)])[0]

    def score_all(self, parts: Sequence[SlotInput]) -> list[Tensor]:
        """Append each input's tokens and the tree below the last of them, under the tree attention mask.

        All inputs share one pass, except that an input of more than ``MAX_ROWS_PER_REQUEST`` rows has its
        own, and that a shared pass has at most :func:`max_shared_rows` rows. A row's logits therefore do not
        depend on the other inputs.

        Returns:
            For each input, logits ``[N + 1, V]`` after the root and after each of the N nodes. If it wants
            ``every`` row, those after each token as well; if its cache held some nodes, those after the other
            nodes only.
        """
        logits: dict[int, Tensor] = {}
        rows = [part.rows for part in parts]
        for indices in shared_passes(rows, self.shared):
            together = [parts[i] for i in indices]
            alone = rows[indices[0]] > MAX_ROWS_PER_REQUEST
            logits.update(
                zip(indices, self._alone(*together) if alone else self.run_pass(together), strict=True)
            )
        return [logits[i] for i in range(len(parts))]

    @torch.inference_mode()
    def draft_chains(
        self, parts: Sequence[SlotInput], steps: Sequence[int], vocab: int
    ) -> list[list[int]] | None:
        """Append tokens, and draft the most likely tokens after them, in one compiled call.

        Each slot then holds its tokens and all drafted ones but the last. ``steps`` are at least 1.

        Returns:
            The drafted tokens of each, all below ``vocab``; fewer if logits were not finite. None (and
            nothing is done) if passes are not compiled, a window slides, or the tokens exceed one pass.
        """
        if not self.decoder.can_draft_chain or sum(part.rows for part in parts) > MAX_PASS_ROWS:
            return None
        ids, positions, spans = self._laid_out(parts)
        found = self.decoder.draft_chains(ids, positions, spans, steps, vocab)
        for part, span, own, most in zip(parts, spans, found, steps, strict=True):
            self.cache.lengths[part.slot] = span.start + span.count + min(len(own), most - 1)
        return found

    def _alone(self, part: SlotInput) -> list[Tensor]:
        """Score an input of many rows in a pass of its own; first prefill the tokens that exceed one pass."""
        spare = max(1, MAX_PASS_ROWS - len(part.tree))
        if len(part.tokens) > spare and not part.every:
            self.prefill(part.slot, part.tokens[:-spare])
            part = SlotInput(part.slot, part.tokens[-spare:], part.tree)
        return self.run_pass([part])

    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """Keep the root, at cache position ``root``, and one path of a scored tree; forget the other
        nodes.
        """
        self.cache.keep(slot, root, [0, *(node + 1 for node in path)])

    def truncate(self, slot: int, length: int) -> None:
        """Forget all positions of a slot from ``length`` on.

        Recurrent layers can go back to the rows of the last pass, and to the beginning.
        """
        self.cache.truncate(slot, length)
        if self.recurrent_states is not None and length == 0:
            self.recurrent_states[slot].assumed = False

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Copy positions ``start`` to ``end`` of another slot to a slot of length ``start``."""
        self.cache.copy(source, slot, start, end)

    def erase(self, slot: int) -> None:
        """Zero a slot's rows; see :meth:`KVCache.erase`."""
        self.cache.erase(slot)

    @torch.inference_mode()
    def run_pass(self, parts: Sequence[SlotInput], *, unread: bool = False) -> list[Tensor]:
        """Run one pass; return each input's logits, or nothing if ``unread``."""
        ids, positions, spans = self._laid_out(parts)
        skipped = [part.unread for part in parts]
        every = not unread and not any(skipped)
        logits = self.compute_logits(
            ids, positions, spans, None if every else wanted_rows(parts, spans, unread)
        )
        for part, span in zip(parts, spans, strict=True):
            self.cache.lengths[part.slot] = span.start + span.count
        if unread:
            return []
        if len(parts) == 1:
            return [logits]
        return list(
            torch.split(logits, [span.count - least for span, least in zip(spans, skipped, strict=True)])
        )

    def _laid_out(self, parts: Sequence[SlotInput]) -> tuple[list[int], list[int], list[PassSpan]]:
        """Return the tokens, positions and spans of a pass."""
        lengths = self.cache.lengths
        self.cache.prepare((part.slot, lengths[part.slot] + part.rows) for part in parts)
        spans: list[PassSpan] = []
        ids: list[int] = []
        positions: list[int] = []
        for part in parts:
            spans.append(self._span(part, len(ids), positions))
            ids += [*part.tokens, *part.tree.tokens[part.held :]]
        return ids, positions, spans

    def compute_logits(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
    ) -> Tensor:
        """Run the rows of a pass; see :meth:`TransformerDecoder.forward`."""
        return self.decoder.forward(ids, positions, spans, wanted)

    def _mask(self, closed: Tensor) -> Tensor:
        """Return an additive mask: -inf where ``closed`` is true, else 0."""
        mask = torch.zeros(closed.shape, dtype=self.decoder.dtype).masked_fill_(closed, -torch.inf)
        return mask.to(self.device)

    def _span(self, part: SlotInput, first: int, positions: list[int]) -> PassSpan:
        """Return the span of an input's rows: cache rows and masks; append its positions to ``positions``."""
        start, rows = self.cache.lengths[part.slot], part.rows
        end = start + rows
        if end > self.context:
            raise ValueError(f"{end} positions exceed the {self.context} a slot can hold")
        if rows > MAX_PASS_ROWS:  # the mask has no more rows, and compiled passes read it unchecked
            raise ValueError(f"{rows} rows exceed the {MAX_PASS_ROWS} of one pass")
        # A chain's mask is a view of the causal mask, over the visible positions in whole blocks.
        shift = self.context - start
        seen = slice(shift, shift + -(-end // POSITION_BLOCK) * POSITION_BLOCK)
        mask = aligned_mask(self.causal[:rows, seen])
        sliding = None if self.sliding_mask is None else aligned_mask(self.sliding_mask[:rows, seen])
        if part.tree.is_chain:
            positions += range(start, end)
        elif self.recurrent_states is not None:
            raise ValueError("a tree has branches, which recurrent layers cannot read")
        else:
            # A node sees the positions before the root and its own ancestors. Its position is the root's plus
            # its depth, although the cache stores the nodes one after another.
            root = end - len(part.tree) - 1
            mask = mask.clone()
            block = mask[max(0, len(part.tokens) - 1) :, root:end]
            above = torch.from_numpy(part.tree.ancestors()[-len(block) :]).to(self.device)
            block.zero_().masked_fill_(~above, -torch.inf)
            below = [root, *(root + depth for depth in part.tree.depths())]
            own = [*range(start, root), *below][-rows:]
            positions += own
            sliding = None if self.window is None else within_window(mask, own, root, below, self.window)
        # All rows see the positions before this pass, except nodes that an earlier pass put into the cache.
        seen_by_all = min(start, end - len(part.tree))
        views, states = self.cache.views(part.slot), None
        if self.recurrent_states is not None:
            states = self.recurrent_states[part.slot]
            states.begin(start, rows)
        adapter = self.adapters[part.slot]
        whole, causal = slice(first, first + rows), part.tree.is_chain
        return PassSpan(whole, views, start, mask, seen_by_all, causal, sliding, adapter, states)

    def time_passes(
        self,
        shapes: Sequence[tuple[int, int]],
        *,
        at: int = 64,
        repeats: int = 5,
        clock: Callable[[], float] = time.perf_counter,
    ) -> list[float]:
        """Return the minimum seconds of a pass for each shape (number of slots, rows of each).

        All slots must be free. The shapes take turns, so that a busy machine slows all of them alike. The
        first turn only warms up, unless it is the only one.

        Args:
            shapes: (slots, rows) pairs.
            at: position at which the passes begin.
            repeats: measured turns.
            clock: returns seconds.
        """
        at = max(0, min(at, self.context - max(rows for _, rows in shapes)))
        most = max(slots for slots, _ in shapes)
        self.cache.write_zeros(most, -(-(at + 1) // POSITION_BLOCK) * POSITION_BLOCK)
        seconds: list[list[float]] = [[] for _ in shapes]
        for _ in range(repeats + 1):
            for i, (slots, rows) in enumerate(shapes):
                for slot in range(most):
                    self.assume_length(slot, at)
                tree = TokenTree.chain([0] * (rows - 1))
                begun = clock()
                self.score_all([SlotInput(slot, [0], tree) for slot in range(slots)])
                seconds[i].append(clock() - begun)
        for slot in range(most):
            self.truncate(slot, 0)
        self.cache.release()
        return [min(taken[1:] or taken) for taken in seconds]

    def assume_length(self, slot: int, length: int) -> None:
        """Treat a free slot's first positions as in use, for timing: the cost does not depend on the
        values.
        """
        self.cache.prepare([(slot, length)])
        self.cache.lengths[slot] = length
        if self.recurrent_states is not None:
            self.recurrent_states[slot].assumed = True
