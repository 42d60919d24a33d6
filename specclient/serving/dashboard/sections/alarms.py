"""The section of alarms: models, keys and tags that cost unusually much in the last day."""

from __future__ import annotations

import threading
from datetime import datetime
from decimal import Decimal
from typing import Any
from weakref import WeakKeyDictionary

from specclient.reports.anomalies import Anomaly, find_alarms
from specclient.reports.text import format_dollars
from specclient.serving.dashboard.elements import Column, cell, data, element, nothing, number_column, table
from specclient.serving.dashboard.ledger_data import CallSource, LedgerData
from specclient.serving.dashboard.sections.section import LedgerSection, SectionValues, SectionView

__all__ = ["SECTION"]

#: Minutes for which the alarms of a ledger are kept: the last day ends at a whole hour.
_KEPT_MIN = 10
_MOST = 12
_COLUMNS = (Column("By"), Column("Name"), number_column("Last day"), number_column("Usual"))

_Alarms = dict[str, list[Anomaly]]
_known: WeakKeyDictionary[CallSource, tuple[datetime, _Alarms]] = WeakKeyDictionary()
_lock = threading.Lock()


def _alarms(source: CallSource, now: datetime) -> _Alarms:
    """Return the alarms, which several pages share."""
    at = now.replace(minute=now.minute // _KEPT_MIN * _KEPT_MIN, second=0, microsecond=0)
    with _lock:
        found = _known.get(source)
        if found is None or found[0] != at:
            found = _known[source] = at, find_alarms(source, now=now)
        return found[1]


def _values(read: LedgerData) -> SectionValues:
    alarms = [
        {"by": by, "name": each.group[0], "cost": str(each.cost), "usual": str(each.usual)}
        for by, group in _alarms(read.source, read.now).items()
        for each in group
    ]
    return {"alarms": alarms[:_MOST], "alarms_more": max(len(alarms) - _MOST, 0)}


def _view(values: SectionValues, _read: LedgerData) -> SectionView:
    subtitle = ["The last 24 hours, compared with the same weekdays of four weeks."]
    alarms = values["alarms"]
    if not alarms:
        return SectionView(subtitle, [nothing("Nothing cost unusually much.")])
    rows = [
        element(
            "tr",
            {"data-alarm": f"{each['by']} {each['name']}"},
            cell(each["by"], "name"),
            element("th", {"scope": "row", "class": "name"}, each["name"]),
            *(cell(_dollars(each[name])) for name in ("cost", "usual")),
        )
        for each in alarms
    ]
    more = [nothing(f"{values['alarms_more']} more")] if values["alarms_more"] else []
    return SectionView(subtitle, [table("Unusual costs", _COLUMNS, rows), *more])


def _dollars(amount: str) -> Any:
    return data(amount, format_dollars(Decimal(amount), estimated=False))


SECTION = LedgerSection(id="alarms", title="Unusual costs", width=3, values=_values, view=_view)
