"""Drafts by some of the target's own layers, which a search chooses while answers are generated.

Self-speculation as in SWIFT (arXiv 2410.06916): the kept layers read the target's own keys and values. A
draft therefore needs no prefill and no memory of its own, and its layers can change at any time. Its rows are
stored after the target's and are overwritten by the verification. A chain ends when the probability that all
of it is accepted falls below the cost of a further step. This is decided before the next token is drawn, so q
stays the distribution from which it was drawn.
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
"""Maximum share of the time for trials of other layer sets."""

_KNOWN = 48
"""Number of known tokens that a trial predicts."""

_BEFORE = 8
"""Minimum number of tokens before those that a trial predicts."""


class LayerSkipDrafter(DraftModel):
    """Drafts by layers of the target that a search chooses.

    A request that a seed must reproduce is drafted by the initial layers, because its answer must not depend
    on earlier requests.

    Args:
        target: the model.
        search: chooses the layers; by default a search of its own.
        clock: returns monotonic seconds; bounds the share of time that trials take.
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
        super().__init__(self._runner(self._fixed), target.config.vocab_size, sharing="none")

    def begin(self, sequence: Sequence) -> bool:  # noqa: ARG002 - the target reads the prompt for both
        """Return True: nothing has to be prepared."""
        return True

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Draft with the best layers so far, after a trial of others if there is time for one."""
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

    def is_greedy_chain(self, sequence: Sequence, shape: DraftShape) -> bool:  # noqa: ARG002
        """Return False: the length of a chain is decided token by token."""
        return False

    def worth(self, draft: GrowingDraft, logits: Tensor) -> bool:
        """Return whether a chain's next token is likely enough to pay for its step."""
        if len(logits) > 1:
            return True
        draft.chance *= float(torch.softmax(logits[0].float(), -1).amax())
        return draft.chance >= self._share

    def mark_not_finite(self, sequence: Sequence) -> None:
        """Do nothing: the target overwrites the draft's rows."""

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:  # noqa: ARG002
        """Do nothing: the next draft reads the target's cache."""
        self._held.pop(sequence.cache_slot, None)

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence, and stop the clock until another one drafts."""
        self._held.pop(sequence.cache_slot, None)
        self._begun = None

    def _layers_for(self, sequence: Sequence) -> LayerSet:
        return self._fixed if sequence.reproducible else self.search.best

    def _runner(self, layers: LayerSet) -> LayerSubsetRunner:
        """Return a runner of some layers; the most recently used ones are cached."""
        runner = self._runners.pop(layers, None) or LayerSubsetRunner(self._target, layers)
        self._runners[layers] = runner
        if len(self._runners) > 8:
            del self._runners[next(each for each in self._runners if each != layers)]
        return runner

    def _count(self) -> None:
        """Add the time since the last proposal to the working time."""
        now = self._clock()
        if self._begun is not None:
            self._worked += now - self._begun
        self._begun = now

    def _known_tokens(self, sequences: Seq[Sequence]) -> Sequence | None:
        """Return a sequence to try layers on, if one is long enough and there is time for a trial."""
        able = [s for s in sequences if not s.reproducible and len(s.tokens) > _BEFORE + _KNOWN]
        if not able or self._tried + self._last > SEARCH_TIME_SHARE * self._worked:
            return None
        return able[0]

    def _try(self, sequence: Sequence) -> None:
        """Let a candidate set predict the last known tokens greedily, and record how many it predicts."""
        begun, layers = self._clock(), self.search.candidate()
        known = sequence.tokens[-_KNOWN - 1 :]
        start = len(sequence.tokens) - 1 - _KNOWN
        predicted = self._runner(layers).predict_tokens(sequence.cache_slot, start, known[:-1])
        self.search.learn(layers, sum(a == b for a, b in zip(predicted, known[1:], strict=True)), _KNOWN)
        self._last = self._clock() - begun
        self._tried += self._last
        self._begun = self._clock()
