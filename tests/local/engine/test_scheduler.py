"""Slot assignment in order of arrival, a request's random stream, and its speculation counts."""

from __future__ import annotations

import numpy as np
import pytest
from p_values import chi_square_p
from specclient_local.engine.scheduler import Scheduler
from specclient_local.request.sequence import RandomStream, SpeculationCounts
from tiny_models import sequence


def first(sequence, free):
    return free[0]


def test_slots_are_assigned_in_order_of_arrival():
    scheduler = Scheduler(2)
    requests = [sequence([1], slot=None) for _ in range(4)]
    for request in requests:
        scheduler.add(request)
    assert scheduler.admit(first) == requests[:2]
    assert sorted(request.slot for request in requests[:2]) == [0, 1]
    assert scheduler.admit(first) == []
    freed = requests[1].slot
    scheduler.release(requests[1])
    scheduler.release(requests[2])
    assert scheduler.admit(first) == [requests[3]]
    assert requests[3].slot == freed
    for request in (requests[0], requests[3]):
        scheduler.release(request)
    assert not scheduler.running
    assert not scheduler.waiting


def test_a_sequence_without_memory_waits_and_nobody_overtakes_it():
    scheduler, room = Scheduler(3), {"slots": 1}
    requests = [sequence([1], slot=None) for _ in range(3)]
    for request in requests:
        scheduler.add(request)

    def place(request, free):
        room["slots"] -= 1
        return free[0] if room["slots"] >= 0 else None

    assert scheduler.admit(place) == requests[:1]
    assert [*scheduler.waiting] == requests[1:]
    assert requests[1].slot is None
    scheduler.begin(requests[0])
    scheduler.place_again(requests[0])
    assert [*scheduler.waiting] == requests, "it is placed again before those that wait"
    room["slots"] = 3
    assert scheduler.admit(place) == requests


def test_the_cache_slot_of_a_sequence_without_a_slot_raises():
    with pytest.raises(RuntimeError, match="holds no cache slot"):
        _ = sequence([1], slot=None).cache_slot


def test_a_sequence_ends_at_an_end_token_or_its_limit():
    request = sequence([1, 2], limit=2, eos=[9])
    request.take(5)
    assert request.finish_reason is None
    request.take(6)
    assert request.finish_reason == "length"
    assert request.new_tokens == [5, 6]
    ended = sequence([1], limit=5, eos=[9])
    ended.take(9)
    assert (ended.finish_reason, ended.new_tokens) == ("stop", [9])


def test_a_random_stream_depends_only_on_its_seed():
    assert RandomStream(3).uniform() == RandomStream(3).uniform()
    one, other = RandomStream(3), RandomStream(3)
    RandomStream(4).uniform()
    assert [one.uniform() for _ in range(200)] == [other.uniform() for _ in range(200)]
    assert RandomStream(None).uniform() != RandomStream(None).uniform()


def test_distinct_64_bit_seeds_give_distinct_streams():
    seeds = [1, 1 + 2**32, 1 + 2**63, -1, 2**64 - 1, -(2**63), 0]
    assert len({RandomStream(seed).uniform() for seed in seeds}) == len(seeds)


def test_draws_follow_the_distribution_and_never_have_probability_zero():
    p = np.array([0.0, 0.2, 0.0, 0.5, 0.3, 0.0])
    random_stream = RandomStream(0)
    counts = np.bincount([random_stream.draw(p) for _ in range(5000)], minlength=6)
    assert counts[[0, 2, 5]].sum() == 0
    assert chi_square_p(counts, p) > 0.001
    accepted = sum(random_stream.accept(0.25) for _ in range(5000))
    assert chi_square_p([accepted, 5000 - accepted], [0.25, 0.75]) > 0.001


@pytest.mark.parametrize("number", [0.0, 1.0 - 2**-53])
def test_uniform_numbers_at_both_ends_of_the_interval_draw_possible_tokens(number):
    random_stream = RandomStream(0)
    random_stream._buffer = [number]
    assert random_stream.draw(np.array([0.0, 0.4, 0.6, 0.0])) == (1 if number == 0.0 else 2)


def test_certain_outcomes_consume_no_random_numbers():
    random_stream, fresh = RandomStream(1), RandomStream(1)
    assert random_stream.accept(1.0)
    assert not random_stream.accept(0.0)
    assert random_stream.draw(7) == 7
    assert random_stream.uniform() == fresh.uniform()


def test_speculation_counts_give_rates_and_lengths():
    tally = SpeculationCounts()
    for depth, drafted, accepted in [(3, 3, 3), (3, 3, 1), (2, 2, 0), (0, 0, 0)]:
        tally.count(depth, drafted, accepted)
    figures = tally.speculation("draft")
    assert (figures.drafted, figures.accepted, figures.steps) == (8, 4, 4)
    assert figures.acceptance_rate == 0.5
    assert figures.mean_accepted_length == 2.0
    assert figures.per_position == (2 / 3, 1 / 3, 1 / 2)
    assert (figures.method, figures.source) == ("draft", "engine")


def test_plain_decoding_has_no_acceptance_figures():
    tally = SpeculationCounts()
    tally.count(0, 0, 0)
    figures = tally.speculation("plain")
    assert (figures.drafted, figures.accepted, figures.steps) == (0, 0, 1)
    assert figures.acceptance_rate is None
    assert figures.mean_accepted_length is None
    assert figures.per_position is None
