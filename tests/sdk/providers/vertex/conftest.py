"""Google's token services, which the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google_cloud import TokenServer, running_token_server


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    """Fresh token services, and an environment without Google's variables."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # else google-auth looks for a metadata server
    with running_token_server() as server:
        yield server
