"""Turn sequences into guesses by some of the target's own layers, chosen while the stream runs.

Self-speculation as in SWIFT (arXiv 2410.06916): the kept layers read what the target wrote of the sequence
into its own cache, so a draft needs no prompt, no memory, and no time to change its layers. What a draft
writes lies behind the target's rows, where the verification's own rows come next. A chain ends where its
chance of being kept falls below what a further step costs; that is decided before anything is drawn there,
so q stays the one that was drawn from.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from specclient_local.drafting.draft_model import DraftModel, GrowingDraft
from specclient_local.drafting.drafter import DraftShape
from specclient_local.drafting.layer_search import LayerSearch, LayerSet, first_layers
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.layer_subset import LayerSubsetRunner
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

SEARCH_TIME_SHARE = 0.08
"""Share of the time that trials may take."""

_KNOWN = 48
"""Tokens that a trial foretells."""

_BEFORE = 8
"""Tokens that stand before them at least."""


class LayerSkipDrafter(DraftModel):
    """Drafts by layers of the target that a search chooses.

    Requests whose answer a seed is to fix draft by the layers the search begins with: theirs must not depend
    on what ran before.

    Args:
        target: the model.
        search: what chooses; one of the model's own by default.
        clock: seconds, for the share of time that trials take.
    """

    def __init__(
        self,
        target: DecoderRunner,
        search: LayerSearch | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        layers = target.config.layers
        self._target = target
        self.search = search or LayerSearch(layers, random.Random(0))
        self._fixed = first_layers(layers)
        self._runners: dict[LayerSet, LayerSubsetRunner] = {}
        self._clock = clock
        self._share = 1.0
        self._begun: float | None = None
        self._worked = self._tried = self._last = 0.0
        super().__init__(self._runner(self._fixed), target.config.vocab_size, share=False)

    def begin(self, sequence: Sequence) -> bool:  # noqa: ARG002 - the target reads the prompt for both
        """Return True: there is nothing to prepare."""
        return True

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Grow trees by the best layers so far, after a trial of others where there is time for one."""
        self._count()
        if (known := self._known_tokens(sequences)) is not None:
            self._try(known)
        trees: dict[int, TokenTree] = {}
        for layers in dict.fromkeys(map(self._layers_for, sequences)):
            own = [(s, h) for s, h in zip(sequences, shapes, strict=True) if self._layers_for(s) == layers]
            runner = self.runner = self._runner(layers)
            self._share = len(layers) / self._target.config.layers
            for sequence, _ in own:
                runner.cache.lengths[sequence.cache_slot] = len(sequence.tokens) - 1
            found = super().propose([s for s, _ in own], [h for _, h in own])
            trees.update((s.id, tree) for (s, _), tree in zip(own, found, strict=True))
        return [trees[sequence.id] for sequence in sequences]

    def likeliest(self, sequence: Sequence, shape: DraftShape) -> int:  # noqa: ARG002
        """Return 0: how far a chain goes is decided token by token."""
        return 0

    def worth(self, draft: GrowingDraft, logits: Tensor) -> bool:
        """Whether a chain's next guess is likely enough to pay for its step."""
        if len(logits) > 1:
            return True
        draft.chance *= float(torch.softmax(logits[0].float(), -1).amax())
        return draft.chance >= self._share

    def mark_not_finite(self, sequence: Sequence) -> None:
        """Do nothing: rows that are not finite are the target's to see, which writes its own over them."""

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:  # noqa: ARG002
        """Learn nothing: the next draft reads what the target has kept."""
        self._held.pop(sequence.cache_slot, None)

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence, and count no time until another one drafts."""
        self._held.pop(sequence.cache_slot, None)
        self._begun = None

    def _layers_for(self, sequence: Sequence) -> LayerSet:
        return self._fixed if sequence.reproducible else self.search.best

    def _runner(self, layers: LayerSet) -> LayerSubsetRunner:
        """Return a runner of some layers; those of the sets used last are kept."""
        runner = self._runners.pop(layers, None) or LayerSubsetRunner(self._target, layers)
        self._runners[layers] = runner
        if len(self._runners) > 8:
            del self._runners[next(each for each in self._runners if each != layers)]
        return runner

    def _count(self) -> None:
        """Add the time since the last proposal to that of work."""
        now = self._clock()
        if self._begun is not None:
            self._worked += now - self._begun
        self._begun = now

    def _known_tokens(self, sequences: Seq[Sequence]) -> Sequence | None:
        """Return a sequence to try layers on, if one is long enough and there is time for it."""
        able = [s for s in sequences if not s.reproducible and len(s.tokens) > _BEFORE + _KNOWN]
        if not able or self._tried + self._last > SEARCH_TIME_SHARE * self._worked:
            return None
        return able[0]

    def _try(self, sequence: Sequence) -> None:
        """Let a set foretell the last known tokens, and take note of how many it did."""
        begun, layers = self._clock(), self.search.candidate()
        known = sequence.tokens[-_KNOWN - 1 :]
        start = len(sequence.tokens) - 1 - _KNOWN
        predicted = self._runner(layers).predict_tokens(sequence.cache_slot, start, known[:-1])
        self.search.learn(layers, sum(a == b for a, b in zip(predicted, known[1:], strict=True)), _KNOWN)
        self._last = self._clock() - begun
        self._tried += self._last
        self._begun = self._clock()
