"""Rounds on the device that are launched before the host reads the results of the rounds before.

While the host handles the tokens of a round (stop conditions, text, streams), the device computes the next
one. Its inputs are made on the device; see :mod:`specclient_local.model.cuda_graphs.continued_round`. Limits
of tokens are kept there, so only requests that end otherwise (end token, stop string, cancellation) have been
in a round for nothing: its results are dropped, and its keys and values lie behind those that are kept.

A round waits for the results of the one before where its shape is not certain without them: a draft of
another length, a request that takes the general path or has a round of its own, a drafter that reads tokens.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from specclient.errors import EngineError
from specclient_local.decoding.device_round_entry import DeviceRoundEntry
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.decoding.round_entry import RoundOutcome
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.drafting.length_policy import AdaptiveLength, FixedLength
from specclient_local.model.cuda_graphs.device_rounds import LaunchedRound
from specclient_local.model.cuda_graphs.round_layout import DeviceRoundRequest, DeviceRoundResult
from specclient_local.request.params import Method
from specclient_local.request.sequence import Sequence


@dataclass(slots=True)
class RoundInFlight:
    """A round that runs while the host does something else.

    Attributes:
        entries: its requests that have not ended.
        drafter: the method that drafts in it; None if there is none.
        depth: number of tokens that the longest draft may have.
        launched: the round on the device.
        begun: when its time began, and the number of recordings then.
        continues: whether it was launched before the results of the round before were known. The depths of
            its entries are then the largest that are possible.
    """

    entries: list[DeviceRoundEntry]
    drafter: Method | None
    depth: int
    launched: LaunchedRound
    begun: tuple[float, int]
    continues: bool = False


class LaunchAheadSpeculator(DeviceSpeculator):
    """A :class:`DeviceSpeculator` that launches rounds ahead in :meth:`round_ahead`.

    Draft lengths that adapt follow the results of a round one round later. Answers are those of
    :meth:`round`: greedy ones, and those of a seed where it promises them.
    """

    continued = True

    _flight: RoundInFlight | None = None

    @property
    def launched(self) -> bool:
        """Whether a round runs whose results no call has returned."""
        return self._flight is not None

    def round(self, sequences: Seq[Sequence]) -> list[RoundOutcome]:
        """Emit at least one token for each sequence. A round that was launched ahead is repeated."""
        self._flight = None
        return super().round(sequences)

    def round_ahead(self, sequences: Seq[Sequence]) -> list[RoundOutcome | None]:
        """Return the results of the round that runs, and launch the next one before they are read.

        Args:
            sequences: all that are ready. All tokens of the last outcomes have been appended to them, or
                they have been ended.

        Returns:
            For each sequence, its outcome. None if it was not in the round that ran; it is in the next one.
        """
        flight, self._flight = self._flight, None
        known = {sequence.id for sequence in sequences}
        if flight is None or known.isdisjoint(entry.sequence.id for entry in flight.entries):
            begun = self._begin()
            groups, others = self._divided(sequences)
            if others or len(groups) != 1:
                return [*self._run_all(sequences, groups, others, begun)]
            flight = self._launch(groups[0], begun)
        following = self._launch_next(flight, sequences)
        outcomes = self._collect(flight)
        if following is not None:
            following.begun = self._begin()
            self._flight = following
        return [outcomes.get(sequence.id) for sequence in sequences]

    def end(self, sequence: Sequence, *, broken: bool = False) -> None:
        """Release a sequence's slot; its results in the round that runs are dropped."""
        if self._flight is not None:
            self._flight.entries = [each for each in self._flight.entries if each.sequence is not sequence]
            if not self._flight.entries:
                self._flight = None
        super().end(sequence, broken=broken)

    def _launch(self, group: list[DeviceRoundEntry], begun: tuple[float, int]) -> RoundInFlight:
        """Launch a planned round."""
        depth, drafter = max(entry.depth for entry in group), self._drafting(group)
        requests = [self._request(entry, drafter, depth) for entry in group]
        return RoundInFlight(group, drafter, depth, self.device_rounds.launch(requests, drafter), begun)

    def _request(self, entry: DeviceRoundEntry, drafter: Method | None, depth: int) -> DeviceRoundRequest:
        """Return a request of a round that begins with known tokens."""
        return replace(entry.request(depth, self._tail(drafter, depth)), left=self._left(entry.sequence))

    def _left(self, sequence: Sequence) -> int:
        """Return the number of tokens that may still follow."""
        return min(sequence.remaining, self.target.context - len(sequence.tokens) + 1)

    def _launch_next(self, flight: RoundInFlight, sequences: Seq[Sequence]) -> RoundInFlight | None:
        """Launch the round after one whose results are not known; None if it must wait for them."""
        running = [replace(entry) for entry in flight.entries]
        known = {entry.sequence.id for entry in running}
        joining = [
            DeviceRoundEntry(sequence, self._drafter_of(sequence))
            for sequence in sequences
            if sequence.id not in known
        ]
        entries = [*running, *joining]
        if not (
            any(self._left(entry.sequence) > 1 for entry in entries)
            and all(self._can_continue(entry) for entry in running)
            and all(self._can_join(entry) for entry in joining)
            and self._share_rounds(entries)
            and self._lengths_stay(running, joining)
        ):
            return None
        drafters = {e.sequence.method for e in entries if e.depth and e.sequence.method in self._drafts}
        if drafters != ({flight.drafter} - {None}) or max(e.depth for e in entries) != flight.depth:
            return None
        requests = [self._continuing(entry, flight) for entry in running]
        requests += [self._request(entry, flight.drafter, flight.depth) for entry in joining]
        launched = self.device_rounds.proceed(flight.launched, requests, flight.drafter)
        if launched is None:
            return None
        return RoundInFlight(entries, flight.drafter, flight.depth, launched, flight.begun, continues=True)

    def _continuing(self, entry: DeviceRoundEntry, flight: RoundInFlight) -> DeviceRoundRequest:
        """Return a request of a round that begins with tokens that only the device knows."""
        request, most = self._request(entry, flight.drafter, flight.depth), entry.depth + 1
        sampled = request.params.temperature > 0.0
        numbers = entry.sequence.random.peek(2 * (2 * flight.depth + 1)) if sampled else ()
        return replace(request, start=request.start + most, uniform=numbers, continues=True)

    def _can_continue(self, entry: DeviceRoundEntry) -> bool:
        """Return whether a request's next round is certain, but for its tokens."""
        sequence, depth = entry.sequence, entry.depth
        if entry.drafter is not None:
            policy = self._length_policies[sequence.cache_slot]
            if sequence.method not in self._drafts or not isinstance(policy, FixedLength | AdaptiveLength):
                return False
            if depth and self._draft_room(entry) < 2 * depth + 1:
                return False
        # The last bits of such an answer depend on the shape of its rounds, which ends with shorter drafts.
        alone = self._exact and sequence.reproducible
        return not alone or self._left(sequence) >= 2 * depth + 2

    def _draft_room(self, entry: DeviceRoundEntry) -> int:
        """Return the number of tokens that the draft's context has room for."""
        if isinstance(entry.drafter, DraftModel | EagleDrafter):
            return entry.drafter.runner.context - len(entry.sequence.tokens) + 1
        return self.target.context

    def _can_join(self, entry: DeviceRoundEntry) -> bool:
        """Return whether a request that is in no round yet can join one that is launched ahead."""
        sequence, drafter = entry.sequence, entry.drafter
        if not self._runs_on_device(sequence, drafter):
            return False
        if drafter is None or sequence.remaining <= 1:
            return True
        policy = self._length_policies[sequence.cache_slot]
        if sequence.method not in self._drafts or not isinstance(policy, FixedLength | AdaptiveLength):
            return False
        if isinstance(policy, FixedLength):
            entry.depth = self._draft_depth(sequence, self._shape(sequence, 1, 0))
        return True

    def _share_rounds(self, entries: Seq[DeviceRoundEntry]) -> bool:
        """Return whether requests may be in one round."""
        alone = self._exact and any(entry.sequence.reproducible for entry in entries)
        return not alone or len(entries) == 1

    def _lengths_stay(self, running: list[DeviceRoundEntry], joining: list[DeviceRoundEntry]) -> bool:
        """Return whether requests that adapt draft as many tokens again; set the depths of those that join.

        Lengths that do not stay are kept for the next round, which waits.
        """
        able, new = (
            [entry for entry in entries if entry.drafter is not None and entry.sequence.remaining > 1]
            for entries in (running, joining)
        )
        together, count = [*able, *new], len(running) + len(joining)
        chosen = {
            method: self._common_length(method, own, together, count)
            for method in self._lengths.methods
            if (own := self._adapting(together, method))
        }
        for method, length in chosen.items():
            if any(entry.wanted != length for entry, _ in self._adapting(able, method)):
                self._lengths.keep(chosen)
                return False
        for method, length in chosen.items():
            for entry, _ in self._adapting(new, method):
                self._set_depth(entry, length)
        return True

    def _collect(self, flight: RoundInFlight) -> dict[int, RoundOutcome]:
        """Read the results of a round, and keep them."""
        results = flight.launched.read()
        outcomes: dict[int, RoundOutcome] = {}
        for entry in flight.entries:
            sequence = entry.sequence
            if flight.continues:
                entry.depth = min(entry.depth, max(0, self._left(sequence) - 1))
            try:
                result = results[sequence.cache_slot]
                _check_start(sequence, result)
                outcomes[sequence.id] = self._keep_result(entry, result, flight.depth)
            except Exception as error:  # noqa: BLE001 - the others' rounds go on
                outcomes[sequence.id] = error
        self._add_time(flight.entries, flight.begun)
        return outcomes


def _check_start(sequence: Sequence, result: DeviceRoundResult) -> None:
    """Check that a round began where a request ends.

    Raises:
        EngineError: tokens of the round before were not appended.
    """
    if result.finite and result.start != len(sequence.tokens) - 1:
        raise EngineError(
            f"request {sequence.id} has {len(sequence.tokens)} tokens, but its round began at position "
            f"{result.start}; append all tokens of an outcome before the next round."
        )
