"""Answer lengths: predicted from finished answers, by task, prompt length and session."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import cache

from specclient.routing.learn.quantile_sketch import QuantileSketch, quantiles
from specclient.routing.learn.route_estimate import AnswerLength
from specclient.types.criterion import PromptTask

__all__ = ["ASSUMED", "AnswerLengths", "cap_length", "measured_length"]

#: The length of an answer without any evidence.
ASSUMED = AnswerLength(low=32, median=256, high=1024)

#: Calls and seconds after which an answer weighs half; the number of calls with which a group weighs as much
#: as all wider groups together.
_CALLS, _SECONDS, _LEAN = 200.0, 7 * 86400.0, 4.0
_SESSION_CALLS = 4.0
_SESSIONS = 1024
#: A prediction is computed again when the answers behind it have grown by one in so many.
_FRESH = 32
_KEPT = 512

_LengthGroup = tuple[PromptTask | None, int | None]


class AnswerLengths:
    """Predicts the tokens of answers, from the narrowest group of similar calls to all of them."""

    def __init__(self) -> None:
        self._groups: dict[_LengthGroup, QuantileSketch] = {}
        self._sessions: OrderedDict[str, QuantileSketch] = OrderedDict()
        self._seen = 0
        self._known: dict[tuple[_LengthGroup, str | None], tuple[int, AnswerLength]] = {}

    def add(
        self, task: PromptTask | None, prompt_tokens: int | None, tokens: int, session: str | None, at: float
    ) -> None:
        """Note a finished answer of at least 1 token."""
        bucket = _bucket(prompt_tokens)
        for key in dict.fromkeys(((None, None), (task, None), (None, bucket), (task, bucket))):
            self._group(key).add(tokens, at)
        if session is not None:
            own = self._sessions.pop(session, None) or QuantileSketch(calls=_SESSION_CALLS)
            own.add(tokens, at)
            self._sessions[session] = own
            if len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)
        self._seen += 1

    def _group(self, key: _LengthGroup) -> QuantileSketch:
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = QuantileSketch(calls=_CALLS, seconds=_SECONDS)
        return found

    def expected(
        self, task: PromptTask | None, prompt_tokens: int | None, session: str | None = None
    ) -> AnswerLength:
        """Return the expected length of an answer."""
        if not self._seen:
            return ASSUMED
        if session not in self._sessions:
            session = None
        key = ((task, _bucket(prompt_tokens)), session)
        known = self._known.get(key)
        if known is not None and (self._seen - known[0]) * _FRESH <= known[0]:
            return known[1]
        length = self._mixed(*key)
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[key] = self._seen, length
        return length

    def _mixed(self, key: _LengthGroup, session: str | None) -> AnswerLength:
        task, bucket = key
        mixture: list[tuple[QuantileSketch, float]] = []
        left = 1.0
        groups = [
            self._groups.get(each)
            for each in dict.fromkeys((key, (task, None), (None, bucket), (None, None)))
        ]
        for group in ([self._sessions[session]] if session is not None else []) + groups:
            if group is None:
                continue
            calls = group.weight()
            share = left * calls / (calls + _LEAN)
            mixture.append((group, share))
            left -= share
        low, median, high = quantiles([*mixture, (_assumed(), left)], (0.1, 0.5, 0.9))
        return AnswerLength(low=_tokens(low), median=_tokens(median), high=_tokens(high), measured=True)


@cache
def _assumed() -> QuantileSketch:
    assumed = QuantileSketch()
    for tokens in (ASSUMED.low, 64, 128, ASSUMED.median, ASSUMED.median, 512, 768, ASSUMED.high):
        assumed.add(tokens)
    return assumed


def measured_length(tokens: QuantileSketch) -> AnswerLength | None:
    """Return the length of finished answers by their tokens, None without any."""
    if not tokens.weight():
        return None
    low, median, high = (round(each) for each in quantiles(((tokens, 1.0),), (0.1, 0.5, 0.9)))
    return AnswerLength(low, median, high, measured=True)


def cap_length(length: AnswerLength, most: int | None) -> AnswerLength:
    """Return a length with no value above ``most``."""
    if most is None or length.high <= most:
        return length
    most = max(most, 0)
    return replace(
        length, low=min(length.low, most), median=min(length.median, most), high=min(length.high, most)
    )


def _tokens(value: float) -> int:
    return max(round(value), 1)


def _bucket(prompt_tokens: int | None) -> int | None:
    """Return the group of prompts within a factor of 4 in length; below 64 tokens, all are one group."""
    return None if prompt_tokens is None else max(prompt_tokens, 63).bit_length() // 2
