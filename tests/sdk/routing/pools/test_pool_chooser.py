"""The choice of a pool by load, prompt and task."""

from __future__ import annotations

import random
import time

import pytest

from specclient.routing.pools.pool_chooser import PoolChooser
from specclient.routing.pools.pool_speed import PoolSample

POOLS = {"d0": (1, False), "d5": (1, True)}
ANSWER = 50


class _NoDice(random.Random):
    def random(self) -> float:
        return 1.0


class _Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def token_s(pool: str, n: float, task: str = "code") -> float:
    """Return the times of a server: drafting pays for few requests, and for code more than for prose."""
    if pool == "d0":
        return 0.010 + 0.001 * n
    return (0.002 if task == "code" else 0.012) + 0.004 * n


def chooser_of(**options: object) -> PoolChooser:
    """Return a chooser that has seen all loads up to 12."""
    chooser = PoolChooser(POOLS, dice=_NoDice(), **options)
    for _ in range(6):
        for n in (1, 2, 4, 8, 12):
            for task in ("code", "chat"):
                for pool in POOLS:
                    total = 0.05 + ANSWER * token_s(pool, n, task)
                    chooser.learn(pool, PoolSample(n, task, 100, ANSWER + 1, 0.05, total))
    return chooser


def chosen(chooser: PoolChooser, task: str = "code", **options: object) -> str:
    return chooser.choose(task, 100, ANSWER, **options).name


def test_drafts_serve_few_requests_and_plain_decoding_many() -> None:
    chooser = chooser_of()
    order = []
    for _ in range(14):
        order.append(chosen(chooser))
        chooser.began(order[-1])
    assert order[0] == "d5"
    assert order.count("d0") > order.count("d5") > 1
    for name in order:
        chooser.ended(name)
    assert chosen(chooser) == "d5"


def test_tasks_that_draft_badly_decode_plainly() -> None:
    assert chosen(chooser_of(), "code") == "d5"
    assert chosen(chooser_of(), "chat") == "d0"


def test_a_call_counts_the_seconds_that_others_lose() -> None:
    """With one call on each pool, the drafting one is faster for a third, but not for both together."""
    chooser = chooser_of()
    chooser.began("d0")
    chooser.began("d5")
    found = chooser.choose("code", 100, ANSWER)
    views = {view.name: view.seconds for view in found.views}
    assert views == pytest.approx({pool: 0.05 + ANSWER * token_s(pool, 2) for pool in POOLS}, rel=0.15)
    assert views["d5"] < views["d0"]
    assert found.name == "d0"


def test_parameters_that_drafts_refuse_go_to_a_pool_without() -> None:
    assert chosen(chooser_of(), plain=True) == "d0"
    only = PoolChooser({"d5": (1, True)}, dice=_NoDice())
    assert chosen(only, plain=True) == "d5", "which refuses the parameter by name"


def test_unknown_pools_are_tried_one_call_at_a_time() -> None:
    chooser = PoolChooser({"a": (1, False), "b": (1, False), "c": (1, False)}, dice=_NoDice())
    names = []
    for _ in range(3):
        names.append(chosen(chooser))
        chooser.began(names[-1])
    assert names == ["a", "b", "c"]
    assert chosen(chooser) in names
    for name in names:
        for _ in range(4):
            chooser.learn(name, PoolSample(1, "code", 100, 50, 0.1, {"a": 3.0, "b": 1.0, "c": 2.0}[name]))
        chooser.ended(name)
    assert chosen(chooser) == "b"


def test_a_failing_pool_is_avoided_for_a_while() -> None:
    clock = _Clock()
    chooser = chooser_of(now=clock)
    chooser.learn("d5", None)
    assert chosen(chooser) == "d5", "one failure is none"
    chooser.learn("d5", None)
    assert chosen(chooser) == "d0"
    clock.now_s += 6
    assert chosen(chooser) == "d5"
    chooser.learn("d5", None)
    clock.now_s += 6
    assert chosen(chooser) == "d0", "the time doubles"
    for _ in range(2):
        chooser.learn("d0", None)
    assert chosen(chooser) == "d5", "all fail"


def test_the_load_of_other_programs_counts_while_it_is_recent() -> None:
    clock = _Clock()
    chooser = chooser_of(now=clock)
    chooser.note_load("d5", 11.0)
    assert chosen(chooser) == "d0"
    clock.now_s += 16
    assert chosen(chooser) == "d5"
    chooser.note_load("gone", 3.0)


def test_pools_without_replicas_are_not_chosen() -> None:
    chooser = chooser_of()
    chooser.resize({"d5": 0})
    assert chosen(chooser) == "d0"
    chooser.resize({"d5": 2})
    assert chosen(chooser) == "d5"


def test_the_mean_load_is_that_of_the_time() -> None:
    clock = _Clock()
    chooser = chooser_of(now=clock)
    chooser.began("d5")
    clock.now_s += 1
    chooser.began("d5")
    clock.now_s += 1
    chooser.ended("d5")
    clock.now_s += 2
    assert chooser.mean_load("d5", 4.0) == pytest.approx((1 + 2 + 1 + 1) / 4)
    assert chooser.mean_load("d5", 3.5) == pytest.approx((0.5 + 2 + 1 + 1) / 3.5), "begun amid a change"
    assert chooser.mean_load("d5", 1.0) == 1.0
    assert chooser.mean_load("d5", 100.0) == pytest.approx(1.25), "since the chooser was made"
    assert chooser.mean_load("d5", 0.0) == 1.0


def test_little_known_loads_are_explored() -> None:
    class Dice(random.Random):
        def random(self) -> float:
            return 0.0

    chooser = PoolChooser(POOLS, dice=Dice())
    for pool, total in (("d0", 1.0), ("d5", 0.9)):
        for _ in range(5):
            chooser.learn(pool, PoolSample(1, "code", 100, 50, 0.1, total))
    for _ in range(8):
        chooser.began("d0")
    found = chooser.choose("code", 100, 50)
    assert (found.name, found.reason) == ("d0", "little is known of it at this load")


def test_a_decision_takes_less_than_a_millisecond() -> None:
    chooser = PoolChooser({f"d{k}": (4, k > 0) for k in range(8)})
    dice = random.Random(1)
    for k in range(8):
        for _ in range(50):
            n = dice.randrange(1, 60)
            chooser.learn(f"d{k}", PoolSample(n, "code", 100, 50, 0.1, 0.1 + 0.5 * n))
    begun = time.thread_time()
    for _ in range(200):
        chooser.began(chooser.choose("code", 100, 200).name)
    assert (time.thread_time() - begun) / 200 < 1e-3
