"""Linear regression of a stream of points, with exponential decay of old points."""

from __future__ import annotations

import math

__all__ = ["DecayedRegression"]

#: A slope is significant with at least this many points, if it is this many times its own error.
_LEAST_POINTS = 6.0
_CLEAR = 3.0


class DecayedRegression:
    """Decayed least squares of ``y = intercept + slope × x``.

    Args:
        calls: the number of points after which a point weighs half.
    """

    __slots__ = ("_keep", "_n", "_sxx", "_sxy", "_syy", "x", "y")

    def __init__(self, calls: float) -> None:
        self._keep = 2 ** (-1 / calls)
        self._n = self._sxx = self._sxy = self._syy = 0.0
        self.x = self.y = 0.0  # the means

    def add(self, x: float, y: float, weight: float = 1.0) -> None:
        """Add a point (Welford's update with decayed weights); ``weight`` is at most 1."""
        keep = self._keep
        self._n = self._n * keep + weight
        dx, dy = x - self.x, y - self.y
        self.x += dx * weight / self._n
        self.y += dy * weight / self._n
        self._sxx = self._sxx * keep + weight * dx * (x - self.x)
        self._sxy = self._sxy * keep + weight * dx * (y - self.y)
        self._syy = self._syy * keep + weight * dy * (y - self.y)

    @property
    def slope(self) -> float | None:
        """The growth of y with x; None if it is not significant."""
        if self._n < _LEAST_POINTS or self._sxx <= 1e-9 * (1 + self.x * self.x) * self._n:
            return None
        slope = self._sxy / self._sxx
        unexplained = max(self._syy - slope * self._sxy, 0.0)
        error = math.sqrt(unexplained / (self._n - 2) / self._sxx)
        return slope if slope > _CLEAR * error else None

    @property
    def intercept(self) -> float | None:
        """The value of y where x is 0. It is None where the slope is None, and where it would be negative."""
        slope = self.slope
        if slope is None:
            return None
        at_zero = self.y - slope * self.x
        return at_zero if at_zero >= 0 else None
