"""The choice of a replica."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from specclient.routing.replicas.prefix_index import PrefixIndex
from specclient.routing.replicas.prompt_blocks import BLOCK_BYTES, PromptBlocks
from specclient.routing.replicas.replica_chooser import ReplicaChoice, ReplicaChooser

TOKENS = BLOCK_BYTES // 4


def prompt_of(*blocks: int) -> PromptBlocks:
    return PromptBlocks(blocks, len(blocks) * BLOCK_BYTES)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def made(
    count: int, decode_s: Callable[[float], float | None], clock: Clock, limit: int | None = 10_000
) -> ReplicaChooser:
    index = None if limit is None else PrefixIndex(limit)
    chooser = ReplicaChooser(decode_s, index=index, dice=random.Random(1), now=clock)
    for _ in range(count):
        chooser.add()
    return chooser


def serve(
    chooser: ReplicaChooser, clock: Clock, prompt: PromptBlocks, *, token_s: float = 0.001
) -> ReplicaChoice:
    """Serve one call on an idle fleet; a token that is not cached takes ``token_s`` of prefill."""
    choice = chooser.choose(prompt)
    chooser.began(choice)
    first_s = (len(prompt.hashes) - choice.cached) * TOKENS * token_s
    clock.now += first_s + 1
    chooser.ended(choice)
    usage = {"prompt_tokens": len(prompt.hashes) * TOKENS, "cached_tokens": choice.cached * TOKENS}
    chooser.learn(choice, **usage, answer_tokens=100, first_s=first_s)
    return choice


def taught(count: int, clock: Clock, step_s: float = 0.01) -> ReplicaChooser:
    """Return a chooser that knows the prefill of a token, 1 ms, and a step, by the requests in progress."""
    chooser = made(count, lambda load: step_s * load, clock)
    for at in range(40):
        serve(chooser, clock, prompt_of(*range(1000 * (at + 1), 1000 * (at + 1) + 2 + at % 5)))
    return chooser


def test_without_any_answer_the_less_loaded_of_two_is_taken() -> None:
    chooser = made(8, lambda _: None, Clock())
    loads: Counter[int] = Counter()
    for at in range(80):
        choice = chooser.choose(prompt_of(at))
        chooser.began(choice)
        loads[choice.replica] += 1
    assert max(loads.values()) - min(loads[each] for each in range(8)) <= 6, "of 10 calls on average"


def test_without_any_answer_a_cached_prefix_is_taken_where_it_is_not_busier() -> None:
    chooser = made(8, lambda _: None, Clock())
    first = chooser.choose(prompt_of(1, 2))
    chooser.began(first)
    again = chooser.choose(prompt_of(1, 2, 3))
    assert (again.replica, again.cached) == (first.replica, 2)
    for _ in range(6):
        chooser.began(first)
    assert chooser.choose(prompt_of(1, 2, 3)).replica != first.replica


def test_a_session_stays_where_its_prefix_is_cached_while_that_pays() -> None:
    clock = Clock()
    chooser = taught(4, clock)
    session = [*range(20)]
    first = serve(chooser, clock, prompt_of(*session))
    for turn in range(5):
        session.append(100 + turn)
        choice = serve(chooser, clock, prompt_of(*session))
        assert (choice.replica, choice.cached) == (first.replica, len(session) - 1)
        assert choice.prefill_s == pytest.approx(TOKENS * 0.001, rel=0.1)
    long = prompt_of(*range(5000, 5040))  # ten seconds of prefill, which somebody else waits for
    busy = ReplicaChoice(first.replica, 0, 0, 0.0, 0.0, 40 * TOKENS * 0.001, long)
    chooser.began(busy)
    moved = chooser.choose(prompt_of(*session))
    assert moved.replica != first.replica, "the wait is longer than the prefill elsewhere"
    clock.now += 9
    assert chooser.choose(prompt_of(*session)).replica == first.replica, "and it is over"


def test_new_prompts_go_where_the_oldest_blocks_are() -> None:
    clock = Clock()
    chooser = taught(4, clock)
    for at in range(20):
        serve(chooser, clock, prompt_of(90_000 + at))
    assert serve(chooser, clock, prompt_of(1)).replica not in {
        serve(chooser, clock, prompt_of(95_000 + at)).replica for at in range(3)
    }


def placed(chooser: ReplicaChooser, replica: int, prompt: PromptBlocks) -> None:
    """Let a replica hold a prompt that it has read."""
    choice = ReplicaChoice(replica, 0, 0, 0.0, 0.0, 0.0, prompt)
    chooser.began(choice)
    chooser.ended(choice)


def test_full_caches_are_spared() -> None:
    clock = Clock()
    chooser = taught(2, clock)
    for turn in (8, 9) * 20:  # so that a half of all tokens are used again
        serve(chooser, clock, prompt_of(*range(turn)))
    for number in (0, 1):
        chooser.note_cache(number, (40 if number else 400) * TOKENS)
        placed(chooser, number, prompt_of(*range(50_000, 50_060)))
    new = [serve(chooser, clock, prompt_of(*range(100 * at, 100 * at + 9))) for at in range(900, 908)]
    assert {choice.replica for choice in new} == {0}, "where nothing is evicted for them"


def test_loads_of_other_programs_count() -> None:
    clock = Clock()
    chooser = taught(2, clock)
    chooser.note_load(0, 9)
    chooser.note_load(1, 2)
    assert {chooser.choose(prompt_of(7_000_000 + at)).replica for at in range(5)} == {1}
    chooser.note_load(1, 12)
    assert {chooser.choose(prompt_of(7_000_000 + at)).replica for at in range(5)} == {0}
    clock.now += 20
    assert chooser.load(0) == 0, "until they are old"


def test_a_failing_replica_is_left_for_a_while() -> None:
    clock = Clock()
    chooser = taught(2, clock)
    prompt = prompt_of(1, 2, 3)
    first = serve(chooser, clock, prompt)
    chooser.failed(first.replica)
    chooser.failed(first.replica)
    other = ReplicaChoice(1 - first.replica, 0, 0, 0.0, 0.0, 0.0, prompt_of(77))
    chooser.began(other)
    assert chooser.choose(prompt).replica == other.replica != first.replica, "though it is busy"
    chooser.ended(other)
    clock.now += 6
    assert chooser.choose(prompt).cached == 0, "it may have been started anew, with an empty cache"
    chooser.failed(first.replica)
    clock.now += 6
    chooser.began(other)
    assert chooser.choose(prompt).replica == other.replica, "then for twice as long"
    chooser.ended(other)
    avoided = chooser.choose(prompt, avoided=(0, 1))
    assert avoided.replica in (0, 1), "if no other is left, all are considered"


def test_replicas_come_and_go() -> None:
    clock = Clock()
    chooser = taught(2, clock)
    prompt = prompt_of(1, 2, 3)
    choice = chooser.choose(prompt)
    chooser.began(choice)
    chooser.remove(choice.replica)
    added = chooser.add()
    assert {chooser.choose(prompt_of(at)).replica for at in range(20)} <= {1 - choice.replica, added}
    chooser.ended(choice)
    chooser.learn(choice, prompt_tokens=9, cached_tokens=0, answer_tokens=1, first_s=0.1)


def test_load_alone_decides_without_an_index() -> None:
    clock = Clock()
    chooser = made(3, lambda load: 0.01 * load, clock, limit=None)
    for _ in range(30):
        choice = chooser.choose(prompt_of(1, 2, 3))
        assert choice.cached == 0
        chooser.began(choice)
    assert max(map(chooser.load, range(3))) - min(map(chooser.load, range(3))) <= 3
    assert chooser.cached_tokens(prompt_of(1)) == 0.0


def test_a_prefix_is_found_among_a_thousand_replicas() -> None:
    clock = Clock()
    chooser = taught(1000, clock)
    sessions = [prompt_of(0, 1, *range(1000 * at, 1000 * at + 30)) for at in range(100, 140)]
    first = [serve(chooser, clock, session).replica for session in sessions]
    assert [chooser.choose(session).replica for session in sessions] == first


def test_a_replica_that_failed_thousands_of_calls_is_tried_again_as_soon_as_before() -> None:
    clock = Clock()
    chooser = made(2, lambda load: 0.01, clock)
    for _ in range(3000):
        chooser.failed(0)
    assert {chooser.choose(prompt_of(1)).replica for _ in range(50)} == {1}
    clock.now += 121
    assert {chooser.choose(prompt_of(1)).replica for _ in range(50)} == {0, 1}
