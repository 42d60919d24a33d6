"""Check the libraries that use the openai package, and write their table into the documentation.

    python tools/check_libraries.py [NAME ...] [--way WAY] [--fresh]

Without names all libraries are checked. ``--fresh`` installs the newest versions anew. ``--way`` checks one
way and keeps the results of the others, unless the versions have changed. The environments are
in ``build/libraries``, and so is the standard error of each run (``NAME/WAY.log``). The results are kept in
``tools/libraries/results.json``, from which the page ``docs/libraries.md`` is written.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from libraries.catalogue import LIBRARIES, CheckedLibrary
from libraries.environments import ROOT, InstallError, prepare
from libraries.page import page
from libraries.runs import WAYS, run_library
from libraries.servers import RunningServers, running_servers

RESULTS: Final = ROOT / "tools" / "libraries" / "results.json"
PAGE: Final = ROOT / "docs" / "libraries.md"


def main() -> None:
    """Check the named libraries."""
    names = [library.name for library in LIBRARIES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--fresh", action="store_true", help="install the newest versions anew")
    parser.add_argument(
        "--way", action="append", choices=WAYS[:3], help="check this way only; may be repeated"
    )
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in names]:
        parser.error(f"{unknown[0]!r} is not among the libraries: {', '.join(names)}")
    with running_servers() as servers:
        for library in LIBRARIES:
            if not given.names or library.name in given.names:
                _record(library.name, _entry(library, servers, given.way or WAYS[:3], fresh=given.fresh))


def _entry(
    library: CheckedLibrary, servers: RunningServers, ways: Sequence[str], *, fresh: bool
) -> dict[str, Any]:
    begun = time.monotonic()
    try:
        prepare(library, fresh=fresh)
    except InstallError as error:
        print(f"{library.name}: not installed: {error}", file=sys.stderr, flush=True)
        return {"not_installed": str(error)}
    entry = run_library(library, servers, ways, _recorded().get(library.name, {}))
    passed = {
        way: sum(r["way"] == way and r["error"] is None for r in entry["results"])
        for way in dict.fromkeys(r["way"] for r in entry["results"])
    }
    figures = ", ".join(f"{way} {count}" for way, count in passed.items())
    print(f"{library.name}: {figures} passed, in {time.monotonic() - begun:.0f} s", flush=True)
    return entry


def _record(name: str, entry: dict[str, Any]) -> None:
    entries = _recorded()
    entries[name] = entry
    RESULTS.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(entries), encoding="utf-8")


def _recorded() -> dict[str, Any]:
    """Return the recorded entries by library."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return found


if __name__ == "__main__":
    main()
