"""Functions that give a key, with their latest key."""

from __future__ import annotations

import pytest

from specclient.client.remembered_key import RememberedAsyncKey, remembered_key


def key() -> str:
    return "k"


async def later() -> str:
    return "k"


def test_equal_functions_are_equal_so_that_copies_share_limits() -> None:
    assert remembered_key(key) == remembered_key(key) != remembered_key(later)
    assert len({remembered_key(key), remembered_key(key)}) == 1


@pytest.mark.anyio
async def test_the_latest_key_is_kept_and_an_invalid_one_is_not() -> None:
    remembered = remembered_key(later)
    assert isinstance(remembered, RememberedAsyncKey)
    assert (remembered.latest, await remembered(), remembered.latest) == ("", "k", "k")
    invalid = remembered_key(lambda: 3)  # type: ignore[arg-type, return-value]
    assert (invalid(), invalid.latest) == (3, "")
