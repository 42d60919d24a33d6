"""Search for the layers of a model that draft best.

SWIFT (arXiv 2410.06916 §4.2): a trial lets a random change of the best layer set predict tokens that are
known already; trials take a small share of the time. A set's accuracy is averaged with a prior, so that one
lucky trial does not decide. The objective is the number of tokens per cost of drafting them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from specclient_local.drafting.best_shape import expected_tokens

LayerSet = tuple[int, ...]

_PRIOR, _WEIGHT = 0.3, 16.0
"""Prior accuracy of an untried set, and the number of tokens that the prior counts as."""

_LASTING = 512.0
"""Number of recent tokens by which a set is judged; earlier ones fade, because texts change."""

_CONTENDERS = 4
"""Number of best sets that are tried again; four times as many are remembered."""

_DEEPEST = 8
"""Maximum draft length that the objective considers, in tokens."""

_ROW = 0.05
"""Cost of each further row of a verification, in plain steps."""


@dataclass(slots=True)
class LayerSetScore:
    """The results of a set's trials."""

    right: float = _PRIOR * _WEIGHT
    seen: float = _WEIGHT

    @property
    def chance(self) -> float:
        """Estimated probability of predicting a token."""
        return self.right / self.seen

    def learn(self, right: int, seen: int) -> None:
        """Add a trial over ``seen`` tokens, ``right`` of which were predicted."""
        fade = min(1.0, _LASTING / (self.seen + seen))
        self.right, self.seen = (self.right + right) * fade, (self.seen + seen) * fade


class LayerSearch:
    """A search for the layers to keep.

    Args:
        layers: number of layers of the model.
        rng: source of random candidates.
    """

    def __init__(self, layers: int, rng: random.Random) -> None:
        self._layers = layers
        self._rng = rng
        self.best = first_layers(layers)
        self._judged: dict[LayerSet, LayerSetScore] = {self.best: LayerSetScore()}

    def candidate(self) -> LayerSet:
        """Return the set to try next: the least tried of the best sets, or a random change of the best
        one.
        """
        if self._rng.random() < 0.5:
            ranked = sorted(self._judged, key=self.speed, reverse=True)[:_CONTENDERS]
            return min(ranked, key=lambda each: self._judged[each].seen)
        return self._changed(self.best)

    def learn(self, layers: LayerSet, right: int, seen: int) -> None:
        """Record a trial: ``right`` of ``seen`` tokens were predicted. The fastest set becomes the best."""
        self._judged.setdefault(layers, LayerSetScore()).learn(right, seen)
        self.best = max(self._judged, key=self.speed)
        if len(self._judged) > 4 * _CONTENDERS:
            worst = min((each for each in self._judged if each != self.best), key=self.speed)
            del self._judged[worst]

    def chance(self, layers: LayerSet) -> float:
        """Return the estimated probability that a set predicts a token."""
        return self._judged.get(layers, LayerSetScore()).chance

    def speed(self, layers: LayerSet) -> float:
        """Return the tokens per plain step's time that a set yields at its best draft length."""
        share, alpha = len(layers) / self._layers, self.chance(layers)
        return max(
            expected_tokens(alpha, depth) / (1.0 + depth * (share + _ROW))
            for depth in range(_DEEPEST + 1)[1:]
        )

    def _changed(self, layers: LayerSet) -> LayerSet:
        """Return a set with one layer added, removed or replaced."""
        kept, left = set(layers), [i for i in range(self._layers) if i not in layers]
        ways = ["swap", *(["drop"] if len(kept) > 1 else []), *(["add"] if len(left) > 1 else [])]
        way = self._rng.choice(ways)
        if way != "add":
            kept.remove(self._rng.choice(sorted(kept)))
        if way != "drop":
            kept.add(self._rng.choice(left))
        return tuple(sorted(kept))


def first_layers(layers: int) -> LayerSet:
    """Return the initial set: half of the layers, evenly spread, with the first and the last."""
    count = max(1, (layers + 1) // 2)
    if count == 1:
        return (0,)
    return tuple(sorted({round(i * (layers - 1) / (count - 1)) for i in range(count)}))
