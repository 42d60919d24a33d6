"""Model runner for any causal language model supported by transformers.

It is slower than :class:`specclient_local.model.decoder_runner.DecoderRunner`: one request per pass, and
all operations between projections are the library's. The mode of a model is determined when it is loaded,
by comparing it with a plain pass of the model (``hf.pass_mode``):

- the attention of ``hf.attention`` with a tree mask: most architectures;
- the model's own attention with a tree mask, if it cannot be replaced (GPT-J);
- without a mask, if the model does not accept masks or positions (ALiBi in Bloom): a tree is scored path by
  path.

A target's rows must not depend on the batch size. On a CPU this is tested at load: if rows are bit-identical
alone and in a batch, drafted tokens are scored together; else one row per pass, which is exact but gains no
time. On an accelerator they are scored together, and greedy outputs equal plain decoding up to near ties.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specclient_local.model.hf.attention import exchange_projections
from specclient_local.model.hf.checkpoint import HfConfig, load_net, read_hf_config
from specclient_local.model.hf.pass_mode import choose_mode, rows_keep_bits
from specclient_local.model.hf.passes import HfPasses
from specclient_local.model.kv_cache import POSITION_BLOCK, cache_too_large_error, memory
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST, KernelChooser
from specclient_local.model.pass_input import EMPTY_TREE, MAX_PASS_ROWS, SlotInput
from specclient_local.request.token_tree import TokenTree


class HfRunner(HfPasses):
    """A transformers model with its caches; see :class:`specclient_local.model.model_runner.ModelRunner`.

    Args:
        net: the model, in evaluation mode. Its attention is replaced.
        config: its configuration.
        slots: maximum number of concurrent sequences.
        context: maximum positions per slot.
        exact: whether rows must not depend on the batch size; required for a target.

    Attributes:
        together: whether several drafted tokens share a pass.

    Raises:
        CheckpointError: the model cannot run token by token.
        ConfigurationError: the caches do not fit the memory.
    """

    def __init__(
        self, net: PreTrainedModel, config: HfConfig, slots: int, context: int, *, exact: bool = True
    ) -> None:
        super().__init__(net, config, context)
        own_attention = choose_mode(self)
        on_cpu = self.device.type == "cpu"
        self.together = not exact or not on_cpu or (own_attention and rows_keep_bits(self))
        rows = MAX_ROWS_PER_REQUEST if exact and on_cpu else MAX_PASS_ROWS
        self.most_rows = rows if self.together else 1
        self._check_memory(slots)
        self.reset_slots(slots)

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
        """See :class:`~specclient_local.model.model_runner.ModelRunner`."""
        return MAX_PASS_ROWS

    @property
    def recurrent(self) -> bool:
        """Return False: recurrent models of transformers are refused."""
        return False

    def use_adapter(self, slot: int, adapter: int | None) -> None:
        """Do nothing: the loader refuses adapters for models that transformers runs."""

    def reserve(self, slot: int, end: int) -> int:  # noqa: ARG002 - every slot has its own memory
        """Return ``end``."""
        return end

    def unmoved_length(self, slot: int) -> int:
        """Return the number of leading positions whose rows were computed there, not moved there."""
        own = self._slots[slot]
        return own.length if own.moved is None else min(own.moved, own.length)

    def read(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Append at most ``MAX_PASS_ROWS`` tokens in one pass; return the logits after each, ``[N, V]``."""
        return self.forward(slot, tokens)

    def score(self, slot: int, tokens: Sequence[int], tree: TokenTree = EMPTY_TREE) -> Tensor:
        """Do the same as :meth:`score_all` for one slot."""
        return self.score_all([SlotInput(slot, tokens, tree)])[0]

    def score_all(self, parts: Sequence[SlotInput]) -> list[Tensor]:
        """Append each part's tokens and the tree below its last token, in one or more passes per part.

        Returns:
            The same as :meth:`specclient_local.model.decoder_runner.DecoderRunner.score_all`.
        """
        return [self.score_part(part) for part in parts]

    def draft_chains(
        self,
        parts: Sequence[SlotInput],  # noqa: ARG002
        steps: Sequence[int],  # noqa: ARG002
        vocab: int,  # noqa: ARG002
    ) -> list[list[int]] | None:
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

    def _check_memory(self, slots: int) -> None:
        """Raise an error for caches that do not fit the memory.

        Their size is extrapolated from the test's cache; they are allocated on first use of a slot.
        """
        tried = self._slots[0]
        size = tried.bytes // tried.capacity * -(-self.context // POSITION_BLOCK) * POSITION_BLOCK * slots
        there = memory(self.device)
        if there is not None and size > there:
            raise cache_too_large_error(
                size, f"{slots} slots of {self.context} positions", self.net.dtype, self.device
            )
