"""Pauses that double."""

from __future__ import annotations

import random

from specclient.call.websocket.link import ReconnectPolicy
from specclient.routing.pools.pool_chooser import PoolChooser
from specclient.runtime.backoff import doubled


def test_pauses_double_up_to_the_maximum_after_any_number_of_failures() -> None:
    assert [doubled(0.5, times, 8.0) for times in range(6)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert doubled(5.0, 10**6, 120.0) == 120.0
    assert doubled(0.0, 10**6, 120.0) == 0.0


def test_a_socket_is_connected_again_after_thousands_of_attempts() -> None:
    assert 6.0 <= ReconnectPolicy().delay(5000, random.Random(1)) <= 8.0


def test_a_pool_that_failed_thousands_of_calls_is_avoided() -> None:
    chooser = PoolChooser({"a": (1, False), "b": (1, False)})
    for _ in range(3000):
        chooser.learn("a", None)
    assert {chooser.choose("code", 100, 50).name for _ in range(20)} == {"b"}
