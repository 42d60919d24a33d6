"""Fixtures of the tests of managed servers."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from managed_engines import stop_all

collect_ignore_glob = ["*"] if sys.platform == "win32" else []


@pytest.fixture(autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    stop_all()
