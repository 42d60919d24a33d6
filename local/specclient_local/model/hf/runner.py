"""Turn new tokens and trees of guesses into passes of any causal model that transformers has.

The slower runner: one request a pass, and what the model computes between its projections is the
library's. How a model can be run is found out at load, by trying it against a plain pass of itself:

- rows attended to by our own attention, under a mask of who sees whom: most architectures;
- under such a mask by the model's own attention, where that cannot be exchanged (GPT-J);
- one after another, where the model takes no mask or no positions (ALiBi in Bloom): a tree goes through
  path by path.

A target's rows must not depend on how many come with them. Where they come out bit for bit the same in
company as alone, tried at load on a CPU, guesses are scored together; where not, one row a pass, which is
exact and wins no time. On an accelerator they are scored together, and greedy answers are those of plain
decoding up to near ties.
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
"""Tokens of the trial at load."""

_COUNTS = (2, 3, 5, 8, MAX_ROWS_PER_REQUEST)
"""Rows in company at the trial."""


class HfRunner:
    """A transformers model with its caches; see :class:`specclient_local.model.model_runner.ModelRunner`.

    Args:
        net: the model, in evaluation mode. Its attention is exchanged.
        config: what is known of it.
        slots: sequences it holds at once.
        context: positions a slot can hold.
        exact: whether rows must not depend on their company: of a target they must not.

    Attributes:
        masked: whether trees go through under a mask, else path by path.
        together: whether guesses share a pass.

    Raises:
        CheckpointError: the model cannot be run token by token.
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

        Raises:
            CheckpointError: an architecture that cannot be run, or a broken folder.
            ConfigurationError: as the class, and of a quantisation the device has not.
        """
        config = read_hf_config(folder)
        net = load_net(folder, config, dtype, device)
        with torch.inference_mode():
            exchange_projections(net, KernelChooser(exact=exact), quantize)
            return cls(net, config, slots, context, exact=exact)

    @property
    def slots(self) -> int:
        """How many sequences it holds at once."""
        return len(self._slots)

    @property
    def prefix_granularity(self) -> int:
        """Rows of a prompt that have the same bits wherever it goes on."""
        return MAX_PASS_ROWS

    def length(self, slot: int) -> int:
        """Return how many positions of a slot are in use."""
        return self._slots[slot].length

    def unmoved_length(self, slot: int) -> int:
        """Return how many of them, from the first on, were computed where they stand."""
        own = self._slots[slot]
        return own.length if own.moved is None else min(own.moved, own.length)

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append tokens to a slot's cache, without logits; at most ``MAX_PASS_ROWS`` rows a pass."""
        for begin in range(0, len(tokens), MAX_PASS_ROWS):
            self._forward(slot, tokens[begin : begin + MAX_PASS_ROWS], wanted=1)

    def read(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Append tokens, ``MAX_PASS_ROWS`` at most, in one pass; return the logits after each, ``[N, V]``."""
        return self._forward(slot, tokens)

    def score(self, slot: int, tokens: Sequence[int], tree: TokenTree = EMPTY_TREE) -> Tensor:
        """Do as :meth:`score_all` for one slot."""
        return self.score_all([SlotInput(slot, tokens, tree)])[0]

    def score_all(self, parts: Sequence[SlotInput]) -> list[Tensor]:
        """Append each part's tokens and the tree below the last of them, a pass or more for each.

        Returns:
            As :meth:`specclient_local.model.decoder_runner.DecoderRunner.score_all`.
        """
        return [self._score(part) for part in parts]

    def draft_chain(self, slot: int, tokens: Sequence[int], steps: int, vocab: int) -> list[int] | None:  # noqa: ARG002
        """Return None: passes go one by one."""
        return None

    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """Keep of a scored tree the root, at cache position ``root``, and the nodes of one path down."""
        tree = self._trees[slot]
        if self.masked or tree.is_chain:
            self._slots[slot].keep(root, [0, *(node + 1 for node in path)])
            return
        # The path that went through last is in the cache, and it may be another.
        self.truncate(slot, root + 1)
        if path:
            self._chain(slot, [tree.tokens[node] for node in path])

    def truncate(self, slot: int, length: int) -> None:
        """Forget all positions of a slot from ``length`` on."""
        self._slots[slot].truncate(length)

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Append to a slot, ``start`` positions long, what another has from there to ``end``."""
        self._slots[slot].copy(self._slots[source], start, end)

    def erase(self, slot: int) -> None:
        """Forget a slot's rows for good."""
        self._slots[slot].erase()

    def time_passes(
        self,
        shapes: Sequence[tuple[int, int]],
        *,
        at: int = 64,
        repeats: int = 5,
        clock: Callable[[], float] = time.perf_counter,
    ) -> list[float]:
        """Return the least seconds of passes; as
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
                if turn or not repeats:  # the first only warms up, unless it is the only one
                    best[i] = min(best[i], clock() - begun)
                for slot in range(slots):
                    self.truncate(slot, at)
        for slot in range(self.slots):
            self.truncate(slot, 0)
        return best

    def assume_length(self, slot: int, length: int) -> None:
        """Take whatever stands in a free slot's first positions for a sequence: passes cost the same."""
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
        """Score a tree path by path, ``[N, V]``; the last one stays in the cache."""
        rows: dict[int, Tensor] = {}
        for leaf in (node for node in range(len(tree)) if not tree.children(node)):
            path = [leaf]
            while tree.parents[path[0]] != ROOT:
                path.insert(0, tree.parents[path[0]])
            self.truncate(slot, self._roots[slot] + 1)
            rows.update(zip(path, self._chain(slot, [tree.tokens[node] for node in path]), strict=True))
        return torch.stack([rows[node] for node in range(len(tree))])

    def _chain(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Append tokens as they would come one by one; return the logits after each."""
        step = self._most
        return torch.cat([self._forward(slot, tokens[i : i + step]) for i in range(0, len(tokens), step)])

    @torch.inference_mode()
    def _forward(
        self, slot: int, tokens: Sequence[int], tree: TokenTree = EMPTY_TREE, *, wanted: int | None = None
    ) -> Tensor:
        """Run rows through the model and append them to a slot's cache.

        Args:
            slot: whose.
            tokens: ``[N]`` ids, the last nodes of the tree being the last of them.
            tree: below the slot's root; nodes that are not among ``tokens`` are in the cache.
            wanted: how many rows' logits are wanted, the last ones; all by default.

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
        """Have so many empty slots."""
        size = self.context if capacity is None else capacity
        self._slots = [HfSlotCache(self.config.layers, size, whole=self.masked) for _ in range(slots)]
        self._trees = [EMPTY_TREE] * slots
        self._roots = [0] * slots

    def _check_memory(self, slots: int) -> None:
        """Refuse caches that do not fit, by what the trial's took; they are allocated as slots are used."""
        tried = self._slots[0]
        size = tried.bytes // tried.capacity * -(-self.context // POSITION_BLOCK) * POSITION_BLOCK * slots
        there = memory(self.device)
        if there is not None and size > there:
            raise cache_too_large_error(
                size, f"{slots} slots of {self.context} positions", self._net.dtype, self.device
            )

    def _try(self) -> bool:
        """Find out how the model can be run; return whether by our own attention."""
        ids = [i * 7 % self.config.vocab_size for i in range(min(_PROBE, self.context))]
        with torch.inference_mode():
            expected: Tensor = self._net(torch.tensor([ids], device=self.device), use_cache=False).logits[0]
        its_own = self._net.config._attn_implementation  # there is no other way to ask
        takes_places = {"position_ids", "attention_mask"} <= set(self._settings)
        self._windows: set[int] = set()
        self._refused: Exception | None = None
        windowed = self.config.window is not None
        if takes_places and exchange_attention(self._net):
            # A layer that does not say its window would see too much, further on than is tried here.
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
        """Return whether the model, run as set, says what it says in one plain pass; ``[N, V]``."""
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
            self._refused = error  # whatever it is that the model does not take
            return False
        rows = rows[[0, *range(2, len(rows))]]
        bound = 1e-3 if expected.dtype == torch.float32 else 0.05
        return bool((rows - expected[half - 1 :]).abs().max() <= bound * expected.abs().max())

    def _keeps_rows(self) -> bool:
        """Return whether rows alone and in company are the same bit for bit."""
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
