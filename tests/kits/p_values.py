"""The chi-square test of the tests that sample.

``scipy.special`` is imported in a tenth of the time of ``scipy.stats``, and every process of a test run would
import it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import chdtrc

#: Expected count below which categories are pooled, as is usual for this test.
_LEAST_EXPECTED = 5.0
#: Expected count below which a category is impossible; rounding makes it differ from zero.
_IMPOSSIBLE = 1e-9


def chi_square_p(counts: Any, distribution: Any) -> float:
    """Return the p-value of Pearson's chi-square test; 0.0 if something was counted that cannot be.

    Categories with a small expected count are pooled into one.

    Args:
        counts: how often each category was observed; array of any shape.
        distribution: probabilities, or numbers in proportion to them; same shape.
    """
    counts, distribution = (
        np.asarray(counts, dtype=float).ravel(),
        np.asarray(distribution, dtype=float).ravel(),
    )
    expected = distribution * (counts.sum() / distribution.sum())
    if counts[expected < _IMPOSSIBLE].any():
        return 0.0
    small = expected < _LEAST_EXPECTED
    observed = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    possible = expected > 0.0
    statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
    return float(chdtrc(possible.sum() - 1, statistic))
