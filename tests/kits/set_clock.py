"""A system clock that tests can set for programs that they start, by libfaketime. Monotonic clocks go on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib")


class SetClock:
    """The clock of programs with :attr:`environment`; skips the test where libfaketime is missing.

    Args:
        folder: where its offset is written.
        at: seconds since the epoch that it shows first; None for the actual time.
    """

    def __init__(self, folder: Path, at: float | None = None) -> None:
        found = [path for each in _FOLDERS for path in Path(each).glob("**/faketime/libfaketime.so.1")]
        if not found:
            pytest.skip("libfaketime is not installed (apt-get install faketime)")
        self._file = folder / "clock"
        self.offset_s = 0 if at is None else round(at - time.time())
        self.forward(0)
        self.environment = {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def forward(self, seconds: int) -> None:
        """Set the clock forward, or back if ``seconds`` is negative."""
        self.offset_s += seconds
        new = self._file.with_suffix(".new")
        new.write_text(f"{self.offset_s:+d}\n")
        new.replace(self._file)
