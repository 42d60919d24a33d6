"""Passes of a model of transformers over the caches of its slots, one request per pass."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specclient_local.model.hf.attention import PASS_POSITIONS, PassPositions, first_nodes, visibility_mask
from specclient_local.model.hf.cache import HfSlotCache
from specclient_local.model.hf.checkpoint import HfConfig
from specclient_local.model.pass_input import EMPTY_TREE, MAX_PASS_ROWS, SlotInput
from specclient_local.request.token_tree import ROOT, TokenTree


class HfPasses:
    """Appends tokens, chains and trees to the caches of a model, and returns their logits.

    Args:
        net: the model, in evaluation mode.
        config: its configuration.
        context: maximum positions per slot.

    Attributes:
        net: the model.
        forward_parameters: the parameters of its ``forward``, by name.
        masked: whether trees are scored with a mask, else path by path.
        most_rows: maximum number of drafted tokens per pass.
        windows: the sliding windows that its layers passed to the attention of ``hf.attention``.
    """

    def __init__(self, net: PreTrainedModel, config: HfConfig, context: int) -> None:
        self.config = config
        self.context = context
        self.device: torch.device = net.device
        self.net = net
        self.forward_parameters = inspect.signature(net.forward).parameters
        self.masked = True
        self.most_rows = MAX_PASS_ROWS
        self.windows: set[int] = set()

    def reset_slots(self, slots: int, capacity: int | None = None) -> None:
        """Create empty slots; ``capacity`` is the context by default."""
        size = self.context if capacity is None else capacity
        self._slots = [HfSlotCache(self.config.layers, size, whole=self.masked) for _ in range(slots)]
        self._trees = [EMPTY_TREE] * slots
        self._roots = [0] * slots

    def length(self, slot: int) -> int:
        """Return the number of used positions of a slot."""
        return self._slots[slot].length

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append tokens to a slot's cache, without logits; at most ``MAX_PASS_ROWS`` rows per pass."""
        for begin in range(0, len(tokens), MAX_PASS_ROWS):
            self.forward(slot, tokens[begin : begin + MAX_PASS_ROWS], wanted=1)

    def truncate(self, slot: int, length: int) -> None:
        """Remove all positions of a slot from ``length`` on."""
        self._slots[slot].truncate(length)

    def score_part(self, part: SlotInput) -> Tensor:
        """Append a part's tokens and the tree below its last token, in one or more passes.

        Returns:
            The same as :meth:`specclient_local.model.decoder_runner.DecoderRunner.score_all` for one part.
        """
        slot, tree, tokens = part.slot, part.tree, list(part.tokens)
        self._trees[slot] = tree
        if tokens:
            self._roots[slot] = self.length(slot) + len(tokens) - 1
        rows: list[Tensor] = []
        if len(tokens) > MAX_PASS_ROWS and not part.every:
            self.prefill(slot, tokens[:-MAX_PASS_ROWS])
            tokens = tokens[-MAX_PASS_ROWS:]
        # Without masks, a tree with branches is scored path by path. Otherwise the first `beside` nodes share
        # the pass of the tokens, and the other nodes follow in further passes.
        branches = not self.masked and not tree.is_chain
        beside = 0 if branches else min(len(tree), max(0, self.most_rows - len(tokens)))
        if tokens:
            wanted = None if part.every else beside + 1
            ids = [*tokens, *tree.tokens[:beside]]
            rows.append(self.forward(slot, ids, first_nodes(tree, beside), wanted=wanted))
        else:
            beside = part.held
        if branches:
            rows.append(self._paths(slot, tree)[part.held :])
        else:
            for begin in range(beside, len(tree), self.most_rows):
                end = min(begin + self.most_rows, len(tree))
                rows.append(self.forward(slot, tree.tokens[begin:end], first_nodes(tree, end)))
        return torch.cat(rows)

    def _paths(self, slot: int, tree: TokenTree) -> Tensor:
        """Score a tree path by path, ``[N, V]``; the last path stays in the cache."""
        rows: dict[int, Tensor] = {}
        for leaf in (node for node in range(len(tree)) if not tree.children(node)):
            path = [leaf]
            while tree.parents[path[0]] != ROOT:
                path.insert(0, tree.parents[path[0]])
            self.truncate(slot, self._roots[slot] + 1)
            rows.update(zip(path, self._chain(slot, [tree.tokens[node] for node in path]), strict=True))
        return torch.stack([rows[node] for node in range(len(tree))])

    def _chain(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Append a chain of tokens, in passes of at most ``most_rows`` rows; return the logits after each."""
        step = self.most_rows
        return torch.cat([self.forward(slot, tokens[i : i + step]) for i in range(0, len(tokens), step)])

    @torch.inference_mode()
    def forward(
        self, slot: int, tokens: Sequence[int], tree: TokenTree = EMPTY_TREE, *, wanted: int | None = None
    ) -> Tensor:
        """Run rows through the model and append them to a slot's cache.

        Args:
            slot: the slot.
            tokens: ``[N]`` ids; the last ones are the last nodes of the tree.
            tree: the tree below the slot's root; nodes that are not in ``tokens`` are in the cache.
            wanted: number of last rows whose logits are returned; all by default.

        Returns:
            ``[wanted, V]``.
        """
        own, keep = self._slots[slot], len(tokens) if wanted is None else wanted
        if own.length + len(tokens) > self.context:
            end = own.length + len(tokens)
            raise ValueError(f"{end} positions exceed the {self.context} a slot can hold")
        settings: dict[str, Any] = {"past_key_values": own.cache, "use_cache": True}
        if "logits_to_keep" in self.forward_parameters:
            settings["logits_to_keep"] = keep
        ids = torch.tensor([list(tokens)], device=self.device)
        if not self.masked:
            logits: Tensor = self.net(ids, **settings).logits
            return logits[0, -keep:]
        seen, columns = visibility_mask(tree, self._roots[slot], own.length, len(tokens))
        mask = torch.zeros(seen.shape, dtype=self.net.dtype).masked_fill_(~seen, -torch.inf)
        columns = columns.to(self.device)
        rows = columns[own.length : own.length + len(tokens)]
        token = PASS_POSITIONS.set(PassPositions(rows, columns, self.windows))
        try:
            logits = self.net(
                ids, attention_mask=mask.to(self.device)[None, None], position_ids=rows[None], **settings
            ).logits
        finally:
            PASS_POSITIONS.reset(token)
        return logits[0, -keep:]
