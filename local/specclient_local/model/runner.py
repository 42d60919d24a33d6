"""Turn (slot, new tokens, tree of guesses) into one pass of a model over its cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from specclient_local.config import DecoderConfig, read_config
from specclient_local.model.cache import BLOCK, KVCache
from specclient_local.model.decoder import Decoder
from specclient_local.model.weights import load_weights
from specclient_local.tree import TokenTree

CHUNK = 256
"""Most rows of one pass; bounds the memory of a prefill."""

_EMPTY = TokenTree()


class Runner:
    """A decoder with its cache, and the only writer of that cache.

    Args:
        decoder: the model.
        slots: sequences it holds at once.
        context: positions a slot can hold.
    """

    def __init__(self, decoder: Decoder, slots: int, context: int) -> None:
        self.decoder = decoder
        self.context = context
        self.cache = KVCache(decoder.config, slots, context, decoder.dtype)
        # Row i of a pass that starts at s sees positions up to s + i. In this one table, shifted by s,
        # every such mask is a view: column x of row i is open while x <= context + i.
        width = 2 * (context + BLOCK)
        columns, rows = torch.arange(width), torch.arange(CHUNK)
        closed = columns[None, :] > context + rows[:, None]
        self._causal = torch.zeros(CHUNK, width, dtype=decoder.dtype).masked_fill_(closed, -torch.inf)

    @classmethod
    def load(cls, folder: Path, *, dtype: str, slots: int, context: int, exact: bool = True) -> Runner:
        """Load a checkpoint folder; ``exact`` as for :class:`Decoder`.

        Raises:
            CheckpointError: see :mod:`specclient_local.model.weights`.
        """
        config = read_config(folder)
        with torch.inference_mode():
            decoder = Decoder(config, load_weights(folder, config, dtype), context, exact=exact)
            return cls(decoder, slots, context)

    @property
    def config(self) -> DecoderConfig:
        """The model's shape."""
        return self.decoder.config

    def length(self, slot: int) -> int:
        """Return how many positions of a slot are in use."""
        return self.cache.lengths[slot]

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append tokens to a slot's cache, without logits; at most ``CHUNK`` rows a pass."""
        for begin in range(0, len(tokens), CHUNK):
            part = tokens[begin : begin + CHUNK]
            self._forward(slot, part, _EMPTY, logits_from=len(part))

    def read(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Append tokens, ``CHUNK`` at most, in one pass; return the logits after each, ``[N, V]``."""
        return self._forward(slot, tokens, _EMPTY, logits_from=0)

    def score(self, slot: int, tokens: Sequence[int], tree: TokenTree = _EMPTY) -> Tensor:
        """Append tokens and the tree below the last of them, in one pass under the ancestor mask.

        Args:
            slot: whose cache.
            tokens: at least one, not yet in the cache; the last is the tree's root.
            tree: guesses below it.

        Returns:
            Logits ``[N + 1, V]`` after the root and after each of the N nodes.
        """
        if len(tokens) + len(tree) > CHUNK:
            spare = max(1, CHUNK - len(tree))
            self.prefill(slot, tokens[:-spare])
            tokens = tokens[-spare:]
        return self._forward(slot, tokens, tree, logits_from=len(tokens) - 1)

    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """Keep after a verification the root, at cache position ``root``, and the accepted nodes."""
        self.cache.keep(slot, root, [0, *(node + 1 for node in path)])

    def truncate(self, slot: int, length: int) -> None:
        """Forget all positions of a slot from ``length`` on."""
        self.cache.truncate(slot, length)

    @torch.inference_mode()
    def _forward(self, slot: int, tokens: Sequence[int], tree: TokenTree, logits_from: int) -> Tensor:
        start, rows = self.cache.lengths[slot], len(tokens) + len(tree)
        end = start + rows
        if end > self.context:
            raise ValueError(f"{end} positions exceed the {self.context} a slot can hold")
        shift = self.context - start
        mask = self._causal[:rows, shift : shift + -(-end // BLOCK) * BLOCK]
        positions: Tensor | slice = slice(start, end)
        if not tree.is_chain:
            root = end - len(tree) - 1
            mask = mask.clone()
            block = mask[len(tokens) - 1 :, root:end]
            block.zero_().masked_fill_(~torch.from_numpy(tree.ancestors()), -torch.inf)
            depths = [root + depth for depth in tree.depths()]
            positions = torch.tensor([*range(start, root + 1), *depths])
        logits = self.decoder.forward(
            torch.tensor([*tokens, *tree.tokens]),
            self.decoder.turns(positions),
            self.cache.views(slot),
            start,
            mask,
            logits_from,
        )
        self.cache.lengths[slot] = end
        return logits

    def time_passes(
        self,
        rows: Sequence[int],
        *,
        at: int = 64,
        repeats: int = 5,
        clock: Callable[[], float] = time.perf_counter,
    ) -> list[float]:
        """Return the least seconds of a pass of so many rows; uses slot 0, which must be free.

        The row counts take turns, so a busy machine slows all alike; the first turn only warms up.
        """
        at = max(0, min(at, self.context - max(rows)))
        self.prefill(0, [0] * at)
        seconds: list[list[float]] = [[] for _ in rows]
        for _ in range(repeats + 1):
            for i, count in enumerate(rows):
                begun = clock()
                self.score(0, [0], TokenTree.chain([0] * (count - 1)))
                seconds[i].append(clock() - begun)
                self.truncate(0, at)
        self.truncate(0, 0)
        return [min(taken[1:]) for taken in seconds]
