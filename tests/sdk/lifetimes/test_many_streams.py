"""Many streams open at once in one process, measured as `benchmarks/streams.py` does."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from paths import BENCHMARKS

pytest.importorskip("resource", reason="no such limits on this system")

BENCHMARK = BENCHMARKS / "streams.py"


@pytest.mark.parametrize(
    ("count", "most_kb"), [(200, 60), pytest.param(2000, 40, marks=pytest.mark.soak)], ids=["200", "2000"]
)
def test_concurrent_streams_complete_within_a_memory_limit(count: int, most_kb: int) -> None:
    """The server holds the streams until all are open. Shared memory weighs more with few streams."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), str(count)], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["complete"] == count
    assert figures["kb_per_stream"] <= most_kb
    assert figures["kb_left_per_stream"] <= most_kb
