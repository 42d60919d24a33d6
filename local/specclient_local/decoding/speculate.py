"""Speculative decoding rounds: draft, score by the target, verify and keep, for all sequences at once.

A round runs the target once. Each sequence gains the accepted drafted tokens and one token of the target
itself (Leviathan et al., arXiv 2211.17192, Algorithm 1). Chains of greedy requests are verified by compiled
code where there is any; everything else takes the general path through
:func:`specclient_local.decoding.verify.verify`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from contextlib import ExitStack

from torch import Tensor

from specclient_local.decoding.batch_plan import plan_batch
from specclient_local.decoding.prompt_reader import PromptReader
from specclient_local.decoding.round_entry import (
    RoundEntry,
    RoundOutcome,
    RoundResult,
    is_plain_greedy,
    processed_logits,
    tree_logits,
)
from specclient_local.decoding.verify import AcceptedPath, verify
from specclient_local.drafting.batch_lengths import BatchLengths, TimedRound
from specclient_local.drafting.best_shape import RoundLoad
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import (
    Drafter,
    DraftShape,
    UnionShape,
    chain,
    clip_shape,
    shape_size,
)
from specclient_local.drafting.length_policy import LengthPolicy, RecentAcceptance
from specclient_local.drafting.modelless import MODELLESS_DRAFTERS
from specclient_local.drafting.policy_selection import length_policy_for, requested_shape
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.drafting.union import UnionDrafter
from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.native.greedy_rounds import NativeRoundResult, NativeRounds
from specclient_local.model.page_pool import PagePool
from specclient_local.model.paged_prefix_cache import PagedPrefixCache
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.model.prefix_cache import PrefixSharing
from specclient_local.model.sampling import all_distributions, logits_error
from specclient_local.model.scoring import token_scores
from specclient_local.request.params import Method
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import Distribution, TokenTree
from specclient_local.request.validation import bad_parameter


class Speculator:
    """A target model with its drafters and the policies that set draft lengths.

    Args:
        target: the model whose distribution every answer has.
        drafters: drafters by method; empty for plain decoding. Those that need no model
            (``drafting/modelless.py``) are always added.
        costs: measured costs of draft and verification passes by method. A method without costs follows the
            request's ``draft_length``, or a default that suits most machines.
        sharing: whose keys and values a prompt with a common prefix reuses.
        clock: returns seconds; times rounds of several requests.

    Attributes:
        rounds: compiled greedy rounds, or None if there are none for this target.
    """

    def __init__(
        self,
        target: ModelRunner,
        drafters: Mapping[Method, Drafter] | None = None,
        costs: Mapping[Method, RoundCosts] | None = None,
        *,
        sharing: PrefixSharing = "all",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.target = target
        self._clock = clock
        self._prompts = PromptReader(target, sharing)
        self._prefixes = self._prompts.prefixes
        modelless = {method: create() for method, create in MODELLESS_DRAFTERS.items()}
        self.drafters: dict[Method, Drafter] = {**modelless, **(drafters or {})}
        self._costs = dict(costs or {})
        self._length_policies: dict[int, LengthPolicy] = {}
        self._batch_lengths = {method: BatchLengths() for method in self.drafters}
        self.rounds = NativeRounds.for_target(target)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that a request may name."""
        return ("plain", *self.drafters)

    @property
    def pages(self) -> PagePool | None:
        """The pages of the target's cache, for some of which requests may wait; None if slots have their own
        memory.
        """
        return self._prefixes.pool if isinstance(self._prefixes, PagedPrefixCache) else None

    def place(self, sequence: Sequence, free: Seq[int]) -> int | None:
        """See :meth:`PromptReader.place`."""
        return self._prompts.place(sequence, free)

    def chunk(self, sequence: Sequence) -> int:
        """Return the number of prompt rows that the next :meth:`prefill` of a sequence computes."""
        return self._prompts.chunk(sequence)

    def can_continue(self, sequence: Sequence) -> bool:
        """Return whether the target's cache can hold the sequence's last token, which a round reads."""
        return self._prompts.room(sequence, 0) >= 0

    def prefill(self, sequence: Sequence) -> bool:
        """Run one chunk of the prompt through the target and the draft; return whether rounds can begin.

        A prefix that another slot holds is copied instead of computed. The last prompt token is not
        prefilled: it is the root of the first round, which emits the first new tokens. The drafter prefills
        the prompt only if the request can be drafted for. Chunk boundaries, and therefore the caches, do not
        depend on other requests.
        """
        ready, drafter = self._prompts.read(sequence), self._drafter_of(sequence)
        if drafter is None:
            return ready
        ready = drafter.begin(sequence) and ready
        if ready:
            self._length_policies[sequence.cache_slot] = length_policy_for(
                sequence,
                drafter,
                self._costs.get(sequence.method),
                trees=self._grows_trees(sequence),
                recent=self._recent_acceptance(sequence.method),
            )
        return ready

    def _recent_acceptance(self, method: Method) -> RecentAcceptance | None:  # noqa: ARG002 - for subclasses
        """Return the acceptance of a method's earlier drafts, from which a request's own estimate begins."""
        return None

    def _grows_trees(self, sequence: Sequence) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether a sequence's rounds can verify trees."""
        return not self.target.recurrent

    @property
    def launched(self) -> bool:
        """Whether a round runs whose results no call has returned; only where rounds are launched ahead."""
        return False

    def round_ahead(self, sequences: Seq[Sequence]) -> list[RoundOutcome | None]:
        """Emit tokens as :meth:`round`; None for a sequence that takes part from the next round on only."""
        return [*self.round(sequences)]

    def round(self, sequences: Seq[Sequence]) -> list[RoundOutcome]:
        """Emit at least one token for each sequence, with one pass of the target.

        Afterwards the caches are as if the emitted tokens had been decoded plainly, each sequence alone. An
        error of one sequence is returned as its outcome; an error of the pass is raised.
        """
        begun = self._clock()
        entries = [RoundEntry(sequence) for sequence in sequences]
        timed = self._plan_round(entries)
        outcomes = self._draft_and_verify(entries)
        if timed is not None:
            timed.end(self._clock() - begun)
        return outcomes

    def _draft_and_verify(self, entries: Seq[RoundEntry]) -> list[RoundOutcome]:
        """Draft as planned, and verify."""
        if (outcomes := self._draft_and_verify_natively(entries)) is not None:
            return outcomes
        self._draft(entries)
        return self._verify_natively(entries) or self._verify(entries)

    def end(self, sequence: Sequence, *, broken: bool = False) -> None:
        """Release a sequence's slot; if ``broken``, also erase what its cache holds."""
        slot = sequence.cache_slot
        self._length_policies.pop(slot, None)
        with ExitStack() as ends:  # every callback runs, even if another one raises
            for drafter in self.drafters.values():
                ends.callback(drafter.end, sequence)
            ends.callback(self._prompts.end, slot, broken=broken)

    def _draft_and_verify_natively(self, entries: Seq[RoundEntry]) -> list[RoundOutcome] | None:
        """Draft and verify greedy requests in one compiled call; None if they need several calls."""
        drafters = {entry.sequence.method for entry in entries if len(entry.shape)}
        if self.rounds is None or len(drafters) != 1 or not all(map(is_plain_greedy, entries)):
            return None
        drafter = self.drafters[drafters.pop()]
        if not isinstance(drafter, DraftModel):
            return None
        shapes = [entry.shape for entry in entries]
        results = drafter.draft_and_verify([entry.sequence for entry in entries], shapes, self.rounds)
        return None if results is None else self._native_outcomes(entries, results)

    def _verify_natively(self, entries: Seq[RoundEntry]) -> list[RoundOutcome] | None:
        """Verify chains of greedy requests in one compiled call; None if any entry is something else."""
        if self.rounds is None or not all(
            is_plain_greedy(entry) and entry.tree.is_chain for entry in entries
        ):
            return None
        chains = [entry.tree.tokens for entry in entries]
        results = self.rounds.verify_all([entry.sequence for entry in entries], chains)
        return None if results is None else self._native_outcomes(entries, results)

    def _native_outcomes(
        self, entries: Seq[RoundEntry], results: Seq[NativeRoundResult]
    ) -> list[RoundOutcome]:
        """Keep what compiled rounds accepted of each sequence."""
        outcomes: list[RoundOutcome] = []
        for entry, result in zip(entries, results, strict=True):
            try:
                outcomes.append(self._native_outcome(entry, result))
            except Exception as error:  # noqa: BLE001 - the other sequences' rounds go on
                outcomes.append(error)
        return outcomes

    def _native_outcome(self, entry: RoundEntry, result: NativeRoundResult) -> RoundOutcome:
        """Keep what a compiled call accepted, or return the error if its logits were not finite."""
        if len(result.drafted) != len(entry.tree):
            entry.tree = TokenTree.chain(result.drafted)
        error = logits_error(result.max_logits, guessed=True)
        if error is not None:
            return error
        accepted = AcceptedPath(list(range(result.accepted)), result.token)
        return RoundResult(self._keep(entry, accepted), len(result.max_logits))

    def _verify(self, entries: Seq[RoundEntry]) -> list[RoundOutcome]:
        """Score all drafts by one pass of the target, and verify them by the general path."""
        logits = self.target.score_all([self._slot_input(entry) for entry in entries])
        rows: list[Tensor] = []
        errors: dict[int, Exception] = {}
        for entry, own in zip(entries, logits, strict=True):
            try:
                rows.append(processed_logits(entry, own))
            except Exception as error:  # noqa: BLE001 - the other sequences' rounds go on
                errors[entry.sequence.id] = error
                rows.append(tree_logits(entry, own))
        distributions = all_distributions(rows, [entry.sequence.params for entry in entries], guessed=True)
        outcomes: list[RoundOutcome] = []
        for entry, own, target in zip(entries, logits, distributions, strict=True):
            found = errors.get(entry.sequence.id, target)
            try:
                outcomes.append(found if isinstance(found, Exception) else self._accept(entry, own, found))
            except Exception as error:  # noqa: BLE001 - the other sequences' rounds go on
                outcomes.append(error)
        return outcomes

    def _slot_input(self, entry: RoundEntry) -> SlotInput:
        """Return the sequence's input of the target's pass."""
        slot, tokens = entry.sequence.cache_slot, entry.sequence.tokens
        return SlotInput(slot, tokens[self.target.length(slot) :], entry.tree, every=entry.scores_prompt)

    def _accept(self, entry: RoundEntry, logits: Tensor, target: list[Distribution]) -> RoundResult:
        """Verify a sequence's draft against the target's distributions, and keep what is accepted."""
        sequence, tree = entry.sequence, entry.tree
        if entry.scores_prompt:
            self._prompts.score(sequence, logits[:-1])
        accepted = verify(tree, target, sequence.random, entry.verification)
        tokens = self._keep(entry, accepted)
        if sequence.params.logprobs is None:
            return RoundResult(tokens, logits.shape[0])
        rows = tree_logits(entry, logits)[[0, *(node + 1 for node in accepted.path)]]
        return RoundResult(tokens, logits.shape[0], token_scores(rows, tokens, sequence.params.logprobs))

    def _keep(self, entry: RoundEntry, accepted: AcceptedPath) -> list[int]:
        """Record the accepted path in caches, counts and length policy; return the emitted tokens."""
        sequence, tree, path = entry.sequence, entry.tree, accepted.path
        self.target.keep(sequence.cache_slot, len(sequence.tokens) - 1, path)
        sequence.counts.count(tree.depth, len(tree), len(path))
        drafter = self._drafter_of(sequence)
        if drafter is not None:
            drafter.commit(sequence, tree, path)
        if sequence.cache_slot in self._length_policies:
            self._length_policies[sequence.cache_slot].update(tree, path)
        return [*(tree.tokens[node] for node in path), accepted.token]

    def _plan_round(self, entries: Seq[RoundEntry]) -> TimedRound | None:
        """Choose each sequence's draft shape so that no answer exceeds its limit if all is accepted.

        Returns:
            What the time of the round tells about the lengths that are best; None for nothing.
        """
        drafting: list[RoundEntry] = []
        for entry in entries:
            sequence = entry.sequence
            # The last chunk of a prompt that is to be scored is computed without a draft.
            if self.target.length(sequence.cache_slot) < len(sequence.tokens) - 1:
                entry.scores_prompt = True
            elif self._drafter_of(sequence) is not None and sequence.remaining > 1:
                drafting.append(entry)
        policies = [self._length_policies[entry.sequence.cache_slot] for entry in drafting]
        if len(entries) > 1 and (timed := plan_batch(drafting, policies, self._batch_lengths, len(entries))):
            for entry, length in zip(drafting, timed.lengths, strict=True):
                entry.shape = self._clipped(chain(length), entry.sequence)
            return timed
        for entry in drafting:
            entry.shape = self._shape(entry.sequence, len(drafting), len(entries) - len(drafting))
        return None

    def _draft(self, entries: Seq[RoundEntry]) -> None:
        """Let each method's drafter propose trees for all of its sequences together."""
        for method, drafter in self.drafters.items():
            own = [entry for entry in entries if entry.sequence.method == method and len(entry.shape)]
            if own:
                trees = drafter.propose([entry.sequence for entry in own], [entry.shape for entry in own])
                for entry, tree in zip(own, trees, strict=True):
                    entry.tree = tree

    def _shape(self, sequence: Sequence, drafting: int, others: int) -> DraftShape:
        """Return the draft shape for a sequence, within the limits of answer, context and pass.

        Args:
            sequence: the request.
            drafting: number of sequences that draft in this round.
            others: number of sequences that take part without a draft.
        """
        load = RoundLoad(drafting, others, len(sequence.tokens))
        shape = self._length_policies[sequence.cache_slot].next(load)
        shape = requested_shape(shape, sequence)
        drafter = self.drafters[sequence.method]
        if isinstance(drafter, UnionDrafter) and not isinstance(shape, UnionShape):
            shape = UnionShape(shape, chain(len(shape)), len(drafter.models))
        return self._clipped(shape, sequence)

    def _clipped(self, shape: DraftShape, sequence: Sequence) -> DraftShape:
        """Return the part of a shape that fits a sequence's answer, its context, and a pass.

        A pass has at most ``MAX_PASS_ROWS`` rows, the root's included; a union of wide trees would exceed it.
        """
        rows = min(self.target.context - len(sequence.tokens), MAX_PASS_ROWS - 1)
        shape = clip_shape(shape, sequence.remaining - 1, rows)
        size = shape_size(shape)
        room = max(0, self._prompts.room(sequence, size))
        return shape if room >= size else clip_shape(shape, len(shape), room)

    def _drafter_of(self, sequence: Sequence) -> Drafter | None:
        """Return a sequence's drafter; None if it decodes plainly or ends with its first token.

        Raises:
            BadRequestError: there is no drafter for its method.
        """
        method = sequence.method
        if sequence.limit <= 1 or method == "plain":
            return None
        drafter = self.drafters.get(method)
        if drafter is None:
            raise bad_parameter("method", method, f"one of {', '.join(self.methods)}")
        return drafter
