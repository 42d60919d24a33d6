"""The ledger snapshot in the test data is the one that the tool writes."""

from __future__ import annotations

import runpy

from paths import ROOT

from specclient.ledger.schema import SCHEMA_VERSION


def test_the_newest_snapshot_equals_the_tools_output() -> None:
    ledgers = ROOT / "tests" / "data" / "ledgers"
    before, newest = ((ledgers / f"v{SCHEMA_VERSION - n}.sql").read_text() for n in (1, 0))
    tool = runpy.run_path(str(ROOT / "tools" / "ledger_snapshot.py"))
    assert tool["snapshot"](before) == newest
