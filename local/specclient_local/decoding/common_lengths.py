"""Draft lengths of the requests that draft on the device, which all draft equally many tokens in a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from specclient_local.drafting.length_policy import AdaptiveLength, CommonLength, RecentAcceptance
from specclient_local.model.cuda_graphs.round_layout import cuts
from specclient_local.request.params import Method, SamplingParams


class CommonLengths:
    """Chooses lengths by method, and keeps the times of rounds that correct them.

    Args:
        methods: those that draft on the device.
        sizes: numbers of slots for which rounds are recorded, ascending.
    """

    def __init__(self, methods: Iterable[Method], sizes: Sequence[int]) -> None:
        self._by_method = {method: CommonLength() for method in methods}
        self._recent = {method: RecentAcceptance() for method in self._by_method}
        self._kept: dict[Method, int] = {}
        self._sizes = sizes

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that draft on the device."""
        return tuple(self._by_method)

    def recent(self, method: Method) -> RecentAcceptance | None:
        """Return the acceptance of a method's latest drafts; None if it does not draft on the device."""
        return self._recent.get(method)

    def next(
        self,
        method: Method,
        policies: Sequence[AdaptiveLength],
        context: int,
        running: int,
        params: Sequence[SamplingParams],
    ) -> int:
        """Return the number of tokens that the requests of a method draft in a round.

        It is the length of :meth:`keep`, once, if there is one.

        Args:
            method: the method.
            policies: of its requests that adapt.
            context: their mean number of tokens.
            running: number of sequences that run, with or without drafts.
            params: of all requests that may draft.
        """
        if method in self._kept:
            return self._kept.pop(method)
        kind = self._kind(params, running)
        return self._by_method[method].next(policies, context, running - len(policies), kind)

    def keep(self, lengths: Mapping[Method, int]) -> None:
        """Keep lengths that were chosen for a round that was not launched, for the next one."""
        self._kept.update(lengths)

    def add(
        self, drafter: Method | None, depth: int, params: Sequence[SamplingParams], seconds: float
    ) -> None:
        """Keep the time of a round; that of a plain one is compared with the drafts of every method.

        Args:
            drafter: the method whose draft drafted in it; None if there was none.
            depth: number of drafted tokens.
            params: of all requests of the round.
            seconds: the time from its plan to its results.
        """
        if drafter is None and depth:
            return  # tokens that other methods drafted before the round
        kind = self._kind(params, len(params))
        for method, common in self._by_method.items():
            if drafter in (None, method):
                common.measured.add(kind, depth, seconds)

    def _kind(self, params: Sequence[SamplingParams], sequences: int) -> tuple[int, bool, bool]:
        """Return what the time of a round depends on besides its draft: slots, sampling, and its cuts."""
        slots = next((size for size in self._sizes if size >= sequences), self._sizes[-1])
        return slots, any(each.temperature > 0.0 for each in params), any(map(cuts, params))
