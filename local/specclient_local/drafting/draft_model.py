"""Drafts by a small model with the target's vocabulary.

Leviathan et al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318) for chains; trees as in
:mod:`specclient_local.drafting.tree_growth`.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.drafting.drafter import Drafter, DraftShape, chain, shape_size
from specclient_local.drafting.tree_growth import GROWN_TREE_BREADTH, TreeGrowth, tree_growth_for
from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.native.greedy_rounds import NativeRoundResult, NativeRounds
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.model.prefix_cache import PrefixCache, PrefixSharing
from specclient_local.model.sampling import all_distributions
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import ROOT, Distribution, TokenTree
from specclient_local.request.validation import EmptyConstraintError


@dataclass(slots=True)
class GrowingDraft:
    """A sequence's draft while it grows.

    Attributes:
        sequence: the request.
        growth: the tree so far.
        unseen: tokens that are not in the draft's cache; the last one is the root.
        held: number of scored nodes that are in the draft's cache.
        stopped: whether drafting stopped early: logits were not finite, the logits processor raised, or a
            further step does not pay off. The nodes drafted until then are proposed.
        chance: probability that the whole chain is accepted, for drafters that stop below a threshold.
    """

    sequence: Sequence
    growth: TreeGrowth
    unseen: list[int] = field(default_factory=list)
    held: int = 0
    stopped: bool = False
    chance: float = 1.0

    @property
    def going(self) -> bool:
        """Whether another level is wanted and there are nodes to expand."""
        return self.growth.going and not self.stopped and bool(self.frontier)

    @property
    def frontier(self) -> list[int]:
        """Indices of the nodes whose rows are computed next."""
        return [ROOT] if self.unseen else list(range(self.held, len(self.growth.scored)))

    def shaped(self, logits: Tensor) -> Tensor | None:
        """Return the frontier's logits ``[N, V]`` after the request's logits processor.

        None if the processor raises. The answer does not need the draft, and an error that concerns the
        answer is raised again when the processor gets the target's logits, for this request only.
        """
        processor = self.sequence.logits_processor
        if processor is None:
            return logits
        paths = self.growth.scored.paths()
        try:
            return processor.process(logits, [paths[node + 1] for node in self.frontier])
        except Exception:  # noqa: BLE001 - the other sequences' drafts go on
            self.stopped = True
            return None

    def grow(self, logits: Tensor, distributions: Seq[Distribution]) -> None:
        """Add the next level's nodes, given logits ``[N, V]`` and distributions of the frontier."""
        frontier = self.frontier
        self.held, self.unseen = len(self.growth.scored), []
        self.growth.grow(logits, distributions, frontier, self.sequence.random)


