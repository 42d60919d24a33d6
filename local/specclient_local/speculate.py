"""Turn a running sequence into its next tokens: one round of propose, score, verify, keep."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from specclient_local.config import Method
from specclient_local.drafting.base import Drafter
from specclient_local.drafting.length import Costs, DraftLength, RunLength
from specclient_local.drafting.prediction import PredictionDrafter
from specclient_local.model.runner import CHUNK, Runner
from specclient_local.model.sampling import distributions
from specclient_local.model.scoring import token_scores
from specclient_local.sequence import Sequence, TokenScore
from specclient_local.tree import TokenTree
from specclient_local.verify import verify

DEFAULT_DRAFT_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Won:
    """What a round won: tokens in order, all but the last proposed by the draft.

    Attributes:
        scores: of each token, where the request asks for ``logprobs``; else empty.
    """

    tokens: list[int]
    scores: list[TokenScore] = field(default_factory=list)

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
        self._drafters: dict[Method, Drafter] = {"prediction": PredictionDrafter()}
        if drafter is not None:
            self._drafters["draft"] = drafter
        self._lengths: dict[int, DraftLength | RunLength] = {}

    def prefill(self, sequence: Sequence) -> bool:
        """Run one chunk of the prompt through each model; return whether the rounds can begin.

        The last token is the root of the first round: the answer's first tokens come out of a round
        like all others. A draft that could never propose anything is spared the prompt.
        """
        ready, drafter = self._read_prompt(sequence), self._drafter_of(sequence)
        if drafter is None:
            return ready
        ready = drafter.begin(sequence) and ready
        length = self._adapting(sequence) if ready else None
        if length is not None:
            self._lengths[sequence.granted] = length
        return ready

    def round(self, sequence: Sequence) -> Won:
        """Win at least one token, and leave the caches as if the won ones had been decoded plainly."""
        slot, target = sequence.granted, self.target
        root = len(sequence.tokens) - 1
        if target.length(slot) < root:
            tree, logits = TokenTree(), self._read_scored(sequence)
        else:
            tree = self._propose(sequence)
            logits = target.score(slot, sequence.tokens[root:], tree)
        verdict = verify(tree, distributions(logits, sequence.params), sequence.dice)
        target.keep(slot, root, verdict.path)
        depth = max(tree.depths(), default=0)
        sequence.tally.count(depth, len(tree), len(verdict.path))
        drafter = self._drafter_of(sequence)
        if drafter is not None:
            drafter.commit(sequence, tree, verdict.path)
        if slot in self._lengths:
            self._lengths[slot].update(depth, len(verdict.path))
        won = [*(tree.tokens[node] for node in verdict.path), verdict.token]
        if sequence.params.logprobs is None:
            return Won(won)
        rows = logits[[0, *(node + 1 for node in verdict.path)]]
        return Won(won, token_scores(rows, won, sequence.params.logprobs))

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence that holds a slot."""
        slot = sequence.granted
        self._lengths.pop(slot, None)
        self.target.truncate(slot, 0)
        for drafter in self._drafters.values():
            drafter.end(sequence)

    def _read_prompt(self, sequence: Sequence) -> bool:
        """Read one chunk of the prompt without its last token; return whether no more is to be read.

        Of a prompt that is to be scored the last chunk is left to the first round, whose pass then gives
        both its scores and the first new token.
        """
        slot, tokens, top = sequence.granted, sequence.tokens, sequence.params.prompt_logprobs
        done, whole = self.target.length(slot), sequence.prompt_tokens - 1
        end = min(done + CHUNK, whole)
        if top is None:
            self.target.prefill(slot, tokens[done:end])
        elif sequence.limit > 0 and whole < done + CHUNK:
            return True
        elif done < end:
            logits = self.target.read(slot, tokens[done:end])
            sequence.scores += token_scores(logits, tokens[done + 1 : end + 1], top)
        return end == whole

    def _read_scored(self, sequence: Sequence) -> Tensor:
        """Read what is left of a prompt to be scored, and return the logits after its last token."""
        done = self.target.length(sequence.granted)
        logits = self.target.read(sequence.granted, sequence.tokens[done:])
        sequence.scores += token_scores(
            logits[:-1], sequence.tokens[done + 1 :], sequence.params.prompt_logprobs or 0
        )
        return logits[-1:]

    def _propose(self, sequence: Sequence) -> TokenTree:
        """Draft so far that even if all is accepted the answer is not longer than allowed."""
        drafter = self._drafter_of(sequence)
        if drafter is None:
            return TokenTree()
        adapting, fixed = self._lengths.get(sequence.granted), sequence.params.draft_length
        wanted = DEFAULT_DRAFT_LENGTH if fixed is None else fixed
        length = min(wanted if adapting is None else adapting.next(), sequence.remaining - 1)
        return drafter.propose(sequence, length) if length > 0 else TokenTree()

    def _drafter_of(self, sequence: Sequence) -> Drafter | None:
        """Return what drafts for a sequence; nothing for one that ends with its first token."""
        return self._drafters.get(sequence.method) if sequence.limit > 1 else None

    def _adapting(self, sequence: Sequence) -> DraftLength | RunLength | None:
        """Return what sets the draft length where the request does not.

        It follows no measured costs for a seeded, sampled request: which random numbers go where
        depends on the lengths, and the same seed should give the same answer on the next run and the
        next machine too.
        """
        params = sequence.params
        if params.draft_length is not None:
            return None
        if sequence.method == "prediction":
            return RunLength()
        seeded = params.seed is not None and params.temperature > 0.0
        return None if seeded or self._costs is None else DraftLength(self._costs)
