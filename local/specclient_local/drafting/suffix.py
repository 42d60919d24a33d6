"""Suffix decoding: drafts what most often followed the last tokens, in this request and in earlier answers.

Oliaro et al., SuffixDecoding (arXiv 2411.04975): for agents and pipelines whose requests repeat each other.
The last tokens are matched with the request's own text (in a chat, the session's earlier turns) and with the
latest answers to the same owner, such as an API key: the number of accepted tokens is reported, so a request
that forces its answer would learn what others' answers contain. A draft ends where its tokens are no longer
frequent after the match, or no longer pay off by the acceptance of matches of that length.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from specclient_local.drafting.drafter import (
    Drafter,
    DrafterChosenChain,
    DraftShape,
    is_chain_shape,
    shape_size,
)
from specclient_local.drafting.ngram import MatchAcceptance
from specclient_local.drafting.suffix_automaton import LONGEST_MATCH, AnswerRuns, SuffixAutomaton
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

STORED_TOKENS = 2**18
"""Maximum number of tokens of earlier answers that an engine keeps; about 17 MB."""

_LEAST_SHARE = 0.3
"""A chain ends where the share of the match's occurrences that its tokens followed falls below this."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A match and the automaton in which it is.

    Attributes:
        runs: the automaton.
        state: the matched run's state in it.
        length: number of matched tokens.
    """

    runs: SuffixAutomaton
    state: int
    length: int

    def likely(self, depth: int) -> list[tuple[int, float]]:
        """Return the chain of most frequent followers: tokens, and the share that followed so far."""
        chain: list[tuple[int, float]] = []
        state, share = self.state, 1.0
        while len(chain) < depth and (found := self.runs.followers(state)):
            own, token, state = found[0]
            share *= own
            if share < _LEAST_SHARE:
                break
            chain.append((token, share))
        return chain


@dataclass(slots=True)
class SuffixState:
    """A sequence's own text, and the acceptance of its matches.

    Attributes:
        own: runs of the prompt and the answer.
        read: number of tokens in ``own``.
        matched: length of the last draft's match.
    """

    own: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    acceptance: MatchAcceptance = field(default_factory=MatchAcceptance)
    read: int = 0
    matched: int = 0

    def extend(self, tokens: list[int], end: int) -> None:
        """Read the tokens up to ``end``."""
        for token in tokens[self.read : end]:
            self.own.append(token)
        self.read = max(self.read, min(end, len(tokens)))


class SuffixDrafter(Drafter):
    """Drafts the most frequent continuation. Tokens are picked, not drawn, so q is one-hot.

    A seeded, sampled request reads its own text only: its answer must not depend on earlier requests, and
    drafts decide which random number is used for which token.

    Args:
        stored: maximum number of tokens of earlier answers, of all owners together.

    Attributes:
        answers: the earlier answers by owner; the owner of the latest one comes last.
    """

    length = "own"
    device_rounds = True

    def __init__(self, stored: int = STORED_TOKENS) -> None:
        self._stored = stored
        self.answers: OrderedDict[str, AnswerRuns] = OrderedDict()
        self._states: dict[int, SuffixState] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Read a chunk of the prompt."""
        state = self._states.setdefault(sequence.cache_slot, SuffixState())
        state.extend(sequence.tokens, state.read + MAX_PASS_ROWS)
        return state.read == len(sequence.tokens)

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Propose what most often followed the longest match."""
        return [self._tree(s, shape) for s, shape in zip(sequences, shapes, strict=True)]

    def _tree(self, sequence: Sequence, shape: DraftShape) -> TokenTree:
        state = self._states[sequence.cache_slot]
        state.extend(sequence.tokens, len(sequence.tokens))
        runs = [state.own]
        answers = None if sequence.reproducible else self.answers.get(sequence.owner)
        if answers is not None:
            runs += [answers.newer, answers.older]
        context = sequence.tokens[-LONGEST_MATCH:]
        found = [(each, each.match(context)) for each in runs]
        places = [_Place(each, match.state, match.length) for each, match in found if match.length]
        if not places or not len(shape):
            return TokenTree()
        if not is_chain_shape(shape):
            best = max(places, key=lambda place: place.length)
            state.matched = best.length
            return _grown(best, len(shape), shape_size(shape))
        chains = [(sum(share for _, share in place.likely(len(shape))), place) for place in places]
        _, best = max(chains, key=lambda scored: (scored[0] > 0, scored[1].length, scored[0]))
        state.matched = best.length
        depth = len(shape)
        if isinstance(shape, DrafterChosenChain):
            depth = state.acceptance.copied_length(best.length, shape)
        return TokenTree.chain([token for token, _ in best.likely(depth)])

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Record how many tokens after the match were accepted."""
        if len(tree):
            self._states[sequence.cache_slot].acceptance.learn(
                self._states[sequence.cache_slot].matched, max(tree.depths()), len(path)
            )

    def end(self, sequence: Sequence) -> None:
        """Forget the sequence, and keep its answer for later ones."""
        if self._states.pop(sequence.cache_slot, None) is not None and (answer := sequence.new_tokens):
            self.keep(sequence.owner, answer)

    def keep(self, owner: str, answer: Seq[int]) -> None:
        """Keep an answer; if there are too many, forget those of the owner whose last one is the oldest."""
        runs = self.answers.pop(owner, None) or AnswerRuns(self._stored)
        runs.add(answer)
        self.answers[owner] = runs
        while len(self.answers) > 1 and sum(each.size for each in self.answers.values()) > self._stored:
            self.answers.popitem(last=False)


def _grown(place: _Place, depth: int, nodes: int) -> TokenTree:
    """Return the tree of the most frequent paths after a match.

    Args:
        place: the match.
        depth: maximum number of levels.
        nodes: maximum number of nodes.
    """
    tree, order = TokenTree(), itertools.count()
    levels: list[int] = []
    waiting: list[tuple[float, int, int, int, int]] = []  # share, order, parent, token, state

    def offer(share: float, parent: int, state: int) -> None:
        for own, token, to in place.runs.followers(state):
            heapq.heappush(waiting, (-share * own, next(order), parent, token, to))

    offer(1.0, -1, place.state)
    while waiting and len(tree) < nodes:
        negative, _, parent, token, state = heapq.heappop(waiting)
        node = len(tree)
        tree.add(parent, token)
        levels.append(1 if parent < 0 else levels[parent] + 1)
        if levels[node] < depth:
            offer(-negative, node, state)
    return tree
