"""Turn running sequences into their next tokens: rounds of propose, score, verify, keep for all at once."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from contextlib import ExitStack
from dataclasses import dataclass, field

from torch import Tensor

from specclient_local.decoding.verify import AcceptedPath, verify
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter, DraftShape, UnionShape, chain, clip_shape
from specclient_local.drafting.length_policy import LengthPolicy, RoundLoad
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.policy_selection import length_policy_for, requested_shape
from specclient_local.drafting.prediction import PredictionDrafter
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.drafting.union import UnionDrafter
from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.native.greedy_rounds import NativeRoundResult, NativeRounds
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.model.prefix_cache import PrefixCache
from specclient_local.model.sampling import all_distributions, logits_error
from specclient_local.model.scoring import token_scores
from specclient_local.request.params import Method
from specclient_local.request.sequence import Sequence, TokenScore
from specclient_local.request.token_tree import Distribution, TokenTree


@dataclass(frozen=True, slots=True)
class RoundResult:
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


RoundOutcome = RoundResult | Exception
"""What a round gave a sequence: tokens, or what went wrong with it."""


@dataclass(slots=True)
class RoundEntry:
    """A sequence's part of a round.

    Attributes:
        sequence: whose.
        shape: what is to be drafted for it.
        tree: what was.
        scores_prompt: whether its pass reads the rest of a prompt whose tokens are to be scored.
    """

    sequence: Sequence
    shape: DraftShape = ()
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

    Attributes:
        rounds: what does a lone greedy request's rounds in one call each; None where nothing does.
    """

    def __init__(
        self,
        target: ModelRunner,
        drafters: Mapping[Method, Drafter] | None = None,
        costs: Mapping[Method, RoundCosts] | None = None,
        *,
        share: bool = True,
    ) -> None:
        self.target = target
        self._prefixes = PrefixCache(target, share=share)
        own: dict[Method, Drafter] = {"prediction": PredictionDrafter(), "ngram": NgramDrafter()}
        self.drafters: dict[Method, Drafter] = {**own, **(drafters or {})}
        self._costs = dict(costs or {})
        self._lengths: dict[int, LengthPolicy] = {}
        self.rounds = NativeRounds.of(target)

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
        return min(MAX_PASS_ROWS, max(1, sequence.prompt_tokens - 1 - done))

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
            self._lengths[sequence.granted] = length_policy_for(
                sequence, drafter, self._costs.get(sequence.method)
            )
        return ready

    def round(self, sequences: Seq[Sequence]) -> list[RoundOutcome]:
        """Win at least one token for each sequence, all in one pass of the target.

        The caches are left as if the won tokens had been decoded plainly, each sequence by itself. What
        goes wrong with one sequence is its outcome; what goes wrong with a pass is raised.
        """
        moves = self._moves(sequences)
        if len(moves) == 1 and (found := self._at_once(moves[0])) is not None:
            return [self._won(moves[0], found)]
        self._draft(moves)
        return self._greedily(moves) or self._verified(moves)

    def end(self, sequence: Sequence, *, broken: bool = False) -> None:
        """Forget a sequence that holds a slot, and where something broke what is in its cache, too."""
        slot = sequence.granted
        self._lengths.pop(slot, None)
        with ExitStack() as ends:  # each is called, whatever another one raises
            for drafter in self.drafters.values():
                ends.callback(drafter.end, sequence)
            ends.callback(self._prefixes.forget if broken else self._prefixes.end, slot)

    def _at_once(self, move: RoundEntry) -> NativeRoundResult | None:
        """Have a lone greedy request drafted for and verified in one call; None where it takes several."""
        drafter = self._drafter_of(move.sequence)
        if self.rounds is None or not (_greedy(move) and isinstance(drafter, DraftModel) and len(move.shape)):
            return None
        return drafter.verified(move.sequence, move.shape, self.rounds)

    def _greedily(self, moves: Seq[RoundEntry]) -> list[RoundOutcome] | None:
        """Verify chains of greedy requests in one call; None where one of them is something else."""
        if self.rounds is None or not all(_greedy(move) and move.tree.is_chain for move in moves):
            return None
        trees = [move.tree.tokens for move in moves]
        found = self.rounds.verify_all([move.sequence for move in moves], trees)
        if found is None:
            return None
        outcomes: list[RoundOutcome] = []
        for move, own in zip(moves, found, strict=True):
            try:
                outcomes.append(self._won(move, own))
            except Exception as error:  # noqa: BLE001 - the others' rounds go on
                outcomes.append(error)
        return outcomes

    def _won(self, move: RoundEntry, found: NativeRoundResult) -> RoundOutcome:
        """Keep what a call of the library found to be greedy's, or say what is wrong with its numbers."""
        if len(found.guesses) != len(move.tree):
            move.tree = TokenTree.chain(found.guesses)
        bad = logits_error(found.largest, guessed=True)
        if bad is not None:
            return bad
        return RoundResult(
            self._keep(move, AcceptedPath(list(range(found.kept)), found.token)), len(found.largest)
        )

    def _verified(self, moves: Seq[RoundEntry]) -> list[RoundOutcome]:
        """Take what was drafted through the target in one pass, and verify it."""
        logits = self.target.score_all([self._part(move) for move in moves])
        rows: list[Tensor] = []
        misruled: dict[int, Exception] = {}
        for move, own in zip(moves, logits, strict=True):
            try:
                rows.append(_shaped(move, own))
            except Exception as error:  # noqa: BLE001 - the others' rounds go on
                misruled[move.sequence.id] = error
                rows.append(_below_root(move, own))
        laws = all_distributions(rows, [move.sequence.params for move in moves], guessed=True)
        outcomes: list[RoundOutcome] = []
        for move, own, law in zip(moves, logits, laws, strict=True):
            found = misruled.get(move.sequence.id, law)
            try:
                outcomes.append(found if isinstance(found, Exception) else self._settle(move, own, found))
            except Exception as error:  # noqa: BLE001 - the others' rounds go on
                outcomes.append(error)
        return outcomes

    def _part(self, move: RoundEntry) -> SlotInput:
        """Return what of a sequence goes through the target."""
        slot, tokens = move.sequence.granted, move.sequence.tokens
        return SlotInput(slot, tokens[self.target.length(slot) :], move.tree, every=move.scores_prompt)

    def _settle(self, move: RoundEntry, logits: Tensor, law: list[Distribution]) -> RoundResult:
        """Verify a sequence's draft, and keep what is accepted."""
        sequence, tree = move.sequence, move.tree
        if move.scores_prompt:
            self._score_prompt(sequence, logits[:-1])
        verdict = verify(tree, law, sequence.dice)
        won = self._keep(move, verdict)
        if sequence.params.logprobs is None:
            return RoundResult(won, logits.shape[0])
        rows = _below_root(move, logits)[[0, *(node + 1 for node in verdict.path)]]
        return RoundResult(won, logits.shape[0], token_scores(rows, won, sequence.params.logprobs))

    def _keep(self, move: RoundEntry, verdict: AcceptedPath) -> list[int]:
        """Keep what is accepted of a draft, and return the tokens it won."""
        sequence, tree, path = move.sequence, move.tree, verdict.path
        self.target.keep(sequence.granted, len(sequence.tokens) - 1, path)
        sequence.tally.count(tree.depth, len(tree), len(path))
        drafter = self._drafter_of(sequence)
        if drafter is not None:
            drafter.commit(sequence, tree, path)
        if sequence.granted in self._lengths:
            self._lengths[sequence.granted].update(tree, path)
        return [*(tree.tokens[node] for node in path), verdict.token]

    def _read_prompt(self, sequence: Sequence) -> bool:
        """Read one chunk of the prompt without its last token; return whether no more is to be read.

        Of a prompt that is to be scored the last chunk is left to the first round, whose pass then gives
        both its scores and the first new token.
        """
        slot, tokens, top = sequence.granted, sequence.tokens, sequence.params.prompt_logprobs
        whole = sequence.prompt_tokens - 1
        if top is None:
            done = self._prefixes.begin(slot, tokens, whole)
            end = min(done + MAX_PASS_ROWS, whole)
            self.target.prefill(slot, tokens[done:end])
            if not sequence.produced:
                sequence.cached_tokens = self._prefixes.shared(slot)
            return end == whole
        done = self._prefixes.begin_alone(slot, tokens, whole)
        end = min(done + MAX_PASS_ROWS, whole)
        if sequence.limit > 0 and whole < done + MAX_PASS_ROWS:
            return True
        if done < end:
            self._score_prompt(sequence, self.target.read(slot, tokens[done:end]))
        return end == whole

    def _score_prompt(self, sequence: Sequence, logits: Tensor) -> None:
        """Score the prompt's next tokens, ``[N, V]`` being what the model says before each."""
        done = len(sequence.scores) + 1
        tokens = sequence.tokens[done : done + len(logits)]
        sequence.scores += token_scores(logits, tokens, sequence.params.prompt_logprobs or 0)

    def _moves(self, sequences: Seq[Sequence]) -> list[RoundEntry]:
        """Decide how far to draft for each; if all is accepted, no answer is longer than allowed."""
        moves = [RoundEntry(sequence) for sequence in sequences]
        able: list[RoundEntry] = []
        for move in moves:
            sequence = move.sequence
            # What is left of a prompt to be scored goes through without guesses.
            if self.target.length(sequence.granted) < len(sequence.tokens) - 1:
                move.scores_prompt = True
            elif self._drafter_of(sequence) is not None and sequence.remaining > 1:
                able.append(move)
        for move in able:
            move.shape = self._shape(move.sequence, len(able), len(moves) - len(able))
        return moves

    def _draft(self, moves: Seq[RoundEntry]) -> None:
        """Have each method's drafter propose for its sequences, together."""
        for method, drafter in self.drafters.items():
            own = [move for move in moves if move.sequence.method == method and len(move.shape)]
            if own:
                trees = drafter.propose([move.sequence for move in own], [move.shape for move in own])
                for move, tree in zip(own, trees, strict=True):
                    move.tree = tree

    def _shape(self, sequence: Sequence, drafting: int, others: int) -> DraftShape:
        """Return what to draft for a sequence in a round of so many, as far as answer and context go."""
        tokens = len(sequence.tokens)
        shape = self._lengths[sequence.granted].next(RoundLoad(drafting, others, tokens))
        shape = requested_shape(shape, sequence)
        drafter = self.drafters[sequence.method]
        if isinstance(drafter, UnionDrafter) and not isinstance(shape, UnionShape):
            shape = UnionShape(shape, chain(len(shape)), len(drafter.models))
        # A pass has a chunk's rows at most, the root's among them; a union of wide trees would have more.
        return clip_shape(shape, sequence.remaining - 1, min(self.target.context - tokens, MAX_PASS_ROWS - 1))

    def _drafter_of(self, sequence: Sequence) -> Drafter | None:
        """Return what drafts for a sequence; nothing for one that ends with its first token."""
        return self.drafters.get(sequence.method) if sequence.limit > 1 else None


def _greedy(move: RoundEntry) -> bool:
    """Return whether nothing but the largest logits matters to a sequence."""
    params = move.sequence.params
    bare = move.sequence.rules is None and params.logprobs is None and not move.scores_prompt
    return bare and params.temperature == 0.0


def _below_root(move: RoundEntry, logits: Tensor) -> Tensor:
    """Return the logits after the root and after each guess, ``[N + 1, V]``."""
    return logits[-1 - len(move.tree) :] if move.scores_prompt else logits


def _shaped(move: RoundEntry, logits: Tensor) -> Tensor:
    """Return the logits below the root as the request's rules have them."""
    rows, rules = _below_root(move, logits), move.sequence.rules
    return rows if rules is None else rules.shape(rows, move.tree.paths())
