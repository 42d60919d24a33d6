"""Google's token services on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google_cloud import TokenServer, running_token_server


@pytest.fixture
def tokens() -> Iterator[TokenServer]:
    """Fresh token services."""
    with running_token_server() as server:
        yield server
