"""Turn a target's hidden states into chains and trees of guesses by its EAGLE head.

A row of the head's cache is a token beside the target's hidden state one place before it. What stands there
when a draft begins was made of the target's own states alone; the rows of guesses, made of the head's, go as
soon as the tree is grown (arXiv 2401.15077 §3.2). Trees grow by confidence as in EAGLE-2, see ``growth``.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.drafting.draft_model import GrowingDraft
from specclient_local.drafting.drafter import DraftShape, chain
from specclient_local.drafting.head_drafting import draft_batched, fit_shape
from specclient_local.drafting.tree_growth import growth
from specclient_local.model.heads.eagle_runner import EagleRunner
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.model.sampling import all_distributions
from specclient_local.request.params import MAX_DRAFT_LENGTH
from specclient_local.request.sequence import EMPTY_CONSTRAINT_MESSAGE, Sequence
from specclient_local.request.token_tree import TokenTree


@dataclass(slots=True)
class GrowingEagleDraft(GrowingDraft):
    """A sequence's proposal while it grows.

    Attributes:
        given: ``[rows, width]`` states of the rows that are next.
        states: ``[1, width]`` what the head gave after the root, then after each scored node.
    """

    given: Tensor = field(default_factory=lambda: torch.empty(0))
    states: list[Tensor] = field(default_factory=list)

    @property
    def part(self) -> SlotInput:
        """Its rows in the next pass."""
        return SlotInput(self.sequence.cache_slot, self.unseen, self.growth.scored, held=self.held)

    def advance(self, states: Tensor) -> None:
        """Learn the states after the rows of a pass; what has grown since then is next."""
        self.states += [states] if len(states) == 1 else torch.split(states, 1)

    def follow(self) -> None:
        """Give each new guess the state after its parent."""
        if self.going:
            parents = self.growth.scored.parents
            above = [self.states[parents[node] + 1] for node in self.frontier]
            self.given = above[0] if len(above) == 1 else torch.cat(above)


class EagleDrafter:
    """Drafts by an EAGLE head, with the request's own temperature, top-p and top-k.

    Args:
        target: whose hidden states it reads.
        runner: the head.
    """

    depth = MAX_DRAFT_LENGTH

    def __init__(self, target: HiddenStateRunner, runner: EagleRunner) -> None:
        self.runner = runner
        self._target = target
        self._layers = runner.head.shape.tapped(target.config.layers)
        self._vocab = target.config.vocab_size
        self._broken: set[int] = set()

    def begin(self, sequence: Sequence) -> bool:
        """Read a chunk of the prompt where the target has read it, all but the row below the last token.

        Chunks end at the same places always, so what is read does not depend on company.
        """
        slot, whole = sequence.cache_slot, max(0, len(sequence.tokens) - 2)
        done = self.runner.length(slot)
        end = min(done + MAX_PASS_ROWS, whole)
        if done == whole or self._target.length(slot) < end:
            return True
        self._extend(sequence, done, end)
        return end == whole

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Grow trees of these shapes; empty ones where no token has been read yet."""
        return draft_batched(self, sequences, shapes)

    @torch.inference_mode()
    def draw(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Grow trees level by level, each level of all in one pass."""
        if len(sequences) == 1:
            guessed = self._guess(sequences[0], shapes[0])
            if guessed is not None:
                return [guessed]
        drafts = [
            GrowingEagleDraft(s, growth(fit_shape(shape, self.depth, self._room(s))))
            for s, shape in zip(sequences, shapes, strict=True)
        ]
        able = [draft for draft in drafts if len(draft.sequence.tokens) > 1 and draft.growth.going]
        for draft in able:
            draft.unseen, draft.given = self._unread(draft.sequence)
        going = able
        while going:
            logits, states = self.runner.step([d.part for d in going], [d.given for d in going])
            for draft, own in zip(going, states, strict=True):
                draft.advance(own)
            self._grow(going, [self._widened(own) for own in logits])
            going = [draft for draft in going if draft.going]
        for draft in able:  # rows of guesses go, those of tokens stay
            self.runner.truncate(draft.sequence.cache_slot, len(draft.sequence.tokens) - 1)
        return [draft.growth.finish()[0] for draft in drafts]

    def _guess(self, sequence: Sequence, shape: DraftShape) -> TokenTree | None:
        """Return a chain of likeliest tokens found in one call of the head; None where it takes several."""
        shape = fit_shape(shape, self.depth, self._room(sequence))
        steps, greedy = len(shape), sequence.params.temperature == 0.0 and sequence.rules is None
        able = greedy and steps > 0 and len(sequence.tokens) > 1 and self.runner.decoder.can_draft_chain
        if not able or shape != chain(steps):
            return None
        slot = sequence.cache_slot
        found = self.runner.follow(slot, *self._unread(sequence), steps)
        self.runner.truncate(slot, len(sequence.tokens) - 1)  # rows of guesses go, those of tokens stay
        if len(found) < steps:
            self._broken.add(slot)
        return TokenTree.chain(found, found)  # one-hot: each is all that a greedy draft would draw

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Learn nothing: what was accepted is read beside the target's own states, in the next draft."""

    def end(self, sequence: Sequence) -> None:
        """Let go of the slot, and where its numbers were not finite of what stands there."""
        slot = sequence.cache_slot
        if slot in self._broken:
            self._broken.remove(slot)
            self.runner.erase(slot)
        self.runner.truncate(slot, 0)

    def _room(self, sequence: Sequence) -> int:
        return self.runner.context - len(sequence.tokens) + 1

    def _states(self, slot: int, start: int, end: int) -> Tensor:
        return self.runner.head.read(self._target.features(slot, start, end, self._layers))

    @torch.inference_mode()
    def _extend(self, sequence: Sequence, start: int, end: int) -> None:
        """Read tokens, each beside the target's state one place before it."""
        slot = sequence.cache_slot
        self.runner.extend(slot, sequence.tokens[start + 1 : end + 1], self._states(slot, start, end))

    def _unread(self, sequence: Sequence) -> tuple[list[int], Tensor]:
        """Return the tokens that the head has not read yet, a chunk at most, and the states beside them."""
        slot, whole = sequence.cache_slot, len(sequence.tokens) - 1
        self.runner.truncate(slot, whole - 1)
        while whole - (done := self.runner.length(slot)) > MAX_PASS_ROWS:
            self._extend(sequence, done, done + MAX_PASS_ROWS)
        return sequence.tokens[done + 1 :], self._states(slot, done, whole)

    def _grow(self, drafts: Seq[GrowingEagleDraft], rows: Seq[Tensor]) -> None:
        """Add the next level's guesses to each draft."""
        shaped = [
            (draft, own)
            for draft, logits in zip(drafts, rows, strict=True)
            if (own := draft.shaped(logits)) is not None
        ]
        if not shaped:
            return
        laws = all_distributions([own for _, own in shaped], [draft.sequence.params for draft, _ in shaped])
        for (draft, own), law in zip(shaped, laws, strict=True):
            if isinstance(law, EngineError):
                draft.failed = True  # the answer does not need the guesses
                if str(law) != EMPTY_CONSTRAINT_MESSAGE:
                    self._broken.add(draft.sequence.cache_slot)
            else:
                draft.grow(own, law)
                draft.follow()

    def _widened(self, logits: Tensor) -> Tensor:
        """Return logits ``[N, draft_vocab]`` as the target's ``[N, V]``; other tokens have none."""
        ids = self.runner.head.weights.ids
        if ids is None:
            return logits
        wide = logits.new_full((len(logits), self._vocab), -torch.inf)
        return wide.index_copy_(1, ids, logits)
