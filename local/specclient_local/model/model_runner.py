"""Turn whatever computes a causal model into one thing to drafters and rounds: what every runner offers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import TokenTree


class ModelConfig(Protocol):
    """What is known of a model whoever runs it."""

    @property
    def model_type(self) -> str:
        """The family's name in ``config.json``."""
        ...

    @property
    def vocab_size(self) -> int:
        """Columns of its logits."""
        ...

    @property
    def context(self) -> int:
        """Most positions it may see."""
        ...

    @property
    def eos(self) -> tuple[int, ...]:
        """Ids that end an answer."""
        ...

    @property
    def bos(self) -> int | None:
        """Id that begins an empty prompt."""
        ...

    @property
    def parameters(self) -> int:
        """How many numbers its matrices hold."""
        ...


class ModelRunner(Protocol):
    """A loaded model with the caches of its slots; :class:`Runner` is the own decoder's.

    A slot's cache is a row of positions: tokens are appended, and forgetting is setting a length. Logits
    are in the model's dtype, on its device.
    """

    @property
    def config(self) -> ModelConfig:
        """What is known of the model."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        ...

    @property
    def context(self) -> int:
        """Positions a slot can hold."""
        ...

    @property
    def slots(self) -> int:
        """Sequences it holds at once."""
        ...

    @property
    def prefix_granularity(self) -> int:
        """Rows of a prompt that have the same bits wherever it goes on; see ``prefix``."""
        ...

    def length(self, slot: int) -> int:
        """Return how many positions of a slot are in use."""
        ...

    def unmoved_length(self, slot: int) -> int:
        """Return how many of them, from the first on, were computed where they stand."""
        ...

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Append tokens, without logits."""
        ...

    def read(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Append tokens, a chunk at most; return the logits after each, ``[N, V]``."""
        ...

    def score(self, slot: int, tokens: Sequence[int], tree: TokenTree = ...) -> Tensor:
        """Do as :meth:`score_all` for one slot."""
        ...

    def score_all(self, parts: Sequence[SlotInput]) -> list[Tensor]:
        """Append each part's tokens and its tree; return the logits after the root and after each node."""
        ...

    def draft_chain(self, slot: int, tokens: Sequence[int], steps: int, vocab: int) -> list[int] | None:
        """Append tokens and the likeliest after them in one call; None where the model cannot."""
        ...

    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """Keep of a scored tree the root, at cache position ``root``, and the nodes of one path down."""
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Forget all positions of a slot from ``length`` on."""
        ...

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Append to a slot, ``start`` positions long, what another has from there to ``end``."""
        ...

    def erase(self, slot: int) -> None:
        """Forget a slot's rows for good, so that numbers that are not finite spoil nothing later."""
        ...

    def time_passes(
        self,
        shapes: Sequence[tuple[int, int]],
        *,
        at: int = 64,
        repeats: int = 5,
        clock: Callable[[], float] = time.perf_counter,
    ) -> list[float]:
        """Return the least seconds of passes over so many slots and rows of each."""
        ...

    def assume_length(self, slot: int, length: int) -> None:
        """Take whatever stands in a free slot's first positions for a sequence: passes cost the same."""
        ...