class DraftModel(Drafter):
    """Drafts with a small model, level by level, with the request's temperature, top-p and top-k.

    Accepted tokens are already in the draft's cache. The other tokens (the target's own, and the last drafted
    one if all were accepted) are added to the cache by the first pass of the next draft.

    Args:
        runner: the small model, with as many slots as the target.
        vocab: number of columns of the target's logits. Models of one family share a tokenizer but pad the
            vocabulary differently; no id is drafted that the target does not have.
        sharing: whose keys and values a prompt with a common prefix reuses in the draft's cache.
    """

    adaptive_trees = True

    def __init__(self, runner: ModelRunner, vocab: int, *, sharing: PrefixSharing = "all") -> None:
        self.runner = runner
        self._prefixes = PrefixCache(runner, sharing)
        self._vocab = vocab
        self._held: dict[int, list[int | None]] = {}
        self._broken: set[int] = set()

    def begin(self, sequence: Sequence) -> bool:
        """Prefill a chunk of the prompt without its last token; skip a prompt too long to draft for."""
        slot, whole = sequence.cache_slot, len(sequence.tokens) - 1
        if whole >= self.runner.context:
            return True
        done = self._prefixes.begin(slot, sequence.tokens, whole, sequence.adapter, sequence.owner)
        end = min(done + MAX_PASS_ROWS, whole)
        self.runner.prefill(slot, self._known(sequence.tokens[done:end]))
        return end == whole

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Draft trees of the given shapes, smaller where the draft's context ends.

        Each level of all sequences is drafted in one pass. A sequence whose answer a seed must reproduce is
        drafted alone: the last bits of q depend on the batch, and could, very rarely, change its answer.
        """
        shapes = [self._fit_context(s, h) for s, h in zip(sequences, shapes, strict=True)]
        if (chains := self._draft_natively(sequences, shapes)) is not None:
            return chains
        drafts = [GrowingDraft(s, tree_growth_for(h)) for s, h in zip(sequences, shapes, strict=True)]
        self._draw([draft for draft in drafts if not draft.sequence.reproducible])
        for draft in drafts:
            if draft.sequence.reproducible:
                self._draw([draft])
        trees: list[TokenTree] = []
        for draft in drafts:
            tree, scored = draft.growth.finish()
            self._held[draft.sequence.cache_slot] = [
                at if at is not None and at < draft.held else None for at in scored
            ]
            trees.append(tree)
        return trees

    def draft_and_verify(
        self, sequences: Seq[Sequence], shapes: Seq[DraftShape], rounds: NativeRounds
    ) -> list[NativeRoundResult] | None:
        """Draft chains and verify them in one compiled call.

        Args:
            sequences: all requests of a round.
            shapes: shapes of their drafts; empty for those that do not draft.
            rounds: compiled rounds of the target.

        Returns:
            The results, or None (and nothing is done) if they need several calls.
        """
        shapes = [self._fit_context(s, h) for s, h in zip(sequences, shapes, strict=True)]
        if not any(shapes) or not all(map(self.is_greedy_chain, sequences, shapes)):
            return None
        steps = [*map(len, shapes)]
        unread = [self._unread(s) if count else [] for s, count in zip(sequences, steps, strict=True)]
        found = rounds.draft_and_verify(self.runner, sequences, unread, steps, self._vocab)
        for sequence, own, count in zip(sequences, found or (), steps, strict=False):
            if count:
                self._hold(sequence, len(own.drafted), count)
        return found

    def _draft_natively(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree] | None:
        """Return chains of the most likely tokens, drafted in one compiled call; None if they need several
        calls.
        """
        if not all(map(len, shapes)) or not all(map(self.is_greedy_chain, sequences, shapes)):
            return None
        parts, steps = [SlotInput(s.cache_slot, self._unread(s)) for s in sequences], [*map(len, shapes)]
        found = self.runner.draft_chains(parts, steps, self._vocab)
        if found is None:
            return None
        for sequence, own, count in zip(sequences, found, steps, strict=True):
            self._hold(sequence, len(own), count)
        return [TokenTree.chain(own, own) for own in found]  # one-hot: a greedy draft draws its argmax

    def is_greedy_chain(self, sequence: Sequence, shape: DraftShape) -> bool:
        """Return whether a request's draft is a chain, maybe an empty one, of the draft's most likely
        tokens.
        """
        greedy = sequence.params.temperature == 0.0 and sequence.logits_processor is None
        return greedy and shape == chain(len(shape))

    def _unread(self, sequence: Sequence) -> list[int]:
        """Return the tokens that are not in the draft's cache; the last one is the root."""
        return self._known(sequence.tokens[self.runner.length(sequence.cache_slot) :])

    def _hold(self, sequence: Sequence, found: int, steps: int) -> None:
        """Record which of ``found`` tokens, drafted in one call of ``steps``, are in the cache: all but the
        last.
        """
        if found < steps:
            self.mark_not_finite(sequence)
        self._held[sequence.cache_slot] = [at if at < steps - 1 else None for at in range(found)]

    def _fit_context(self, sequence: Sequence, shape: DraftShape) -> DraftShape:
        """Return the shape, or the longest chain for which the draft's context suffices."""
        left = self.runner.context - len(sequence.tokens) + 1
        most = shape_size(shape) if isinstance(shape, tuple) else GROWN_TREE_BREADTH * len(shape)
        return shape if most <= left else chain(max(0, min(len(shape), left)))

    def _draw(self, drafts: list[GrowingDraft]) -> None:
        """Grow drafts level by level until each has its full depth."""
        drafts = [draft for draft in drafts if draft.growth.going]
        for draft in drafts:
            draft.unseen = self._unread(draft.sequence)
        while drafts:
            rows = self.runner.score_all(
                [SlotInput(d.sequence.cache_slot, d.unseen, d.growth.scored, held=d.held) for d in drafts]
            )
            shaped = [
                (draft, own)
                for draft, logits in zip(drafts, rows, strict=True)
                if (own := draft.shaped(logits[:, : self._vocab])) is not None
            ]
            if not shaped:
                break
            distributions = all_distributions(
                [own for _, own in shaped], [d.sequence.params for d, _ in shaped]
            )
            for (draft, own), distribution in zip(shaped, distributions, strict=True):
                if isinstance(distribution, EngineError):
                    draft.stopped = True  # the answer does not need the draft
                    if not isinstance(distribution, EmptyConstraintError):
                        self.mark_not_finite(draft.sequence)
                elif not self.worth(draft, own):
                    draft.stopped = True
                else:
                    draft.grow(own, [self._widen(q) for q in distribution])
            drafts = [draft for draft in drafts if draft.going]

    def worth(self, draft: GrowingDraft, logits: Tensor) -> bool:  # noqa: ARG002 - overridden by drafters that stop early
        """Return whether another token pays off.

        The decision depends on the draft's logits, not on the token drawn from them, so q stays the
        distribution from which the token was drawn.
        """
        return True

    def mark_not_finite(self, sequence: Sequence) -> None:
        """Mark a sequence's slot: its cache is erased instead of shared, because logits were not finite."""
        self._broken.add(sequence.cache_slot)

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Keep the accepted nodes that the draft's cache holds; truncate the rest."""
        held = self._held.pop(sequence.cache_slot, [])
        if not len(tree):
            return
        kept: list[int] = []
        for node in path:
            at = held[node]
            if at is None:
                break
            kept.append(at)
        self.runner.keep(sequence.cache_slot, len(sequence.tokens) - 1, kept)

    def end(self, sequence: Sequence) -> None:
        """Release the slot. Its cache may serve other prompts, unless numbers in it were not finite."""
        slot = sequence.cache_slot
        self._held.pop(slot, None)
        if slot in self._broken:
            self._broken.remove(slot)
            self._prefixes.forget(slot)
        self._prefixes.end(slot)

    def _known(self, tokens: list[int]) -> list[int]:
        """Replace ids that the draft does not have by its first id: any context gives a valid draft."""
        own = self.runner.config.vocab_size
        return tokens if own >= self._vocab else [token if token < own else 0 for token in tokens]

    def _widen(self, q: Distribution) -> Distribution:
        """Pad a distribution with zeros for ids that only the target has."""
        if isinstance(q, int) or len(q) == self._vocab:
            return q
        return np.pad(q, (0, self._vocab - len(q)))
