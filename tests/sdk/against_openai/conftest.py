"""Fixtures of the tests that compare this client with the OpenAI client."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("both_clients")

from both_clients import Both  # noqa: E402 - after the registration, so that its asserts show differences


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def both(request: pytest.FixtureRequest) -> Both:
    """A runner of scenarios with both libraries, with synchronous and with asynchronous clients."""
    return Both(request.param)
