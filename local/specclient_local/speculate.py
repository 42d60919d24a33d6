"""Turn running sequences into their next tokens: rounds of propose, score, verify, keep for all at once."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from contextlib import ExitStack
from dataclasses import dataclass, field

from torch import Tensor

from specclient_local.drafting.base import Drafter, Grown, Joint, Shape, chain, within
from specclient_local.drafting.costs import Costs
from specclient_local.drafting.length import (
    DraftLength,
    FixedLength,
    JointLength,
    JudgedLength,
    Length,
    Load,
    RunLength,
    StepLength,
)
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.prediction import PredictionDrafter
from specclient_local.drafting.retokenised import RetokenisedDrafter
from specclient_local.drafting.union import UnionDrafter
from specclient_local.model.base import Model
from specclient_local.model.prefix import Prefixes
from specclient_local.model.runner import CHUNK, Part
from specclient_local.model.sampling import all_distributions
from specclient_local.model.scoring import token_scores
from specclient_local.params import MAX_PREDICTED_LENGTH, MAX_TREE_NODES, Method, SamplingParams
from specclient_local.sequence import Sequence, TokenScore
from specclient_local.tree import Distribution, TokenTree
from specclient_local.verify import verify

DEFAULT_DRAFT_LENGTH = 4
_GROWN = 3
"""Guesses kept of a grown tree for each level it may have; Medusa, whose levels cost no passes, keeps as many
as a tree may have, as its authors do."""


@dataclass(frozen=True, slots=True)
class Won:
    """What a round won: tokens in order, all but the last proposed by the draft.

    Attributes:
        rows: of the target's pass that were its own.
        scores: of each token, where the request asks for ``logprobs``; else empty.
    """

    tokens: list[int]
    rows: int = 1
    scores: list[TokenScore] = field(default_factory=list)

    @property
    def drafted(self) -> list[bool]:
        """For each token, whether the draft proposed it."""
        return [True] * (len(self.tokens) - 1) + [False]


Outcome = Won | Exception
"""What a round gave a sequence: tokens, or what went wrong with it."""


@dataclass(slots=True)
class Move:
    """A sequence's part of a round.

    Attributes:
        sequence: whose.
        tree: what was drafted for it.
        scores_prompt: whether its pass reads the rest of a prompt whose tokens are to be scored.
    """

    sequence: Sequence
    tree: TokenTree = field(default_factory=TokenTree)
    scores_prompt: bool = False


class Speculator:
    """The target, what drafts for it, and how far.

    Args:
        target: the model whose distribution every answer has.
        drafters: by method; none for plain decoding. A prediction and a look-up in the sequence itself need
            no model and are always there.
        costs: of draft and verification passes, by method; a method without drafts what it is told to, or
            what is good on most machines.
        share: whether prompts share what of their beginnings is in the target's cache.
    """

    def __init__(
        self,
        target: Model,
        drafters: Mapping[Method, Drafter] | None = None,
        costs: Mapping[Method, Costs] | None = None,
        *,
        share: bool = True,
    ) -> None:
        self.target = target
        self._prefixes = Prefixes(target, share=share)
        own: dict[Method, Drafter] = {"prediction": PredictionDrafter(), "ngram": NgramDrafter()}
        self.drafters: dict[Method, Drafter] = {**own, **(drafters or {})}
        self._costs = dict(costs or {})
        self._lengths: dict[int, Length] = {}

    @property
    def methods(self) -> tuple[Method, ...]:
        """What a request may ask for."""
        return ("plain", *self.drafters)

    def place(self, sequence: Sequence, free: Seq[int]) -> int:
        """Choose one of the free slots for a sequence."""
        return self._prefixes.place(sequence.tokens, sequence.prompt_tokens - 1, free)

    def chunk(self, sequence: Sequence) -> int:
        """Return how many rows of its prompt the next :meth:`prefill` of a sequence reads."""
        done = self._prefixes.done(sequence.granted, sequence.tokens)
        return min(CHUNK, max(1, sequence.prompt_tokens - 1 - done))

    def prefill(self, sequence: Sequence) -> bool:
        """Run one chunk of the prompt through each model; return whether the rounds can begin.

        What another slot holds of it is copied. The last token is the root of the first round: the
        answer's first tokens come out of a round like all others. A draft that could never propose
        anything is spared the prompt. Chunks end where they end in any company, so that the caches do
        not depend on it.
        """
        ready, drafter = self._read_prompt(sequence), self._drafter_of(sequence)
        if drafter is None:
            return ready
        ready = drafter.begin(sequence) and ready
        if ready:
            self._lengths[sequence.granted] = self._rule(sequence, drafter)
        return ready

    def round(self, sequences: Seq[Sequence]) -> list[Outcome]:
        """Win at least one token for each sequence, all in one pass of the target.

        The caches are left as if the won tokens had been decoded plainly, each sequence by itself. What
        goes wrong with one sequence is its outcome; what goes wrong with a pass is raised.
        """
        moves = self._propose(sequences)
        logits = self.target.score_all([self._part(move) for move in moves])
        rows: list[Tensor] = []
        misruled: dict[int, Exception] = {}
        for move, own in zip(moves, logits, strict=True):
            try:
                rows.append(_shaped(move, own))
            except Exception as error:  # noqa: BLE001 - the others' rounds go on
                misruled[move.sequence.id] = error
                rows.append(_below_root(move, own))
        laws = all_distributions(rows, [sequence.params for sequence in sequences], guessed=True)
        outcomes: list[Outcome] = []
        for move, own, law in zip(moves, logits, laws, strict=True):
            found = misruled.get(move.sequence.id, law)
            try:
                outcomes.append(found if isinstance(found, Exception) else self._settle(move, own, found))
            except Exception as error:  # noqa: BLE001 - the others' rounds go on
                outcomes.append(error)
        return outcomes

    def end(self, sequence: Sequence, *, broken: bool = False) -> None:
        """Forget a sequence that holds a slot, and where something broke what is in its cache, too."""
        slot = sequence.granted
        self._lengths.pop(slot, None)
        with ExitStack() as ends:  # each is called, whatever another one raises
            for drafter in self.drafters.values():
                ends.callback(drafter.end, sequence)
            ends.callback(self._prefixes.forget if broken else self._prefixes.end, slot)

    def _part(self, move: Move) -> Part:
        """Return what of a sequence goes through the target."""
        slot, tokens = move.sequence.granted, move.sequence.tokens
        return Part(slot, tokens[self.target.length(slot) :], move.tree, every=move.scores_prompt)

    def _settle(self, move: Move, logits: Tensor, law: list[Distribution]) -> Won:
        """Verify a sequence's draft, and keep what is accepted."""
        sequence, tree, slot = move.sequence, move.tree, move.sequence.granted
        if move.scores_prompt:
            self._score_prompt(sequence, logits[:-1])
        verdict = verify(tree, law, sequence.dice)
        self.target.keep(slot, len(sequence.tokens) - 1, verdict.path)
        depth = max(tree.depths(), default=0)
        sequence.tally.count(depth, len(tree), len(verdict.path))
        drafter = self._drafter_of(sequence)
        if drafter is not None:
            drafter.commit(sequence, tree, verdict.path)
        if slot in self._lengths:
            self._lengths[slot].update(tree, verdict.path)
        won = [*(tree.tokens[node] for node in verdict.path), verdict.token]
        if sequence.params.logprobs is None:
            return Won(won, logits.shape[0])
        rows = _below_root(move, logits)[[0, *(node + 1 for node in verdict.path)]]
        return Won(won, logits.shape[0], token_scores(rows, won, sequence.params.logprobs))

    def _read_prompt(self, sequence: Sequence) -> bool:
        """Read one chunk of the prompt without its last token; return whether no more is to be read.

        Of a prompt that is to be scored the last chunk is left to the first round, whose pass then gives
        both its scores and the first new token.
        """
        slot, tokens, top = sequence.granted, sequence.tokens, sequence.params.prompt_logprobs
        whole = sequence.prompt_tokens - 1
        if top is None:
            done = self._prefixes.begin(slot, tokens, whole)
            end = min(done + CHUNK, whole)
            self.target.prefill(slot, tokens[done:end])
            if not sequence.produced:
                sequence.cached_tokens = self._prefixes.shared(slot)
            return end == whole
        done = self._prefixes.begin_alone(slot, tokens, whole)
        end = min(done + CHUNK, whole)
        if sequence.limit > 0 and whole < done + CHUNK:
            return True
        if done < end:
            self._score_prompt(sequence, self.target.read(slot, tokens[done:end]))
        return end == whole

    def _score_prompt(self, sequence: Sequence, logits: Tensor) -> None:
        """Score the prompt's next tokens, ``[N, V]`` being what the model says before each."""
        done = len(sequence.scores) + 1
        tokens = sequence.tokens[done : done + len(logits)]
        sequence.scores += token_scores(logits, tokens, sequence.params.prompt_logprobs or 0)

    def _propose(self, sequences: Seq[Sequence]) -> list[Move]:
        """Draft for each so far that even if all is accepted the answer is not longer than allowed."""
        moves = {sequence.id: Move(sequence) for sequence in sequences}
        able: list[Sequence] = []
        for sequence in sequences:
            # What is left of a prompt to be scored goes through without guesses.
            if self.target.length(sequence.granted) < len(sequence.tokens) - 1:
                moves[sequence.id].scores_prompt = True
            elif self._drafter_of(sequence) is not None and sequence.remaining > 1:
                able.append(sequence)
        shapes = {s.id: self._shape(s, len(able), len(sequences) - len(able)) for s in able}
        for method, drafter in self.drafters.items():
            own = [s for s in able if s.method == method and len(shapes[s.id])]
            if own:
                trees = drafter.propose(own, [shapes[s.id] for s in own])
                for sequence, tree in zip(own, trees, strict=True):
                    moves[sequence.id].tree = tree
        return list(moves.values())

    def _shape(self, sequence: Sequence, drafting: int, others: int) -> Shape:
        """Return what to draft for a sequence in a round of so many, as far as answer and context go."""
        tokens = len(sequence.tokens)
        shape = self._lengths[sequence.granted].next(Load(drafting, others, tokens))
        shape = _widened(shape, sequence)
        drafter = self.drafters[sequence.method]
        if isinstance(drafter, UnionDrafter) and not isinstance(shape, Joint):
            shape = Joint(shape, chain(len(shape)), len(drafter.models))
        # A pass has a chunk's rows at most, the root's among them; a union of wide trees would have more.
        return within(shape, sequence.remaining - 1, min(self.target.context - tokens, CHUNK - 1))

    def _drafter_of(self, sequence: Sequence) -> Drafter | None:
        """Return what drafts for a sequence; nothing for one that ends with its first token."""
        return self.drafters.get(sequence.method) if sequence.limit > 1 else None

    def _rule(self, sequence: Sequence, drafter: Drafter) -> Length:
        """Return what decides a request's drafts: the request itself, or how they fare.

        They follow no measured costs, and no load, for a seeded, sampled request: which random numbers go
        where depends on the drafts, and the same seed should give the same answer in any company, on the
        next run and on the next machine too.
        """
        params = sequence.params
        if isinstance(params.draft_length, int):
            return FixedLength(params.draft_length)
        if params.draft_length == "step":
            return StepLength()
        costs = None if sequence.reproducible else self._costs.get(sequence.method)
        if isinstance(drafter, PredictionDrafter):
            return RunLength(costs)
        if isinstance(drafter, NgramDrafter):
            return JudgedLength(costs)
        widths = params.draft_tree is None and not isinstance(drafter, UnionDrafter | RetokenisedDrafter)
        models = FixedLength(_length(params)) if costs is None else DraftLength(costs, widths=widths)
        if isinstance(drafter, UnionDrafter):
            return JointLength(models, len(drafter.models), JudgedLength(costs))
        return models


