"""The colors of models, the same in all sections."""

from __future__ import annotations

from specclient.reports.page.charts import COLORS, OTHER
from specclient.serving.dashboard.ledger_data import MONTH_BY_ROUTE, LedgerData

__all__ = ["model_colors"]


def model_colors(read: LedgerData) -> dict[str, str]:
    """Return the CSS class of each model with a cost in the last 30 days, the most expensive model first.

    A section that calls it names :data:`~specclient.serving.dashboard.ledger_data.MONTH_BY_ROUTE` among its
    queries.
    """
    spent: dict[str, int] = {}
    for line in read.reports[MONTH_BY_ROUTE].lines:
        spent[line.group[1]] = spent.get(line.group[1], 0) + line.cost_nano
    models = sorted((model for model in spent if spent[model]), key=lambda model: -spent[model])
    return {model: COLORS[i] if i < len(COLORS) else OTHER for i, model in enumerate(models)}
