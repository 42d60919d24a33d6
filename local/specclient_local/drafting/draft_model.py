"""Turn sequences into chains and trees of guesses by a small model of the same vocabulary.

Leviathan et al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318) for chains; trees as in ``growth``.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.drafting.drafter import DraftShape, chain, shape_size
from specclient_local.drafting.tree_growth import GROWN_TREE_BREADTH, TreeGrowth, growth
from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.native.greedy_rounds import NativeRoundResult, NativeRounds
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.model.prefix_cache import PrefixCache
from specclient_local.model.sampling import all_distributions
from specclient_local.request.sequence import EMPTY_CONSTRAINT_MESSAGE, Sequence
from specclient_local.request.token_tree import ROOT, Distribution, TokenTree


@dataclass(slots=True)
class GrowingDraft:
    """A sequence's proposal while it grows.

    Attributes:
        unseen: tokens that the draft has not in its cache; the last is the root.
        held: how many of the scored nodes it has there.
        failed: whether the draft's own numbers, or the rules for them, broke, or it is not worth its steps;
            what has grown by then stands.
        chance: of a chain, that all of it is kept, for a drafter that stops where that is too small.
    """

    sequence: Sequence
    growth: TreeGrowth
    unseen: list[int] = field(default_factory=list)
    held: int = 0
    failed: bool = False
    chance: float = 1.0

    @property
    def going(self) -> bool:
        """Whether another level is wanted and there is anything to put it below."""
        return self.growth.going and not self.failed and bool(self.frontier)

    @property
    def frontier(self) -> list[int]:
        """The nodes whose rows are next."""
        return [ROOT] if self.unseen else list(range(self.held, len(self.growth.scored)))

    def shaped(self, logits: Tensor) -> Tensor | None:
        """Return what the draft says comes after the frontier's nodes, as the request's rules have it.

        None where they raise: the answer does not need the guesses, and if it is lost the same rules say so
        of the target's logits, in this request and no other.
        """
        rules = self.sequence.rules
        if rules is None:
            return logits
        paths = self.growth.scored.paths()
        try:
            return rules.shape(logits, [paths[node + 1] for node in self.frontier])
        except Exception:  # noqa: BLE001 - whatever it is, the others' drafts go on
            self.failed = True
            return None

    def grow(self, logits: Tensor, laws: Seq[Distribution]) -> None:
        """Add the guesses of the next level."""
        frontier = self.frontier
        self.held, self.unseen = len(self.growth.scored), []
        self.growth.grow(logits, laws, frontier, self.sequence.random)


class DraftModel:
    """Drafts by running a small model level by level, with the request's own temperature, top-p and top-k.

    What the target accepted is already in the draft's cache; tokens it has not seen (the target's own
    one, and the last guess where all were accepted) go through together with its next step.

    Args:
        runner: the small model, with as many slots as the target's.
        vocab: rows of the target's output. Models of one family share a tokenizer but pad its
            vocabulary differently; no draft proposes an id the target has not.
        share: whether prompts share what of their beginnings is in its cache.
    """

    def __init__(self, runner: ModelRunner, vocab: int, *, share: bool = True) -> None:
        self.runner = runner
        self._prefixes = PrefixCache(runner, share=share)
        self._vocab = vocab
        self._held: dict[int, list[int | None]] = {}
        self._broken: set[int] = set()

    def begin(self, sequence: Sequence) -> bool:
        """Prefill a chunk of the prompt without its last token; nothing of one too long to draft for."""
        slot, whole = sequence.cache_slot, len(sequence.tokens) - 1
        if whole >= self.runner.context:
            return True
        done = self._prefixes.begin(slot, sequence.tokens, whole)
        end = min(done + MAX_PASS_ROWS, whole)
        self.runner.prefill(slot, self._known(sequence.tokens[done:end]))
        return end == whole

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Grow trees of these shapes, smaller ones where the draft's own context ends.

        All sequences take each step in one pass, but for those whose answer a seed is to fix: the last
        bits of a q depend on who shares the pass, and with them, once in a great while, the answer.
        """
        if len(sequences) == 1:
            guessed = self._guess(sequences[0], self._reach(sequences[0], shapes[0]))
            if guessed is not None:
                return [guessed]
        drafts = [GrowingDraft(s, growth(self._reach(s, h))) for s, h in zip(sequences, shapes, strict=True)]
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
        self, sequence: Sequence, shape: DraftShape, rounds: NativeRounds
    ) -> NativeRoundResult | None:
        """Do as :meth:`propose` for one sequence, and have the target verify it in the same call.

        Args:
            sequence: whose.
            shape: what to draft.
            rounds: of the target.

        Returns:
            None where that takes several calls; then nothing is done.
        """
        steps = self.likeliest(sequence, self._reach(sequence, shape))
        if not steps:
            return None
        unseen = self._known(sequence.tokens[self.runner.length(sequence.cache_slot) :])
        found = rounds.draft_and_verify(self.runner, sequence, unseen, steps, self._vocab)
        if found is not None:
            self._hold(sequence, len(found.drafted), steps)
        return found

    def _guess(self, sequence: Sequence, shape: DraftShape) -> TokenTree | None:
        """Return a chain of likeliest tokens found in one call of the model; None where it takes several."""
        steps, slot = self.likeliest(sequence, shape), sequence.cache_slot
        if not steps:
            return None
        unseen = self._known(sequence.tokens[self.runner.length(slot) :])
        found = self.runner.draft_chain(slot, unseen, steps, self._vocab)
        if found is None:
            return None
        self._hold(sequence, len(found), steps)
        return TokenTree.chain(found, found)  # one-hot: each is all that a greedy draft would draw

    def likeliest(self, sequence: Sequence, shape: DraftShape) -> int:
        """Return how long a chain of likeliest tokens the shape is; 0 where it is none."""
        greedy = sequence.params.temperature == 0.0 and sequence.rules is None
        return len(shape) if greedy and shape == chain(len(shape)) else 0

    def _hold(self, sequence: Sequence, found: int, steps: int) -> None:
        """Note what the cache has of a chain found in one call: all but a guess that no step has read."""
        if found < steps:
            self.mark_not_finite(sequence)
        self._held[sequence.cache_slot] = [at if at < steps - 1 else None for at in range(found)]

    def _reach(self, sequence: Sequence, shape: DraftShape) -> DraftShape:
        """Return the shape, or as long a chain as there is context for."""
        left = self.runner.context - len(sequence.tokens) + 1
        most = shape_size(shape) if isinstance(shape, tuple) else GROWN_TREE_BREADTH * len(shape)
        return shape if most <= left else chain(max(0, min(len(shape), left)))

    def _draw(self, drafts: list[GrowingDraft]) -> None:
        """Let drafts grow level by level, until each is as deep as it should be."""
        drafts = [draft for draft in drafts if draft.growth.going]
        for draft in drafts:
            draft.unseen = self._known(draft.sequence.tokens[self.runner.length(draft.sequence.cache_slot) :])
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
            laws = all_distributions([own for _, own in shaped], [d.sequence.params for d, _ in shaped])
            for (draft, own), law in zip(shaped, laws, strict=True):
                if isinstance(law, EngineError):
                    draft.failed = True  # the answer does not need the guesses
                    if str(law) != EMPTY_CONSTRAINT_MESSAGE:
                        self.mark_not_finite(draft.sequence)
                elif not self.worth(draft, own):
                    draft.failed = True
                else:
                    draft.grow(own, [self._widen(q) for q in law])
            drafts = [draft for draft in drafts if draft.going]

    def worth(self, draft: GrowingDraft, logits: Tensor) -> bool:  # noqa: ARG002 - of drafters that stop by themselves
        """Whether to guess once more, decided by what the draft says and not by what is drawn from it."""
        return True

    def mark_not_finite(self, sequence: Sequence) -> None:
        """Leave nothing of a sequence's slot to others: numbers there were not finite."""
        self._broken.add(sequence.cache_slot)

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Keep of the cache the sequence as it was proposed from and the accepted nodes it holds."""
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
        """Let go of the slot; what it holds may serve others, unless numbers in it were not finite."""
        slot = sequence.cache_slot
        self._held.pop(slot, None)
        if slot in self._broken:
            self._broken.remove(slot)
            self._prefixes.forget(slot)
        self._prefixes.end(slot)

    def _known(self, tokens: list[int]) -> list[int]:
        """Read ids that the draft has not as its first one: any context gives a valid draft."""
        own = self.runner.config.vocab_size
        return tokens if own >= self._vocab else [token if token < own else 0 for token in tokens]

    def _widen(self, q: Distribution) -> Distribution:
        """Give ids that only the target has probability 0."""
        if isinstance(q, int) or len(q) == self._vocab:
            return q
        return np.pad(q, (0, self._vocab - len(q)))
