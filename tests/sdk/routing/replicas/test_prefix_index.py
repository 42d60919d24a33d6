"""The index of prompts' blocks finds what caches hold that are searched one by one."""

from __future__ import annotations

import random
from collections import OrderedDict

from specclient.routing.replicas.prefix_index import PrefixIndex


class Lru:
    """The blocks of one replica, of which the least recently used are evicted."""

    def __init__(self, most: int) -> None:
        self.blocks: OrderedDict[int, None] = OrderedDict()
        self.most = most

    def note(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        while len(self.blocks) > self.most:
            self.blocks.popitem(last=False)

    def held(self, blocks: list[int]) -> int:
        return next((at for at, block in enumerate(blocks) if block not in self.blocks), len(blocks))


def prompts(dice: random.Random, count: int) -> list[list[int]]:
    """Return prompts of a tree: each goes on from a part of an earlier one."""
    found: list[list[int]] = [[0]]
    for _ in range(count):
        before = dice.choice(found[-20:])
        kept = before[: dice.randrange(len(before) + 1)]
        found.append([*kept, *(dice.getrandbits(40) for _ in range(dice.randrange(1, 6)))])
    return found


def test_it_holds_what_replicas_hold() -> None:
    dice = random.Random(3)
    index, caches = PrefixIndex(10**6), {number: Lru(20 + 8 * number) for number in range(4)}
    for number, cache in caches.items():
        index.resize(number, cache.most)
    for blocks in prompts(dice, 600):
        held = {number: cache.held(blocks) for number, cache in caches.items()}
        assert {number: index.held(number, blocks) for number in caches} == held
        assert index.longest(blocks, 9) == {number: depth for number, depth in held.items() if depth}
        [deepest] = index.longest(blocks, 1).values() or [0]
        assert deepest == max(held.values())
        number = dice.randrange(4)
        index.note(number, blocks)
        caches[number].note(blocks)
    assert len(index) == sum(len(cache.blocks) for cache in caches.values())
    index.drop(3)
    assert 3 not in index.longest(blocks, 9)
    for number in range(3):
        index.drop(number)
    assert (len(index), index._holders) == (0, {}), "nothing of a replica stays"


def test_its_size_is_bounded() -> None:
    index, dice = PrefixIndex(1000), random.Random(5)
    for at in range(300):
        index.note(at % 7, [dice.getrandbits(60) for _ in range(40)])
    assert len(index) <= 1000
    assert len(index._holders) <= 1000


def learned_length(index: PrefixIndex, most: int, dice: random.Random) -> float:
    """Send prompts of some users to one replica with ``most`` blocks; return the length that is learned."""
    cache, users = Lru(most), [[dice.getrandbits(60)] for _ in range(40)]
    for _ in range(1500):
        blocks = dice.choice(users)
        blocks += [dice.getrandbits(60) for _ in range(3)]
        if len(blocks) > 60:
            del blocks[1:]
        expected, actual = index.held(0, blocks), cache.held(blocks)
        age = index.age(0, blocks[expected - 1]) if expected else 0
        index.note(0, blocks)
        cache.note(blocks)
        index.learn(0, expected, actual, age)
    return index._replicas[0].length


def test_the_length_of_a_cache_is_learned_from_cached_tokens() -> None:
    assert 200 <= learned_length(PrefixIndex(10**6), 300, random.Random(1)) <= 450
    grown = PrefixIndex(10**6)
    grown.note(0, [1])
    grown._replicas[0].length = 50.0
    assert 200 <= learned_length(grown, 300, random.Random(1)) <= 450, "also from below"
    reported = PrefixIndex(10**6)
    reported.resize(0, 300)
    assert learned_length(reported, 100, random.Random(1)) == 300, "a server's own word is taken"
