"""The page of the documentation with the results of the checks and of the fleet's experiments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from engines.catalogue import ENGINES
from engines.checked_engine import ROOT
from engines.checks import CHECKS
from engines.fleet_page import fleet_section
from engines.managed import managed_section, read_results

PAGE: Final = ROOT / "docs" / "engines.md"
RESULTS: Final = ROOT / "tools" / "engines" / "results.json"
FLEET_RESULTS: Final = ROOT / "tools" / "engines" / "fleet.json"

_INTRODUCTION: Final = """# Tested against real servers

<!-- Written by `make engines`. -->

`make engines` installs these servers, starts each with the bundled pair on the processor, and checks what it
answers through specclient, under the preset of its name. (LiteLLM's proxy has no preset; it is used with the
capabilities that a probe of it finds.) Answers are greedy. They are compared with those of specclient's own
engine, and those of strategy `remote` with the server's answers without it. A version is that of the program
which answers the calls, such as Ray or LiteLLM's proxy.

| Check | |
|---|---|
"""


def page_of_files() -> str:
    """Return the page of the results on the disk."""
    entries, fleet = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        for file in (RESULTS, FLEET_RESULTS)
    )
    return page(entries, fleet, managed_section(read_results()))


def page(
    entries: dict[str, dict[str, Any]], fleet: dict[str, dict[str, Any]], managed: Sequence[str] = ()
) -> str:
    """Return the page in Markdown.

    Args:
        fleet: what the experiments with a fleet found, by their names.
        entries: by server, its ``version``, ``date`` and ``results`` by check (None, or what was wrong), or
            ``failed``: why it did not start.
        managed: the lines of the section on managed engines.
    """
    rows = [f"| {check.__name__} | {(check.__doc__ or '').strip()} |" for check in CHECKS]
    lines = [
        _INTRODUCTION + "\n".join(rows),
        "",
        f"| Server | Version | Date | {' | '.join(c.__name__ for c in CHECKS)} |",
    ]
    lines.append("|---" * (len(CHECKS) + 3) + "|")
    notes: list[str] = []
    for engine in ENGINES:
        if (entry := entries.get(engine.name)) is None:
            continue
        cells = [_cell(entry, check.__name__, engine.without) for check in CHECKS]
        lines.append(f"| {engine.title} | {entry['version']} | {entry['date']} | {' | '.join(cells)} |")
        if "failed" in entry:
            notes.append(f"- {engine.title} did not start: `{_escaped(entry['failed'])}`")
        notes += [
            f"- {engine.title}, {name}: not checked, {reason}" for name, reason in engine.without.items()
        ]
        notes += [f"- {engine.title}: {note}" for note in engine.notes]
        results = entry.get("results", {})
        notes += [
            f"- {engine.title}, {name}: `{_escaped(error)}`" for name, error in results.items() if error
        ]
    return "\n".join([*lines, "", *notes, *managed, *fleet_section(fleet)]).rstrip() + "\n"


def _cell(entry: dict[str, Any], check: str, without: Any) -> str:
    results = entry.get("results", {})
    if check in without or check not in results:
        return "–"
    return "✔" if results[check] is None else "✘"


def _escaped(text: str) -> str:
    return text.replace("|", "/").replace("`", "'").replace("\n", " ")[:240]
