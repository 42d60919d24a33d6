"""Fixtures of the tests that hold this client against OpenAI's."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("both_clients")

from both_clients import Both  # noqa: E402 - its asserts are to tell what differs


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def both(request: pytest.FixtureRequest) -> Both:
    """What runs a scenario with both libraries, with their synchronous or their asynchronous clients."""
    return Both(request.param)
