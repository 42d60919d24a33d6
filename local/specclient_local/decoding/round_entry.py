"""One sequence in a round: its draft, the rows of its logits, and the tokens that the round emits."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from specclient_local.drafting.drafter import DraftShape, is_chain_shape
from specclient_local.request.params import Verification
from specclient_local.request.sequence import Sequence, TokenScore
from specclient_local.request.token_tree import TokenTree


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round for one sequence.

    Attributes:
        tokens: new tokens in order. All but the last were proposed by the draft.
        rows: number of the sequence's rows in the target's pass.
        scores: log-probabilities of ``tokens`` if the request sets ``logprobs``, else empty.
    """

    tokens: list[int]
    rows: int = 1
    scores: list[TokenScore] = field(default_factory=list)

    @property
    def drafted(self) -> list[bool]:
        """Whether the draft proposed each of ``tokens``."""
        return [True] * (len(self.tokens) - 1) + [False]


RoundOutcome = RoundResult | Exception
"""The result of a round for one sequence, or the error that ends that sequence alone."""


@dataclass(slots=True)
class RoundEntry:
    """One sequence in a round.

    Attributes:
        sequence: the request.
        shape: shape of the draft to propose.
        tree: the proposed tree.
        scores_prompt: whether the pass also reads the end of a prompt whose tokens are scored.
    """

    sequence: Sequence
    shape: DraftShape = ()
    tree: TokenTree = field(default_factory=TokenTree)
    scores_prompt: bool = False

    @property
    def verification(self) -> Verification:
        """The rule by which the tree is verified: the request's for chains, token by token for other trees.

        A chain is one by its shape, which was chosen before any token was drawn.
        """
        chain = is_chain_shape(self.shape) and self.tree.is_chain
        return self.sequence.params.verification_rule if chain else "token"


def is_plain_greedy(entry: RoundEntry) -> bool:
    """Return whether only the argmax matters: temperature 0, no logits processor, no log-probabilities."""
    params = entry.sequence.params
    unprocessed = (
        entry.sequence.logits_processor is None and params.logprobs is None and not entry.scores_prompt
    )
    return unprocessed and params.temperature == 0.0


def tree_logits(entry: RoundEntry, logits: Tensor) -> Tensor:
    """Return the logits after the root and after each of the N nodes, ``[N + 1, V]``."""
    return logits[-1 - len(entry.tree) :] if entry.scores_prompt else logits


def processed_logits(entry: RoundEntry, logits: Tensor) -> Tensor:
    """Return the logits of root and nodes after the request's logits processor, ``[N + 1, V]``."""
    rows, processor = tree_logits(entry, logits), entry.sequence.logits_processor
    return rows if processor is None else processor.process(rows, entry.tree.paths())
