"""The page of the dashboard with its static files, and the response headers that restrict them.

The page contains the headings of its sections, but no figures. It fetches them as JSON, which requires the
server's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from types import MappingProxyType

from specclient.serving.dashboard.sections.listing import AnySection
from specclient.serving.exchange import HTTPExchange

__all__ = ["HEADERS", "PAGE", "PAGE_PATH", "render_page", "send_asset"]

_OWN, _REPORT = "specclient.serving.dashboard", "specclient.reports.page"
_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file.

    Attributes:
        package: the package that contains it.
        name: its path inside the package.
        kind: its media type.
    """

    package: str
    name: str
    kind: str


#: URL path of the page.
PAGE_PATH = "/dashboard"
#: The files by URL path. Chart styles and tooltips are those of the HTML report.
PAGE: Mapping[str, Asset] = MappingProxyType(
    {
        PAGE_PATH: Asset(_OWN, "assets/page.html", "text/html; charset=utf-8"),
        "/dashboard/style.css": Asset(_OWN, "assets/style.css", _STYLE),
        "/dashboard/charts.css": Asset(_REPORT, "charts.css", _STYLE),
        "/dashboard/icon.svg": Asset(_OWN, "assets/icon.svg", "image/svg+xml"),
        "/dashboard/tips.js": Asset(_REPORT, "tips.js", _SCRIPT),
        **{f"/dashboard/{name}.js": Asset(_OWN, f"assets/{name}.js", _SCRIPT) for name in ("app", "dom")},
    }
)

#: Allow only files of this server, no inline scripts or styles, no framing and no form submission.
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "cache-control": "no-cache",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
)


#: The mark in the page's file that the sections replace.
_PLACE = b"<!-- sections -->"
#: CSS classes of a section by the number of columns that it fills.
_WIDTHS = {1: "card", 2: "card wide", 3: "card full"}


def render_page(sections: Iterable[AnySection]) -> bytes:
    """Return the page with the empty sections, which its script fills."""
    made = "\n".join(
        f'<section class="{_WIDTHS[section.width]}" aria-labelledby="{section.id}-title"><div class="head">'
        f'<h2 id="{section.id}-title">{escape(section.title)}</h2>'
        f'<p class="soft" id="{section.id}-sub"></p></div><div id="{section.id}"></div></section>'
        for section in sections
    )
    return _content(PAGE[PAGE_PATH]).replace(_PLACE, made.encode())


async def send_asset(exchange: HTTPExchange) -> None:
    """Send a file of the page other than the page itself."""
    asset = PAGE[exchange.scope["path"]]
    await exchange.respond(_content(asset), kind=asset.kind, headers=HEADERS)


@cache
def _content(asset: Asset) -> bytes:
    return files(asset.package).joinpath(asset.name).read_bytes()
