"""HTTP handlers of the dashboard: static files, the state of the server, and figures of the ledger."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

from specclient.client.async_client import AsyncOpenAI
from specclient.errors import LedgerError
from specclient.ledger.location import OFF
from specclient.openai_http.errors import ServingError, bad_request
from specclient.providers.encoding import json_of
from specclient.runtime.event_loop import run_in_thread
from specclient.serving.dashboard.figures import figures, server_figures
from specclient.serving.dashboard.ledger_data import CallSource
from specclient.serving.dashboard.page import HEADERS, PAGE, PAGE_PATH, render_page, send_asset
from specclient.serving.dashboard.recent import RecentCalls
from specclient.serving.dashboard.sections.listing import SECTIONS, AnySection
from specclient.serving.dashboard.sections.section import ServerState
from specclient.serving.dashboard.spans import SPANS
from specclient.serving.exchange import HTTPExchange
from specclient.serving.request_log import RequestLog
from specclient.types.call import Call
from specclient.version import VERSION

__all__ = ["Dashboard"]

_log = logging.getLogger("specclient")

#: Figures are cached for this number of seconds, and at least for this multiple of the time to read them.
_FRESH_S, _READ_FACTOR = 2.0, 10


@dataclass(slots=True)
class _CachedFigures:
    """Figures of a time span as JSON, and their expiry in monotonic seconds."""

    content: bytes
    until: float


class Dashboard:
    """Handles the page's requests.

    Args:
        client: supplies the ledger.
        log: supplies the running requests.
        load: returns the numbers of running and of waiting requests of the whole server.
        models: returns the served models.
        clock: returns monotonic seconds.
        now: returns the current time, UTC.

    Attributes:
        sections: the sections of the page.
    """

    def __init__(
        self,
        client: AsyncOpenAI,
        log: RequestLog,
        load: Callable[[], tuple[int, int]],
        models: Callable[[], list[str]],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._log, self._load, self._models = client, log, load, models
        self._clock, self._now = clock, now
        self.sections: Sequence[AnySection] = SECTIONS
        self._recent = RecentCalls()
        self._read: dict[str, _CachedFigures] = {}
        self._reading = asyncio.Lock()

    def routes(self) -> Iterator[tuple[str, Callable[[HTTPExchange], Awaitable[None]]]]:
        """Yield the paths and their handlers."""
        yield PAGE_PATH, self._page
        for path in PAGE.keys() - {PAGE_PATH}:
            yield path, send_asset
        yield "/dashboard/live", self._live
        yield "/dashboard/figures", self._figures

    def observe(self, call: Call) -> None:
        """Remember a finished call if the ledger is off; an observer of a pipeline."""
        if not self._in_ledger:
            self._recent.add(call)

    @property
    def _in_ledger(self) -> bool:
        return self._client.ledger.location != OFF

    async def _page(self, exchange: HTTPExchange) -> None:
        await exchange.respond(render_page(self.sections), kind=PAGE[PAGE_PATH].kind, headers=HEADERS)

    async def _live(self, exchange: HTTPExchange) -> None:
        models, load = self._models(), await run_in_thread(self._load)
        entries = [entry for entry in self._log.live.values() if entry.model is not None]
        await _send_json(
            exchange,
            {
                "at": self._now().isoformat(),
                "version": VERSION,
                "ledger": self._in_ledger,
                "model": models[0] if models else None,
                **server_figures(ServerState(*load, entries, self._log.clock()), self.sections),
            },
        )

    async def _figures(self, exchange: HTTPExchange) -> None:
        name = parse_qs(exchange.query).get("span", ["24h"])[0]
        if name not in SPANS:
            raise bad_request("span", f"span is {name[:20]!r}; it must be one of {', '.join(SPANS)}")
        async with self._reading:  # read once, regardless of the number of open pages
            cached = self._read.get(name)
            if cached is None or cached.until <= self._clock():
                cached = self._read[name] = await self._fresh(name)
        await exchange.respond(cached.content, headers=HEADERS)

    async def _fresh(self, name: str) -> _CachedFigures:
        source: CallSource = self._client.ledger if self._in_ledger else self._recent
        begun = self._clock()
        try:
            content = await run_in_thread(lambda: json_of(figures(source, name, self._now(), self.sections)))
        except LedgerError as error:
            _log.warning("the dashboard has no figures: %s", error)
            raise ServingError(
                503, "the ledger cannot be read; the server's log says why", code="ledger_unreadable"
            ) from None
        ended = self._clock()
        return _CachedFigures(content, ended + max(_FRESH_S, _READ_FACTOR * (ended - begun)))


async def _send_json(exchange: HTTPExchange, value: dict[str, Any]) -> None:
    await exchange.respond(json_of(value), headers=HEADERS)
