"""Let specclient start real servers for a model, disturb them, and write what was found into a page.

    python tools/check_managed.py [NAME ...]

The servers are those of ``tools/check_engines.py`` in ``build/engines``. The results are kept in
``tools/engines/managed.json``, for the page ``docs/engines.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from datetime import UTC, datetime

from engines.checked_engine import BUILD
from engines.managed import CHECKED, RESULTS, check, read_results, stop
from engines.page import PAGE, page_of_files
from engines.running import EngineError, prepare, version_of


def main() -> None:
    """Check the named servers; the status is 1 if a check failed."""
    names = [each.engine.name for each in CHECKED]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}")
    given = parser.parse_args()
    os.environ["XDG_DATA_HOME"] = str(BUILD / "managed")  # the servers' folders, apart from the user's
    failed = False
    for each in CHECKED:
        if given.names and each.engine.name not in given.names:
            continue
        try:
            prepare(each.engine, fresh=False)
            found = asyncio.run(check(each))
        except (AssertionError, EngineError) as error:
            failed = True
            print(f"{each.engine.name}: {error}", file=sys.stderr, flush=True)
            continue
        finally:
            stop()
        title = f"{each.engine.title} {version_of(each.engine)}"
        results = {**read_results(), title: {**found, "date": datetime.now(UTC).date().isoformat()}}
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")
        PAGE.write_text(page_of_files(), encoding="utf-8")
        print(f"{title}: {found}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
