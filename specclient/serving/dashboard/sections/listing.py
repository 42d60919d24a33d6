"""The list of the dashboard's sections. The page, its routes' answers and its script follow from it."""

from __future__ import annotations

from typing import TypeAlias

from specclient.serving.dashboard.sections import alarms, choices, days, latency, models, pairs, rate, running
from specclient.serving.dashboard.sections.section import LedgerSection, ServerSection

__all__ = ["SECTIONS", "AnySection"]

AnySection: TypeAlias = LedgerSection | ServerSection

#: The sections in the order of the page.
SECTIONS: tuple[AnySection, ...] = (
    rate.SECTION,
    latency.SECTION,
    running.SECTION,
    days.SECTION,
    pairs.SECTION,
    models.SECTION,
    alarms.SECTION,
    choices.SECTION,
)
