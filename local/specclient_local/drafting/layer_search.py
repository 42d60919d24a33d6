"""Turn how well sets of a model's layers foretold known tokens into the set that is to draft next.

SWIFT (arXiv 2410.06916 §4.2): random changes of the best set, judged on tokens that are known already, a
small share of the time. A set's chance of foretelling a token is the mean of what was seen and a prior, so
that a lucky window is not taken for a good set; what counts is tokens for the cost of drafting them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from specclient_local.drafting.length_policy import expected_tokens

LayerSet = tuple[int, ...]

_PRIOR, _WEIGHT = 0.3, 16.0
"""Chance of a set of which nothing is known, and for how many tokens it counts."""

_LASTING = 512.0
"""Tokens that a set is judged by; earlier ones fade, since streams change."""

_CONTENDERS = 4
_DEEPEST = 8
_ROW = 0.05
"""What each further row of a verification costs, in plain steps."""


@dataclass(slots=True)
class LayerSetScore:
    """What was seen of a set."""

    right: float = _PRIOR * _WEIGHT
    seen: float = _WEIGHT

    @property
    def chance(self) -> float:
        """Of foretelling a token."""
        return self.right / self.seen

    def learn(self, right: int, seen: int) -> None:
        """Add tokens, of which some were foretold."""
        fade = min(1.0, _LASTING / (self.seen + seen))
        self.right, self.seen = (self.right + right) * fade, (self.seen + seen) * fade


class LayerSearch:
    """A search for the layers to keep.

    Args:
        layers: of the model.
        rng: where candidates come from.
    """

    def __init__(self, layers: int, rng: random.Random) -> None:
        self._layers = layers
        self._rng = rng
        self.best = first_layers(layers)
        self._judged: dict[LayerSet, LayerSetScore] = {self.best: LayerSetScore()}

    def candidate(self) -> LayerSet:
        """Return a set to judge next: one that is good as far as is known, or a change of the best."""
        if self._rng.random() < 0.5:
            ranked = sorted(self._judged, key=self.speed, reverse=True)[:_CONTENDERS]
            return min(ranked, key=lambda each: self._judged[each].seen)
        return self._changed(self.best)

    def learn(self, layers: LayerSet, right: int, seen: int) -> None:
        """Note how many of some known tokens a set foretold; the fastest set so far is the best."""
        self._judged.setdefault(layers, LayerSetScore()).learn(right, seen)
        self.best = max(self._judged, key=self.speed)
        if len(self._judged) > 4 * _CONTENDERS:
            worst = min((each for each in self._judged if each != self.best), key=self.speed)
            del self._judged[worst]

    def chance(self, layers: LayerSet) -> float:
        """Return how likely a set is to foretell a token, as far as is known."""
        return self._judged.get(layers, LayerSetScore()).chance

    def speed(self, layers: LayerSet) -> float:
        """Return tokens for each plain step's time that a set brings at its best draft length."""
        share, alpha = len(layers) / self._layers, self.chance(layers)
        return max(
            expected_tokens(alpha, depth) / (1.0 + depth * (share + _ROW))
            for depth in range(_DEEPEST + 1)[1:]
        )

    def _changed(self, layers: LayerSet) -> LayerSet:
        """Return a set with a layer more, a layer less, or another in the place of one."""
        kept, left = set(layers), [i for i in range(self._layers) if i not in layers]
        ways = ["swap", *(["drop"] if len(kept) > 1 else []), *(["add"] if len(left) > 1 else [])]
        way = self._rng.choice(ways)
        if way != "add":
            kept.remove(self._rng.choice(sorted(kept)))
        if way != "drop":
            kept.add(self._rng.choice(left))
        return tuple(sorted(kept))


def first_layers(layers: int) -> LayerSet:
    """Return the set a search begins with: half of the layers, the first and the last among them."""
    count = max(1, (layers + 1) // 2)
    if count == 1:
        return (0,)
    return tuple(sorted({round(i * (layers - 1) / (count - 1)) for i in range(count)}))
