"""The page of the documentation with the results of the checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from libraries.catalogue import LIBRARIES
from libraries.runs import CHECKS, WAYS

_INTRODUCTION: Final = """# Libraries

<!-- Written by `make libraries`. -->

`make libraries` installs each of these libraries in its newest version into an environment of its own, and
uses it as its documentation shows, in three ways:

- **client object**: a `specclient.OpenAI` or `AsyncOpenAI` is given to the library, which takes it for a
  client of the `openai` package ([how](client.md#coverage));
- **official client**: an `openai.OpenAI` over specclient's [transport](official-client.md) is given to it;
- **server**: the library makes its own client with the base URL of [`specclient serve`](server.md).

Each way is checked with a whole answer, a streamed one, a tool call and structured output. Each check is made
with a hosted API (a server on loopback with canned answers) and with the bundled model `local/demo`, whose
grammar makes tool calls and structured output valid. With a library that records spans, a check passes only
if its span is there. Libraries that test `type(client)`, as Logfire does, need the official client:
`specclient.openai_client()`. A cell has the number of checks that passed and that were made; † marks those
that fail with the plain official client, given to the library with the hosted API as its server, too.
"""


def page(entries: dict[str, dict[str, Any]]) -> str:
    """Return the page in Markdown.

    Args:
        entries: by library, its ``versions``, ``results`` and, if any, ``note`` and ``not_installed``.
    """
    lines = [_INTRODUCTION]
    lines += ["| Library | openai | client object | official client | server |", "|---|---|---|---|---|"]
    unchecked = {library.name: {"unchecked": True} for library in LIBRARIES if library.name not in entries}
    lines += [_row(name, {**unchecked, **entries}[name]) for name in sorted({*unchecked, *entries})]
    sums = [_cell([e for e in entries.values() if "results" in e], way) for way in WAYS[:3]]
    lines += [f"| **all** | | {' | '.join(f'**{cell}**' for cell in sums)} |", ""]
    lines += ["## Failures", ""]
    lines += [line for name in sorted(entries) for line in _failures(name, entries[name])] or ["None."]
    return "\n".join(lines).rstrip() + "\n"


def _row(name: str, entry: dict[str, Any]) -> str:
    if "unchecked" in entry:
        return f"| {name} | | not checked with this version | | |"
    if "results" not in entry:
        return f"| {name} | | not installed: {_escaped(entry['not_installed'])} | | |"
    versions = entry["versions"]
    version = next((versions[package] for package in versions if package != "openai"), versions.get("openai"))
    cells = " | ".join(_cell([entry], way) for way in WAYS[:3])
    return f"| {name} {version} | {versions.get('openai', '')} | {cells} |"


def _cell(entries: Iterable[dict[str, Any]], way: str) -> str:
    passed = made = plain = 0
    for entry in entries:
        unserved = _plain_failures(entry)
        for result in entry["results"]:
            if result["way"] == way:
                made += 1
                passed += result["error"] is None
                plain += result["error"] is not None and result["check"] in unserved
    if not made:
        return "–"
    return f"{passed}/{made}" + (f" (†{plain})" if plain else "")


def _plain_failures(entry: dict[str, Any]) -> set[str]:
    return {r["check"] for r in entry["results"] if r["way"] == "plain" and r["error"] is not None}


def _failures(name: str, entry: dict[str, Any]) -> list[str]:
    """Return a list item for each way that fails, with the checks of each cause."""
    lines: list[str] = []
    titles = {"object": "client object", "transport": "official client", "server": "server", "plain": "plain"}
    for way in WAYS:
        causes: dict[str, list[str]] = {}
        for result in entry.get("results", ()):
            if result["way"] == way and result["error"] is not None:
                where = "hosted" if result["server"] == "canned" else "local"
                causes.setdefault(result["error"], []).append(f"{where} {result['check']}")
        for cause, checks in causes.items():
            total = len(CHECKS) * 2
            which = "all" if len(checks) == total else ", ".join(checks)
            lines.append(f"- {name}, {titles[way]}, {which}: `{_escaped(cause)}`")
    if lines and "note" in entry:
        lines.append(f"- {name}: {entry['note']}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("|", "/").replace("`", "'")[:200]
