"""The protocols of a loaded model with its KV caches, as drafters and rounds use it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import TokenTree


class ModelConfig(Protocol):
    """The properties of a model that do not depend on who runs it."""

    @property
    def model_type(self) -> str:
        """The family's name in ``config.json``."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of columns of the logits, V."""
        ...

    @property
    def context(self) -> int:
        """Maximum number of positions that the model was made for."""
        ...

    @property
    def eos(self) -> tuple[int, ...]:
        """Token ids that end an answer."""
        ...

    @property
    def bos(self) -> int | None:
        """Token id with which a text begins, if any."""
        ...

    @property
    def parameters(self) -> int:
        """Number of elements of the weight matrices."""
        ...


class ModelRunner(Protocol):
    """A loaded model with the KV caches of its slots.

    A slot's cache is a row of positions. Passes append to it; forgetting means setting its length. Logits are
    in the model's dtype, on its device. :class:`~specclient_local.model.decoder_runner.DecoderRunner` is the
    implementation for the built-in decoder, :class:`~specclient_local.model.hf.runner.HfRunner` that for
    ``transformers`` models.
    """

    @property
    def config(self) -> ModelConfig:
        """The model's properties."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        ...

    @property
    def context(self) -> int:
        """Number of positions that a slot can hold."""
        ...

    @property
    def slots(self) -> int:
        """Number of slots."""
        ...

    @property
    def prefix_granularity(self) -> int:
        """Number of rows G: the first n × G rows of a prompt have the same bits in every prompt that shares
        them.

        See :class:`~specclient_local.model.prefix_cache.PrefixCache`.
        """
        ...

    @property
    def recurrent(self) -> bool:
        """Whether some layers have a state instead of keys and values. Then chains can be verified and
        partly forgotten, but not trees, and no prefix of a slot can be copied to another.
        """
        ...

    def length(self, slot: int) -> int:
        """Return the number of positions of a slot that are in use."""
        ...

    def reserve(self, slot: int, end: int) -> int:
        """Take the memory of a slot's positions before ``end``, which is at most the context.

        Returns:
            How many positions the slot can hold by now, at most ``end``; fewer where requests that run share
            a smaller memory.
        """
        ...

    def unmoved_length(self, slot: int) -> int:
        """Return the number of leading positions whose rows were computed at that position, not moved
        there.
        """
        ...

    def use_adapter(self, slot: int, adapter: int | None) -> None:
        """Change the rows of a slot by an adapter from now on, by its number; None for none."""
        ...

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append tokens to a slot's cache, without computing logits."""
        ...

    def read(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Append up to ``MAX_PASS_ROWS`` tokens; return the logits after each, ``[N, V]``."""
        ...

    def score(self, slot: int, tokens: Sequence[int], tree: TokenTree = ...) -> Tensor:
        """Score one slot; see :meth:`score_all`."""
        ...

    def score_all(self, parts: Sequence[SlotInput]) -> list[Tensor]:
        """Append each input's tokens and tree; return the logits after root and nodes, ``[N + 1, V]``
        each.
        """
        ...

    def draft_chains(
        self, parts: Sequence[SlotInput], steps: Sequence[int], vocab: int
    ) -> list[list[int]] | None:
        """Append each slot's tokens and draft as many most likely tokens as ``steps`` says, in one call; None
        if the model cannot.
        """
        ...

    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """Keep the root, at cache position ``root``, and one path of a scored tree; forget the other
        nodes.
        """
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Forget all positions of a slot from ``length`` on."""
        ...

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Copy positions ``start`` to ``end`` of another slot to a slot of length ``start``."""
        ...

    def erase(self, slot: int) -> None:
        """Zero a slot's rows: a value that is not finite would spoil sums even at a masked position."""
        ...

    def time_passes(
        self,
        shapes: Sequence[tuple[int, int]],
        *,
        at: int = 64,
        repeats: int = 5,
        clock: Callable[[], float] = time.perf_counter,
    ) -> list[float]:
        """Return the minimum seconds of a pass for each shape (number of slots, rows of each)."""
        ...

    def assume_length(self, slot: int, length: int) -> None:
        """Treat a free slot's first positions as in use, for timing: the cost does not depend on the
        values.
        """
        ...
