"""Drafts by an EAGLE head: chains and trees from the target's hidden states.

A row of the head's cache combines a token with the target's hidden state one position before it. When a draft
begins, the cache holds only rows made of the target's own states. The rows of drafted tokens are made of the
head's states, and are removed once the tree is grown (EAGLE, arXiv 2401.15077 §3.2). Trees grow by confidence
as in EAGLE-2; see ``tree_growth``.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.drafting.draft_model import GrowingDraft
from specclient_local.drafting.drafter import Drafter, DraftShape, chain
from specclient_local.drafting.head_drafting import draft_batched, fit_shape
from specclient_local.drafting.token_pairs import TokenPairs
from specclient_local.drafting.tree_growth import tree_growth_for
from specclient_local.model.heads.eagle_runner import EagleRunner
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.model.prefix_cache import PrefixCache, PrefixSharing
from specclient_local.model.sampling import all_distributions
from specclient_local.request.params import MAX_DRAFT_LENGTH
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree
from specclient_local.request.validation import EmptyConstraintError


@dataclass(slots=True)
class GrowingEagleDraft(GrowingDraft):
    """A sequence's draft while it grows.

    Attributes:
        given: ``[rows, width]`` states for the rows that are computed next.
        states: ``[1, width]`` each: the head's states after the root, then after each scored node.
    """

    given: Tensor = field(default_factory=lambda: torch.empty(0))
    states: list[Tensor] = field(default_factory=list)

    @property
    def slot_input(self) -> SlotInput:
        """Its input of the next pass."""
        return SlotInput(self.sequence.cache_slot, self.unseen, self.growth.scored, held=self.held)

    def add_states(self, states: Tensor) -> None:
        """Append the states ``[rows, width]`` after the rows of a pass."""
        self.states += [states] if len(states) == 1 else torch.split(states, 1)

    def set_parent_states(self) -> None:
        """Set the states for the new nodes: each reads the state after its parent."""
        if self.going:
            parents = self.growth.scored.parents
            above = [self.states[parents[node] + 1] for node in self.frontier]
            self.given = above[0] if len(above) == 1 else torch.cat(above)


class EagleDrafter(Drafter):
    """Drafts by an EAGLE head, with the request's temperature, top-p and top-k.

    Args:
        target: the model whose hidden states the head reads.
        runner: the head.
        sharing: whose rows a prompt with a common prefix reuses in the head's cache.
    """

    adaptive_trees = True

    depth = MAX_DRAFT_LENGTH

    def __init__(
        self, target: HiddenStateRunner, runner: EagleRunner, *, sharing: PrefixSharing = "all"
    ) -> None:
        self.runner = runner
        self._prefixes = PrefixCache(runner, sharing)
        self._read = [TokenPairs([]) for _ in range(runner.slots)]
        self._target = target
        self._layers = runner.head.shape.tapped(target.config.layers)
        self._vocab = target.config.vocab_size
        self._broken: set[int] = set()

    def begin(self, sequence: Sequence) -> bool:
        """Prefill a chunk of the prompt, without the row of the last token, once the target has prefilled it.

        Rows that another slot holds are copied instead of computed. Chunks always end at the same positions,
        so the head's cache does not depend on the batch.
        """
        slot, whole = sequence.cache_slot, max(0, len(sequence.tokens) - 2)
        if self._read[slot].tokens is not sequence.tokens:
            self._read[slot] = TokenPairs(sequence.tokens)
        done = self._prefixes.begin(slot, self._read[slot], whole, sequence.adapter, sequence.owner)
        end = min(done + MAX_PASS_ROWS, whole)
        if done == whole or self._target.length(slot) < end:
            return True
        self._extend(sequence, done, end)
        return end == whole

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Draft trees of these shapes; empty ones if the target's cache is still empty."""
        return draft_batched(self, sequences, shapes)

    @torch.inference_mode()
    def draw(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Grow trees level by level, each level of all sequences in one pass."""
        if len(sequences) == 1:
            tree = self._draft_natively(sequences[0], shapes[0])
            if tree is not None:
                return [tree]
        drafts = [
            GrowingEagleDraft(s, tree_growth_for(fit_shape(shape, self.depth, self._room(s))))
            for s, shape in zip(sequences, shapes, strict=True)
        ]
        able = [draft for draft in drafts if len(draft.sequence.tokens) > 1 and draft.growth.going]
        for draft in able:
            draft.unseen, draft.given = self._unread(draft.sequence)
        going = able
        while going:
            logits, states = self.runner.step([d.slot_input for d in going], [d.given for d in going])
            for draft, own in zip(going, states, strict=True):
                draft.add_states(own)
            self._grow(going, [self._widened(own) for own in logits])
            going = [draft for draft in going if draft.going]
        for draft in able:  # remove the rows of drafted tokens
            self.runner.truncate(draft.sequence.cache_slot, len(draft.sequence.tokens) - 1)
        return [draft.growth.finish()[0] for draft in drafts]

    def _draft_natively(self, sequence: Sequence, shape: DraftShape) -> TokenTree | None:
        """Return a chain of the most likely tokens, drafted in one compiled call; None if it needs several
        calls.
        """
        shape = fit_shape(shape, self.depth, self._room(sequence))
        steps, greedy = len(shape), sequence.params.temperature == 0.0 and sequence.logits_processor is None
        able = greedy and steps > 0 and len(sequence.tokens) > 1 and self.runner.decoder.can_draft_chain
        if not able or shape != chain(steps):
            return None
        slot = sequence.cache_slot
        found = self.runner.follow(slot, *self._unread(sequence), steps)
        self.runner.truncate(slot, len(sequence.tokens) - 1)  # remove the rows of drafted tokens
        if len(found) < steps:
            self._broken.add(slot)
        return TokenTree.chain(found, found)  # one-hot: a greedy draft draws its argmax

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Do nothing: the next draft reads the accepted tokens with the target's own states."""

    def end(self, sequence: Sequence) -> None:
        """Release the slot. Its rows may serve other prompts, unless numbers in them were not finite."""
        slot = sequence.cache_slot
        if slot in self._broken:
            self._broken.remove(slot)
            self._prefixes.forget(slot)
        self._prefixes.end(slot)

    def without_sharing(self) -> EagleDrafter:
        """Return a drafter by the same head that shares no rows, for timing, whose rows are of no text."""
        return type(self)(self._target, self.runner, sharing="none")

    def catch_up(self, sequence: Sequence, depth: int) -> int:
        """Prepare for a draft on the device, which reads the last ``depth + 1`` tokens itself.

        Returns:
            The number of tokens that can be drafted, at most ``depth``.
        """
        depth = max(0, min(depth, self._room(sequence)))
        slot, whole = sequence.cache_slot, len(sequence.tokens) - 1
        self.runner.truncate(slot, whole)
        while depth and (done := self.runner.length(slot)) < whole - depth - 1:
            self._extend(sequence, done, min(done + MAX_PASS_ROWS, whole - depth - 1))
        return depth

    def read_on_device(self, sequence: Sequence, *, finite: bool) -> None:
        """Record that a draft on the device has read all tokens before the round's.

        Args:
            sequence: the request, whose tokens do not include those of the round yet.
            finite: whether all logits of the draft were finite.
        """
        slot = sequence.cache_slot
        self.runner.assume_length(slot, len(sequence.tokens) - 1)
        if not finite:
            self._broken.add(slot)

    def _room(self, sequence: Sequence) -> int:
        return self.runner.context - len(sequence.tokens) + 1

    def _states(self, slot: int, start: int, end: int) -> Tensor:
        return self.runner.head.read(self._target.features(slot, start, end, self._layers))

    @torch.inference_mode()
    def _extend(self, sequence: Sequence, start: int, end: int) -> None:
        """Append the rows of positions ``start`` to ``end`` to the head's cache: each is a token with the
        target's state one position before it.
        """
        slot = sequence.cache_slot
        self.runner.extend(slot, sequence.tokens[start + 1 : end + 1], self._states(slot, start, end))

    def _unread(self, sequence: Sequence, further: int = 0) -> tuple[list[int], Tensor]:
        """Return the tokens that the head has not read, and the states before them.

        Args:
            sequence: the request.
            further: rows that share the pass with them.
        """
        slot, whole = sequence.cache_slot, len(sequence.tokens) - 1
        self.runner.truncate(slot, whole - 1)
        while whole - (done := self.runner.length(slot)) > MAX_PASS_ROWS - further:
            self._extend(sequence, done, min(done + MAX_PASS_ROWS, whole - 1))  # the draft begins at the last
        return sequence.tokens[done + 1 :], self._states(slot, done, whole)

    def _grow(self, drafts: Seq[GrowingEagleDraft], rows: Seq[Tensor]) -> None:
        """Add the next level's nodes to each draft."""
        shaped = [
            (draft, own)
            for draft, logits in zip(drafts, rows, strict=True)
            if (own := draft.shaped(logits)) is not None
        ]
        if not shaped:
            return
        distributions = all_distributions(
            [own for _, own in shaped], [draft.sequence.params for draft, _ in shaped]
        )
        for (draft, own), distribution in zip(shaped, distributions, strict=True):
            if isinstance(distribution, EngineError):
                draft.stopped = True  # the answer does not need the draft
                if not isinstance(distribution, EmptyConstraintError):
                    self._broken.add(draft.sequence.cache_slot)
            else:
                draft.grow(own, distribution)
                draft.set_parent_states()

    def _widened(self, logits: Tensor) -> Tensor:
        """Return logits ``[N, draft_vocab]`` as ``[N, V]`` of the target; tokens the head lacks get -inf."""
        ids = self.runner.head.weights.ids
        if ids is None:
            return logits
        wide = logits.new_full((len(logits), self._vocab), -torch.inf)
        return wide.index_copy_(1, ids, logits)
