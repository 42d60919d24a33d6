"""Chooses the draft length of the next round, or gives up drafting, from measured times and acceptance."""

from __future__ import annotations

from dataclasses import dataclass, field

from specclient.types.usage import Speculation

#: The longest draft, in tokens.
MAX_DRAFT_LENGTH = 16
#: Tokens that the target decodes alone at first, to measure its own speed.
CALIBRATION_TOKENS = 8
#: Rounds before the length is adapted or drafting is given up.
_MIN_ROUNDS = 3
#: Draft length of these first rounds.
_FIRST_LENGTH = 4
#: The weight that earlier rounds keep with each new round.
_DECAY = 0.9
#: The prior: a number of draft tokens, and the share of them that counts as accepted.
_PRIOR = (2.0, 0.7)


def expected_tokens(acceptance: float, draft_length: int) -> float:
    """Return the mean tokens gained by a round, the target's own token included.

    (1 - a^(K+1)) / (1 - a) for an acceptance probability a of each token and a draft length K
    (Leviathan et al., arXiv 2211.17192, eq. 1).
    """
    if acceptance >= 1:
        return draft_length + 1.0
    return float((1 - acceptance ** (draft_length + 1)) / (1 - acceptance))


def tokens_per_second(acceptance: float, draft_length: int, *, draft_s: float, verify_s: float) -> float:
    """Return the expected tokens per second of a round.

    Args:
        acceptance: probability that a draft token is accepted, 0 to 1.
        draft_length: tokens per draft.
        draft_s: seconds per drafted token.
        verify_s: seconds of one verification: round trip, prefill, one new token.
    """
    return expected_tokens(acceptance, draft_length) / max(draft_length * draft_s + verify_s, 1e-9)


def best_draft_length(
    acceptance: float, *, draft_s: float, verify_s: float, longest: int = MAX_DRAFT_LENGTH
) -> int:
    """Return the draft length, 1 to ``longest``, with the most expected tokens per second; the shortest of
    equals."""
    return max(
        range(1, max(longest, 1) + 1),
        key=lambda k: (tokens_per_second(acceptance, k, draft_s=draft_s, verify_s=verify_s), -k),
    )


def target_alone_is_faster(remaining: int, rate: float, *, token_s: float, verify_s: float) -> bool:
    """Return whether the target alone finishes sooner than with verified drafts.

    Args:
        remaining: tokens still to be generated.
        rate: tokens per second with verified drafts.
        token_s: seconds per token of the target alone, after a first token in ``verify_s``.
        verify_s: seconds of one verification.
    """
    return remaining / max(rate, 1e-9) > verify_s + (remaining - 1) * token_s


@dataclass(slots=True)
class DraftLengthController:
    """Adapts the draft length to the rounds so far.

    Attributes:
        fixed: the caller's draft length; it is then not adapted, and drafting is never given up.
        calibration: tokens and seconds of the target's first tokens, decoded alone; None before that.
        rounds: verifications with a draft.
    """

    fixed: int | None = None
    calibration: tuple[int, float] | None = None
    rounds: int = 0
    _judged: float = 0.0  # draft tokens that the target accepted or rejected, decayed
    _accepted: float = 0.0
    _draft: tuple[float, float] = field(default=(0.0, 0.0))  # seconds, tokens
    _verify: tuple[float, float] = field(default=(0.0, 0.0))  # seconds, verifications

    def note(self, drafted: int, accepted: int, *, draft_s: float, verify_s: float) -> None:
        """Add one round: its tokens, and the seconds of the draft's and the target's requests."""
        self.rounds += 1
        judged = min(accepted + 1, drafted)  # tokens after the first rejected one are not judged
        self._judged = self._judged * _DECAY + judged
        self._accepted = self._accepted * _DECAY + accepted
        self._draft = (self._draft[0] * _DECAY + draft_s, self._draft[1] * _DECAY + drafted)
        self._verify = (self._verify[0] * _DECAY + verify_s, self._verify[1] * _DECAY + 1)

    @property
    def acceptance(self) -> float:
        """The probability that a draft token is accepted if those before it are, smoothed by the prior."""
        weight, share = _PRIOR
        return (self._accepted + weight * share) / (self._judged + weight)

    @property
    def draft_s(self) -> float:
        """Seconds per drafted token."""
        return self._draft[0] / self._draft[1] if self._draft[1] else 0.0

    @property
    def verify_s(self) -> float:
        """Seconds per verification."""
        return self._verify[0] / self._verify[1] if self._verify[1] else 0.0

    @property
    def token_s(self) -> float | None:
        """Seconds per token of the target alone; None where that was not measured."""
        if self.calibration is None or not self.rounds or self.calibration[0] < 2:
            return None
        tokens, seconds = self.calibration
        return max(seconds - self.verify_s, 0.0) / (tokens - 1)

    @property
    def give_up_reason(self) -> str:
        """Why drafting was given up, for the record."""
        return (
            f"gave up after {self.rounds} rounds: with {self.acceptance:.0%} accepted and "
            f"{self.verify_s * 1000:.0f} ms a verification the target is faster by itself"
        )

    def next_length(self, remaining: int) -> int | None:
        """Return the next draft length; None to let the target decode the ``remaining`` tokens alone."""
        longest = min(MAX_DRAFT_LENGTH, max(remaining - 1, 0))
        if self.fixed is not None:
            return min(self.fixed, longest)
        if self.rounds < _MIN_ROUNDS:
            return min(_FIRST_LENGTH, longest)
        token_s = self.token_s
        length = best_draft_length(self.acceptance, draft_s=self.draft_s, verify_s=self.verify_s)
        rate = tokens_per_second(self.acceptance, length, draft_s=self.draft_s, verify_s=self.verify_s)
        if token_s is not None and target_alone_is_faster(
            remaining, rate, token_s=token_s, verify_s=self.verify_s
        ):
            return None
        return min(length, longest)


@dataclass(slots=True)
class RoundCounts:
    """Token counts over all rounds of an answer.

    Attributes:
        steps: verifications with a draft.
        drafted, accepted: tokens.
        drafted_at, accepted_at: tokens by draft position.
    """

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)

    def note(self, drafted: int, accepted: int) -> None:
        """Add one round."""
        self.steps += 1
        self.drafted += drafted
        self.accepted += accepted
        for counts, length in ((self.drafted_at, drafted), (self.accepted_at, accepted)):
            counts.extend([0] * (drafted - len(counts)))
            for position in range(length):
                counts[position] += 1

    def speculation(self) -> Speculation:
        """Return the figures for the record; without a round, only the method is known."""
        if not self.steps:
            return Speculation(method="remote", source="client")
        by_position = zip(self.accepted_at, self.drafted_at, strict=True)
        return Speculation(
            method="remote",
            drafted=self.drafted,
            accepted=self.accepted,
            steps=self.steps,
            acceptance_rate=self.accepted / self.drafted,
            mean_accepted_length=1 + self.accepted / self.steps,
            per_position=tuple(accepted / drafted for accepted, drafted in by_position),
            accepted_per_position=tuple(self.accepted_at),
            source="client",
        )
