"""The parts of a section of the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from specclient.serving.dashboard.elements import Content
from specclient.serving.dashboard.ledger_data import LedgerData, ReportQuery
from specclient.serving.request_log import RequestEntry

__all__ = ["LedgerSection", "SectionValues", "SectionView", "ServerSection", "ServerState"]

#: Values for JSON by their names in the answer that the page fetches.
SectionValues: TypeAlias = Mapping[str, Any]


class SectionView(NamedTuple):
    """The content of a section.

    Attributes:
        subtitle: texts and elements next to the title.
        content: texts and elements below it.
    """

    subtitle: Sequence[Content]
    content: Sequence[Content]


@dataclass(frozen=True, slots=True)
class ServerState:
    """The requests that a server is working on.

    Attributes:
        running, waiting: numbers of requests of the whole server.
        entries: requests of this process that name a model, the oldest first.
        clock_s: the current time on the clock of :attr:`RequestEntry.begun`, monotonic seconds.
    """

    running: int
    waiting: int
    entries: Sequence[RequestEntry]
    clock_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSection:
    """A section with figures of the ledger, read again every few seconds.

    Attributes:
        id: ``id`` of the element with its content; ``ID-title`` and ``ID-sub`` are those of its heading.
        title: its heading.
        width: number of columns of the page that it fills.
        queries: the reports that it reads.
        values: returns its values for JSON, under names that no other section has.
        view: returns its content, given these values and the same data.
    """

    id: str
    title: str
    width: Literal[1, 2, 3]
    queries: tuple[ReportQuery, ...] = ()
    values: Callable[[LedgerData], SectionValues]
    view: Callable[[SectionValues, LedgerData], SectionView]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSection:
    """A section with the state of the server, read more often.

    Attributes:
        id, title, width: see :class:`LedgerSection`.
        values: returns its values for JSON, under names that no other section has.
        view: returns its content, given these values and the same state.
    """

    id: str
    title: str
    width: Literal[1, 2, 3]
    values: Callable[[ServerState], SectionValues]
    view: Callable[[SectionValues, ServerState], SectionView]
