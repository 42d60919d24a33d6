"""Turn measured times and acceptance into how many tokens to draft next, or into giving up; pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from specclient.types.usage import Speculation

#: Tokens drafted at most, and those the target decodes by itself at first, which tells its own pace.
MAX_DRAFT_LENGTH = 16
CALIBRATION_TOKENS = 8
#: Rounds that are played before giving up is thought of.
_FEWEST_ROUNDS = 3
#: How much weight what was seen before keeps with each round.
_FADE = 0.9
#: Draft tokens taken for seen, and the share of them for accepted, before any was.
_PRIOR = (2.0, 0.7)


def expected_tokens(acceptance: float, depth: int) -> float:
    """Return the tokens a round of ``depth`` wins on average, the target's own token included.

    (1 - a^(K+1)) / (1 - a) for an acceptance a of each token (Leviathan et al., arXiv 2211.17192, eq. 1).
    """
    if acceptance >= 1:
        return depth + 1.0
    return float((1 - acceptance ** (depth + 1)) / (1 - acceptance))


def tokens_per_second(acceptance: float, depth: int, *, draft_s: float, verify_s: float) -> float:
    """Return a round's expected tokens per second.

    Args:
        draft_s: seconds the draft takes for a token.
        verify_s: seconds of one verification: round trip, prefill, one new token.
    """
    return expected_tokens(acceptance, depth) / max(depth * draft_s + verify_s, 1e-9)


def best_depth(acceptance: float, *, draft_s: float, verify_s: float, most: int = MAX_DRAFT_LENGTH) -> int:
    """Return the draft length, 1 to ``most``, with the most expected tokens per second; least of equals."""
    return max(
        range(1, max(most, 1) + 1),
        key=lambda k: (tokens_per_second(acceptance, k, draft_s=draft_s, verify_s=verify_s), -k),
    )


def target_alone_is_faster(remaining: int, rate: float, *, token_s: float, verify_s: float) -> bool:
    """Tell whether the target is sooner done by itself.

    Args:
        remaining: tokens yet to come.
        rate: tokens per second of verified drafts.
        token_s: seconds the target takes for a token by itself, after a first one in ``verify_s``.
    """
    return remaining / max(rate, 1e-9) > verify_s + (remaining - 1) * token_s


@dataclass(slots=True)
class DraftLengthController:
    """What rounds have shown so far.

    Attributes:
        fixed: the caller's draft length; then nothing is adapted, and nothing given up.
        opening: tokens and seconds of the target's first ones, decoded by itself; None where it was one.
        rounds: verifications with a draft.
    """

    fixed: int | None = None
    opening: tuple[int, float] | None = None
    rounds: int = 0
    _seen: float = 0.0
    _kept: float = 0.0
    _draft: tuple[float, float] = field(default=(0.0, 0.0))
    _verify: tuple[float, float] = field(default=(0.0, 0.0))

    def note(self, drafted: int, accepted: int, *, draft_s: float, verify_s: float) -> None:
        """Note a round: what was drafted and kept, and the seconds of the draft's call and the target's."""
        self.rounds += 1
        tried = min(accepted + 1, drafted)  # those after the first refused one were not judged
        self._seen, self._kept = self._seen * _FADE + tried, self._kept * _FADE + accepted
        self._draft = (self._draft[0] * _FADE + draft_s, self._draft[1] * _FADE + drafted)
        self._verify = (self._verify[0] * _FADE + verify_s, self._verify[1] * _FADE + 1)

    @property
    def acceptance(self) -> float:
        """The chance of a draft token to be kept, those before it being kept; drawn towards a prior."""
        weight, share = _PRIOR
        return (self._kept + weight * share) / (self._seen + weight)

    @property
    def draft_s(self) -> float:
        """Seconds of the draft for a token."""
        return self._draft[0] / self._draft[1] if self._draft[1] else 0.0

    @property
    def verify_s(self) -> float:
        """Seconds of a verification."""
        return self._verify[0] / self._verify[1] if self._verify[1] else 0.0

    @property
    def token_s(self) -> float | None:
        """Seconds the target takes for a token by itself; None where that was not seen."""
        if self.opening is None or not self.rounds or self.opening[0] < 2:
            return None
        tokens, seconds = self.opening
        return max(seconds - self.verify_s, 0.0) / (tokens - 1)

    @property
    def given_up(self) -> str:
        """Why drafting ended, in words."""
        return (
            f"gave up after {self.rounds} rounds: with {self.acceptance:.0%} accepted and "
            f"{self.verify_s * 1000:.0f} ms a verification the target is faster by itself"
        )

    def next(self, remaining: int) -> int | None:
        """Return how many tokens to draft; None to let the target decode what remains by itself."""
        most = min(MAX_DRAFT_LENGTH, max(remaining - 1, 0))
        if self.fixed is not None:
            return min(self.fixed, most)
        if self.rounds < _FEWEST_ROUNDS:
            return min(4, most)
        token_s = self.token_s
        depth = best_depth(self.acceptance, draft_s=self.draft_s, verify_s=self.verify_s)
        rate = tokens_per_second(self.acceptance, depth, draft_s=self.draft_s, verify_s=self.verify_s)
        if token_s is not None and target_alone_is_faster(
            remaining, rate, token_s=token_s, verify_s=self.verify_s
        ):
            return None
        return min(depth, most)


@dataclass(slots=True)
class RoundCounts:
    """What the rounds came to; ``reached`` and ``kept`` count them by draft position."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    reached: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def note(self, drafted: int, accepted: int) -> None:
        """Count a round."""
        self.steps += 1
        self.drafted += drafted
        self.accepted += accepted
        for counts, upto in ((self.reached, drafted), (self.kept, accepted)):
            counts.extend([0] * (drafted - len(counts)))
            for position in range(upto):
                counts[position] += 1

    def speculation(self) -> Speculation:
        """Return the record; without a round, nothing is known but the method."""
        if not self.steps:
            return Speculation(method="remote", source="client")
        return Speculation(
            method="remote",
            drafted=self.drafted,
            accepted=self.accepted,
            steps=self.steps,
            acceptance_rate=self.accepted / self.drafted,
            mean_accepted_length=1 + self.accepted / self.steps,
            per_position=tuple(k / r for k, r in zip(self.kept, self.reached, strict=True)),
            accepted_per_position=tuple(self.kept),
            source="client",
        )
