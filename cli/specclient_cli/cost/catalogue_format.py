"""The price catalogue in use: its name and age as text, and its values for JSON."""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specclient.prices.catalogue import SavedCatalogue


def describe_catalogue(copy: SavedCatalogue | None, now: datetime) -> str:
    """Return the name and age of the catalogue in use."""
    if copy is None:
        return f"catalogue of genai-prices {version('genai-prices')}"
    days = (now - copy.fetched).days
    age = "today" if days < 1 else "yesterday" if days == 1 else f"{days} days ago"
    return f"catalogue fetched {age}, on {copy.fetched:%Y-%m-%d %H:%M} UTC"


def catalogue_values(copy: SavedCatalogue | None) -> dict[str, Any]:
    """Return the package or file of the catalogue in use, and when it was fetched."""
    if copy is None:
        return {"package": version("genai-prices"), "fetched": None, "path": None}
    return {
        "package": copy.package,
        "fetched": copy.fetched.isoformat(),
        "path": str(copy.path),
        "models": copy.models,
    }
