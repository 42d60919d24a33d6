"""Model runner for any causal language model supported by transformers.

It is slower than :class:`specclient_local.model.decoder_runner.DecoderRunner`: one request per pass, and
all operations between projections are the library's. The mode of a model is determined when it is loaded,
by comparing it with a plain pass of the model:

- the attention of ``hf.attention`` with a tree mask: most architectures;
- the model's own attention with a tree mask, if it cannot be replaced (GPT-J);
- without a mask, if the model does not accept masks or positions (ALiBi in Bloom): a tree is scored path by
  path.

A target's rows must not depend on the batch size. On a CPU this is tested at load: if rows are bit-identical
alone and in a batch, drafted tokens are scored together; else one row per pass, which is exact but gains no
time. On an accelerator they are scored together, and greedy outputs equal plain decoding up to near ties.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specclient.errors import CheckpointError
from specclient_local.model.hf.attention import (
    PASS_POSITIONS,
    PassPositions,
    UnsupportedAttentionError,
    exchange_attention,
    exchange_projections,
    first_nodes,
    visibility_mask,
)
from specclient_local.model.hf.cache import HfSlotCache
from specclient_local.model.hf.checkpoint import HfConfig, load_net, read_hf_config
from specclient_local.model.kv_cache import POSITION_BLOCK, cache_too_large_error, memory
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST, KernelChooser
from specclient_local.model.pass_input import EMPTY_TREE, MAX_PASS_ROWS, SlotInput
from specclient_local.request.token_tree import ROOT, TokenTree

_PROBE = 24
"""Number of tokens in the test at load."""

_COUNTS = (2, 3, 5, 8, MAX_ROWS_PER_REQUEST)
"""Batch sizes for which rows are compared with single rows in the test."""


class HfRunner:
    """A transformers model with its caches; see :class:`specclient_local.model.model_runner.ModelRunner`.

    Args:
        net: the model, in evaluation mode. Its attention is replaced.
        config: its configuration.
        slots: maximum number of concurrent sequences.
        context: maximum positions per slot.
        exact: whether rows must not depend on the batch size; required for a target.

    Attributes:
        masked: whether trees are scored with a mask, else path by path.
        together: whether several drafted tokens share a pass.

    Raises:
        CheckpointError: the model cannot run token by token.
        ConfigurationError: the caches do not fit the memory.
    """

    def __init__(
        self, net: PreTrainedModel, config: HfConfig, slots: int, context: int, *, exact: bool = True
    ) -> None:
        self.config = config
        self.context = context
        self.device: torch.device = net.device
        self._net = net
        self._settings = inspect.signature(net.forward).parameters
        self.masked = self.together = True
        own_attention = self._try()
        on_cpu = self.device.type == "cpu"
        self.together = not exact or not on_cpu or (own_attention and self._keeps_rows())
        self._most = 1 if not self.together else MAX_ROWS_PER_REQUEST if exact and on_cpu else MAX_PASS_ROWS
        self._check_memory(slots)
        self._begin(slots)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        dtype: str,
        slots: int,
        context: int,
        exact: bool = True,
        device: str = "cpu",
        quantize: str | None = None,
    ) -> HfRunner:
        """Load a checkpoint folder onto a device; see :mod:`specclient_local.model.hf.checkpoint`.

        Args:
            folder: the checkpoint's folder.
            dtype: compute type, one of ``config.DTYPES``.
            slots: maximum number of concurrent sequences.
            context: maximum positions per slot.
            exact: whether rows must not depend on the batch size; required for a target.
            device: name of the torch device.
            quantize: format of the projections' weights; None keeps them.

        Raises:
            CheckpointError: the architecture is not supported, or the checkpoint is broken.
            ConfigurationError: the caches do not fit the memory, or the device does not support the
                quantisation.
        """
        config = read_hf_config(folder)
        net = load_net(folder, config, dtype, device)
        with torch.inference_mode():
            exchange_projections(net, KernelChooser(exact=exact), quantize)
            return cls(net, config, slots, context, exact=exact)

    @property
    def slots(self) -> int:
        """Maximum number of concurrent sequences."""
        return len(self._slots)

    @property
    def prefix_granularity(self) -> int:
        """Number of rows of which whole multiples of a prefix have the same bits in every prompt."""
        return MAX_PASS_ROWS

    def length(self, slot: int) -> int:
        """Return the number of used positions of a slot."""
        return self._slots[slot].length

    def unmoved_length(self, slot: int) -> int:
        """Return the number of leading positions whose rows were computed there, not moved there."""
        own = self._slots[slot]
        return own.length if own.moved is None else min(own.moved, own.length)

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append tokens to a slot's cache, without logits; at most ``MAX_PASS_ROWS`` rows per pass."""
        for begin in range(0, len(tokens), MAX_PASS_ROWS):
            self._forward(slot, tokens[begin : begin + MAX_PASS_ROWS], wanted=1)

    def read(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Append at most ``MAX_PASS_ROWS`` tokens in one pass; return the logits after each, ``[N, V]``."""
        return self._forward(slot, tokens)

    def score(self, slot: int, tokens: Sequence[int], tree: TokenTree = EMPTY_TREE) -> Tensor:
        """Do the same as :meth:`score_all` for one slot."""
        return self.score_all([SlotInput(slot, tokens, tree)])[0]

    def score_all(self, parts: Sequence[SlotInput]) -> list[Tensor]:
        """Append each part's tokens and the tree below its last token, in one or more passes per part.

        Returns:
            The same as :meth:`specclient_local.model.decoder_runner.DecoderRunner.score_all`.
        """
        return [self._score(part) for part in parts]

    def draft_chain(self, slot: int, tokens: Sequence[int], steps: int, vocab: int) -> list[int] | None:  # noqa: ARG002
        """Return None: chains are not supported, because passes run one by one."""
        return None

    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """Keep only the root of a scored tree, at cache position ``root``, and the nodes of one path."""
        tree = self._trees[slot]
        if self.masked or tree.is_chain:
            self._slots[slot].keep(root, [0, *(node + 1 for node in path)])
            return
        # The cache holds the path that was scored last, which may be another one.
        self.truncate(slot, root + 1)
        if path:
            self._chain(slot, [tree.tokens[node] for node in path])

    def truncate(self, slot: int, length: int) -> None:
        """Remove all positions of a slot from ``length`` on."""
        self._slots[slot].truncate(length)

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Append positions ``start`` to ``end`` of slot ``source`` to a slot with ``start`` positions."""
        self._slots[slot].copy(self._slots[source], start, end)

    def erase(self, slot: int) -> None:
        """Overwrite a slot's rows with zeros."""
        self._slots[slot].erase()

    def time_passes(
        self,
        shapes: Sequence[tuple[int, int]],
        *,
        at: int = 64,
        repeats: int = 5,
        clock: Callable[[], float] = time.perf_counter,
    ) -> list[float]:
        """Return the minimum seconds of passes; see
        :meth:`specclient_local.model.model_runner.ModelRunner.time_passes`."""
        at = max(0, min(at, self.context - max(rows for _, rows in shapes)))
        for slot in range(max(slots for slots, _ in shapes)):
            self.assume_length(slot, at)
        best = [float("inf")] * len(shapes)
        for turn in range(repeats + 1):
            for i, (slots, rows) in enumerate(shapes):
                tree = TokenTree.chain([0] * (rows - 1))
                begun = clock()
                self.score_all([SlotInput(slot, [0], tree) for slot in range(slots)])
                if turn or not repeats:  # the first turn is a warm-up, unless it is the only one
                    best[i] = min(best[i], clock() - begun)
                for slot in range(slots):
                    self.truncate(slot, at)
        for slot in range(self.slots):
            self.truncate(slot, 0)
        return best

    def assume_length(self, slot: int, length: int) -> None:
        """Set a free slot's length without computing its rows; their values do not affect timings."""
        if not self._slots[slot].bytes:
            self.prefill(slot, [0])
        self._slots[slot].assume_length(length)

    def _score(self, part: SlotInput) -> Tensor:
        """Score one part; see :meth:`score_all`."""
        slot, tree, tokens = part.slot, part.tree, list(part.tokens)
        self._trees[slot] = tree
        if tokens:
            self._roots[slot] = self.length(slot) + len(tokens) - 1
        rows: list[Tensor] = []
        if len(tokens) > MAX_PASS_ROWS and not part.every:
            self.prefill(slot, tokens[:-MAX_PASS_ROWS])
            tokens = tokens[-MAX_PASS_ROWS:]
        branches = not self.masked and not tree.is_chain
        beside = 0 if branches else min(len(tree), max(0, self._most - len(tokens)))
        if tokens:
            wanted = None if part.every else beside + 1
            ids = [*tokens, *tree.tokens[:beside]]
            rows.append(self._forward(slot, ids, first_nodes(tree, beside), wanted=wanted))
        else:
            beside = part.held
        if branches:
            rows.append(self._paths(slot, tree)[part.held :])
        else:
            for begin in range(beside, len(tree), self._most):
                end = min(begin + self._most, len(tree))
                rows.append(self._forward(slot, tree.tokens[begin:end], first_nodes(tree, end)))
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
        """Append a chain of tokens, in passes of at most ``_most`` rows; return the logits after each."""
        step = self._most
        return torch.cat([self._forward(slot, tokens[i : i + step]) for i in range(0, len(tokens), step)])

    @torch.inference_mode()
    def _forward(
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
        if "logits_to_keep" in self._settings:
            settings["logits_to_keep"] = keep
        ids = torch.tensor([list(tokens)], device=self.device)
        if not self.masked:
            logits: Tensor = self._net(ids, **settings).logits
            return logits[0, -keep:]
        seen, columns = visibility_mask(tree, self._roots[slot], own.length, len(tokens))
        mask = torch.zeros(seen.shape, dtype=self._net.dtype).masked_fill_(~seen, -torch.inf)
        columns = columns.to(self.device)
        rows = columns[own.length : own.length + len(tokens)]
        token = PASS_POSITIONS.set(PassPositions(rows, columns, self._windows))
        try:
            logits = self._net(
                ids, attention_mask=mask.to(self.device)[None, None], position_ids=rows[None], **settings
            ).logits
        finally:
            PASS_POSITIONS.reset(token)
        return logits[0, -keep:]

    def _begin(self, slots: int, capacity: int | None = None) -> None:
        """Create empty slots; ``capacity`` is the context by default."""
        size = self.context if capacity is None else capacity
        self._slots = [HfSlotCache(self.config.layers, size, whole=self.masked) for _ in range(slots)]
        self._trees = [EMPTY_TREE] * slots
        self._roots = [0] * slots

    def _check_memory(self, slots: int) -> None:
        """Raise an error for caches that do not fit the memory.

        Their size is extrapolated from the test's cache; they are allocated on first use of a slot.
        """
        tried = self._slots[0]
        size = tried.bytes // tried.capacity * -(-self.context // POSITION_BLOCK) * POSITION_BLOCK * slots
        there = memory(self.device)
        if there is not None and size > there:
            raise cache_too_large_error(
                size, f"{slots} slots of {self.context} positions", self._net.dtype, self.device
            )

    def _try(self) -> bool:
        """Determine how the model can run; return whether with the attention of ``hf.attention``."""
        ids = [i * 7 % self.config.vocab_size for i in range(min(_PROBE, self.context))]
        with torch.inference_mode():
            expected: Tensor = self._net(torch.tensor([ids], device=self.device), use_cache=False).logits[0]
        its_own = self._net.config._attn_implementation  # there is no public way to read it
        takes_places = {"position_ids", "attention_mask"} <= set(self._settings)
        self._windows: set[int] = set()
        self._refused: Exception | None = None
        windowed = self.config.window is not None
        if takes_places and exchange_attention(self._net):
            # A layer that does not pass its window would attend to too much, beyond this test's length.
            if self._agrees(ids, expected) and bool(self._windows) == windowed:
                return True
            self._net.set_attn_implementation(its_own)
        if takes_places and not windowed and self._agrees(ids, expected):
            return False
        self.masked = False
        if not self._agrees(ids, expected):
            raise CheckpointError(
                f"{self._net.name_or_path}: {self.config.model_type} gives other logits with a cache than "
                "without, so it cannot be run token by token. Choose a decoder-only model."
            ) from self._refused
        return False

    def _agrees(self, ids: list[int], expected: Tensor) -> bool:
        """Return whether the current mode gives the logits ``[N, V]`` of one plain pass."""
        self._most = MAX_PASS_ROWS
        self._begin(1, _PROBE + 3)
        half = len(ids) // 2
        right, tree = ids[half:], TokenTree()
        tree.add(ROOT, (right[0] + 1) % self.config.vocab_size)
        node = ROOT
        for token in right:
            node = tree.add(node, token)
        try:
            if half > 1:
                self.prefill(0, ids[: half - 1])
            rows = self._score(SlotInput(0, ids[half - 1 : half], tree))
        except (
            UnsupportedAttentionError,
            RuntimeError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
        ) as error:
            self._refused = error  # the reason, for the error message
            return False
        rows = rows[[0, *range(2, len(rows))]]
        bound = 1e-3 if expected.dtype == torch.float32 else 0.05
        return bool((rows - expected[half - 1 :]).abs().max() <= bound * expected.abs().max())

    def _keeps_rows(self) -> bool:
        """Return whether rows are bit-identical alone and in a batch."""
        starts = [5, POSITION_BLOCK - MAX_ROWS_PER_REQUEST // 2]
        vocab = self.config.vocab_size
        self._most = MAX_PASS_ROWS
        for start in starts:
            if start + MAX_ROWS_PER_REQUEST > self.context:
                continue
            self._begin(1, start + MAX_ROWS_PER_REQUEST)
            ids = [i * 11 % vocab for i in range(start + MAX_ROWS_PER_REQUEST)]
            self.prefill(0, ids[:start])
            alone = torch.cat([self._forward(0, [token]) for token in ids[start:]])
            for count in _COUNTS:
                self.truncate(0, start)
                if not torch.equal(self._forward(0, ids[start : start + count]), alone[:count]):
                    return False
        return True
