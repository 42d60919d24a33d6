"""The queue of expiring estimates and loads."""

from __future__ import annotations

import math

from specclient.routing.learn.expiry_queue import ExpiryQueue


def test_keys_expire_once_in_order_at_the_earliest_time_given() -> None:
    queue = ExpiryQueue()
    for key, at in (((False, "a/m"), 5.0), ((True, "b"), 3.0), ((False, "a/m"), 2.0), ((False, "a/m"), 4.0)):
        queue.add(key, at)
    assert queue.next_at == 2.0
    assert list(queue.expired(1.0)) == []
    assert list(queue.expired(9.0)) == [(False, "a/m"), (True, "b")]
    assert (len(queue), queue.next_at) == (0, math.inf)


def test_a_key_added_while_others_expire_is_not_lost() -> None:
    queue = ExpiryQueue()
    queue.add((True, "b"), 1.0)
    for key in queue.expired(1.0):
        queue.add(key, 7.0)
    assert queue.next_at == 7.0
    assert list(queue.expired(8.0)) == [(True, "b")]