def _length(params: SamplingParams) -> int:
    """Return how deep to draft where nothing is known: as deep as the widths asked for."""
    tree = params.draft_tree
    return DEFAULT_DRAFT_LENGTH if tree is None or isinstance(tree, str) else len(tree)


def _widened(shape: Shape, sequence: Sequence) -> Shape:
    """Return the tree that a request asks for in a chain's place; the chain's length is the tree's depth."""
    tree = sequence.params.draft_tree
    if isinstance(shape, Joint):
        return Joint(_widened(shape.each, sequence), shape.lookup, shape.drafts)
    if tree is None or not isinstance(shape, tuple):
        return shape
    if tree == "grow":
        if sequence.method == "medusa" and shape:
            return Grown(len(shape), MAX_TREE_NODES)
        return Grown(len(shape), min(_GROWN * len(shape), MAX_PREDICTED_LENGTH))
    return tuple(tree)[: len(shape)]


def _below_root(move: Move, logits: Tensor) -> Tensor:
    """Return the logits after the root and after each guess, ``[N + 1, V]``."""
    return logits[-1 - len(move.tree) :] if move.scores_prompt else logits


def _shaped(move: Move, logits: Tensor) -> Tensor:
    """Return the logits below the root as the request's rules have them."""
    rows, rules = _below_root(move, logits), move.sequence.rules
    return rows if rules is None else rules.shape(rows, move.tree.paths())
