"""Turn a running sequence into its next tokens: one round of propose, score, verify, keep."""

from __future__ import annotations

from dataclasses import dataclass

from specclient_local.drafting.base import Drafter
from specclient_local.drafting.length import Costs, DraftLength
from specclient_local.model.runner import CHUNK, Runner
from specclient_local.model.sampling import distributions
from specclient_local.sequence import Sequence
from specclient_local.tree import TokenTree
from specclient_local.verify import verify

DEFAULT_DRAFT_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Won:
    """What a round won: tokens in order, all but the last proposed by the draft."""

    tokens: list[int]

    @property
    def drafted(self) -> list[bool]:
        """For each token, whether the draft proposed it."""
        return [True] * (len(self.tokens) - 1) + [False]


class Speculator:
    """The target, what drafts for it, and how far.

    Args:
        target: the model whose distribution every answer has.
        drafter: None for plain decoding only.
        costs: of draft and verification passes; None fixes the length at 4.
    """

    def __init__(self, target: Runner, drafter: Drafter | None = None, costs: Costs | None = None) -> None:
        self.target = target
        self.drafter = drafter
        self._costs = costs
        self._lengths: dict[int, DraftLength] = {}

    def prefill(self, sequence: Sequence) -> bool:
        """Run one chunk of the prompt through each model; return whether all but its last token is in now.

        The last token is the root of the first round: the answer's first tokens come out of a round
        like all others.
        """
        slot = sequence.granted
        done, whole = self.target.length(slot), sequence.prompt_tokens - 1
        end = min(done + CHUNK, whole)
        self.target.prefill(slot, sequence.tokens[done:end])
        if self.drafter is None or sequence.method == "plain":
            return end == whole
        if not self.drafter.begin(sequence) or end < whole:
            return False
        if self._costs is not None and self._adapts(sequence):
            self._lengths[slot] = DraftLength(self._costs)
        return True

    def round(self, sequence: Sequence) -> Won:
        """Win at least one token, and leave the caches as if the won ones had been decoded plainly."""
        slot, target = sequence.granted, self.target
        root = target.length(slot)
        tree = self._propose(sequence)
        logits = target.score(slot, sequence.tokens[root:], tree)
        verdict = verify(tree, distributions(logits, sequence.params), sequence.dice)
        target.keep(slot, root, verdict.path)
        depth = max(tree.depths(), default=0)
        sequence.tally.count(depth, len(tree), len(verdict.path))
        if sequence.method != "plain" and self.drafter is not None:
            self.drafter.commit(sequence, tree, verdict.path)
            if slot in self._lengths:
                self._lengths[slot].update(depth, len(verdict.path))
        return Won([*(tree.tokens[node] for node in verdict.path), verdict.token])

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence that holds a slot."""
        slot = sequence.granted
        self._lengths.pop(slot, None)
        self.target.truncate(slot, 0)
        if self.drafter is not None:
            self.drafter.end(sequence)

    def _propose(self, sequence: Sequence) -> TokenTree:
        """Draft so far that even if all is accepted the answer is not longer than allowed."""
        if self.drafter is None or sequence.method == "plain":
            return TokenTree()
        controller = self._lengths.get(sequence.granted)
        fixed = sequence.params.draft_length
        wanted = DEFAULT_DRAFT_LENGTH if fixed is None else fixed
        if controller is not None:
            wanted = controller.next()
        length = min(wanted, sequence.remaining - 1)
        return self.drafter.propose(sequence, length) if length > 0 else TokenTree()

    def _adapts(self, sequence: Sequence) -> bool:
        """Whether the draft length follows the measurements.

        Not for a seeded, sampled request: which random numbers go where depends on the lengths, and
        the same seed should give the same answer on the next run and the next machine too.
        """
        params = sequence.params
        seeded = params.seed is not None and params.temperature > 0.0
        return params.draft_length is None and not seeded
