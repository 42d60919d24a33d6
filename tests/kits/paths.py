"""Paths of the repository, its test data, and larger data that is not part of a clone."""

from __future__ import annotations

import os
from pathlib import Path

KITS = Path(__file__).parent
ROOT = KITS.parent.parent
DATA = KITS.parent / "data"
BENCHMARKS = ROOT / "benchmarks"
EXAMPLES = ROOT / "examples"
#: Real prompts and vocabularies in a folder next to the repository; tests that need them are skipped
#: without them.
SHARED = ROOT.parent / "shared"
SHARED_DATA = Path(os.environ.get("SPECCLIENT_TEST_DATA", SHARED / "data"))
