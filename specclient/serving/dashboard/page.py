"""Turn the files of the dashboard into answers that a browser may show and nothing else.

The page holds no figure: those come as JSON, for who has the server's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from specclient.serving.exchange import HTTPExchange

__all__ = ["HEADERS", "PAGE", "send_asset"]

_FOLDER = Path(__file__).with_name("assets")
_SCRIPT = "text/javascript; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page, and what kind it is."""

    name: str
    kind: str


#: The page and what it is made of, by path.
PAGE: Mapping[str, Asset] = MappingProxyType(
    {
        "/dashboard": Asset("page.html", "text/html; charset=utf-8"),
        "/dashboard/style.css": Asset("style.css", "text/css; charset=utf-8"),
        "/dashboard/icon.svg": Asset("icon.svg", "image/svg+xml"),
        **{
            f"/dashboard/{name}.js": Asset(f"{name}.js", _SCRIPT)
            for name in ("app", "charts", "dom", "sections")
        },
    }
)

#: Only this server's own files, no inline script or style, no frame around it, no form sent anywhere.
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "cache-control": "no-cache",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
)


async def send_asset(talk: HTTPExchange) -> None:
    """Answer with a file of the page."""
    asset = PAGE[talk.scope["path"]]
    await talk.say(_content(asset.name), kind=asset.kind, headers=HEADERS)


@cache
def _content(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()
