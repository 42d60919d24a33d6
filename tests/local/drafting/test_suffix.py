"""Suffix decoding: runs and their counts, what is drafted from earlier answers, and what is kept of them."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import pytest
from specclient_local.api.backend import LocalBackend
from specclient_local.drafting.drafter import DrafterChosenChain, GrownTree, chain
from specclient_local.drafting.suffix import SuffixDrafter
from specclient_local.drafting.suffix_automaton import LONGEST_MATCH, AnswerRuns, SuffixAutomaton
from tiny_models import load, sequence

from specclient.types.inference_methods import COMPLETION
from specclient.types.request import PerCallOptions, Request


def automaton(*texts):
    runs = SuffixAutomaton()
    for tokens in texts:
        runs.begin()
        for token in tokens:
            runs.append(token)
    return runs


def followers(texts, run):
    """Return how often each token follows a run, by direct comparison."""
    size = len(run)
    return Counter(
        text[i + size] for text in texts for i in range(len(text) - size) if list(text[i : i + size]) == run
    )


def test_matches_and_counts_are_those_of_a_direct_search():
    rng = random.Random(0)
    for _ in range(200):
        texts = [[rng.randrange(3) for _ in range(rng.randrange(1, 12))] for _ in range(3)]
        context = [rng.randrange(3) for _ in range(8)]
        runs = automaton(*texts)
        longest = next(n for n in range(8, -1, -1) if n == 0 or followers(texts, context[-n:]))
        found = runs.match(context)
        assert found.length == longest, (texts, context)
        if longest:
            counts = followers(texts, context[-longest:])
            shares = {token: share for share, token, _ in runs.followers(found.state)}
            assert shares == pytest.approx({t: n / counts.total() for t, n in counts.items()})


def test_the_automaton_has_at_most_two_states_a_token():
    rng = random.Random(1)
    runs = automaton([rng.randrange(50) for _ in range(20_000)], [7] * 20_000)
    assert len(runs._length) <= 2 * runs.size
    assert runs.match([7] * 100).length == LONGEST_MATCH


def drafting(tokens, *answers, **params):
    drafter = SuffixDrafter()
    for answer in answers:
        drafter.keep("", answer)
    request = sequence(tokens, method="suffix", **params)
    while not drafter.begin(request):
        pass
    return request, drafter


def proposed(request, drafter, shape):
    return drafter.propose([request], [shape])[0]


def test_the_most_frequent_continuation_of_earlier_answers_is_drafted():
    request, drafter = drafting([8, 1, 2], [1, 2, 3, 4, 5], [1, 2, 9], [0, 1, 2, 3, 4, 6])
    assert proposed(request, drafter, chain(2)).tokens == [3, 4]
    request.tokens += [3, 4, 6]
    assert proposed(request, drafter, chain(2)).tokens == []


def test_the_longest_match_wins_wherever_it_is():
    request, drafter = drafting([1, 2, 3, 7, 5, 2, 3], [1, 2, 3, 9])
    assert proposed(request, drafter, chain(1)).tokens == [7]
    request.tokens[-3] = 1
    request, drafter = drafting([2, 3, 7, 1, 2, 3], [1, 2, 3, 9])
    assert proposed(request, drafter, chain(1)).tokens == [9]


def test_a_tree_has_the_most_frequent_paths():
    request, drafter = drafting([1, 2], *([[1, 2, 3, 4]] * 3), *([[1, 2, 5, 6]] * 2), [1, 2, 7])
    tree = proposed(request, drafter, GrownTree(2, 4))
    assert sorted(map(tuple, tree.paths())) == [(), (3,), (3, 4), (5,), (5, 6)]


def test_a_chain_ends_where_its_tokens_are_rare():
    answers = [[1, 2, 3, 10 + i] for i in range(9)]
    request, drafter = drafting([1, 2], *answers)
    shape = DrafterChosenChain(15, lambda alpha: 15)
    assert proposed(request, drafter, shape).tokens == [3]


def test_an_answer_is_kept_for_later_requests_and_prompts_are_not():
    request, drafter = drafting([1, 2, 3])
    request.tokens += [4, 5, 6]
    drafter.end(request)
    later = sequence([9, 4], method="suffix")
    drafter.begin(later)
    assert proposed(later, drafter, chain(3)).tokens == [5, 6]
    later.tokens[-1] = 2
    assert not len(proposed(later, drafter, chain(3)))


def test_answers_to_other_owners_are_not_drafted():
    request, drafter = drafting([9, 1, 2], [1, 2, 3, 4])
    assert proposed(request, drafter, chain(2)).tokens == [3, 4]
    request.owner = "other"
    assert not len(proposed(request, drafter, chain(2)))
    drafter.keep("other", [1, 2, 5])
    assert proposed(request, drafter, chain(2)).tokens == [5]


def test_the_answers_of_all_owners_have_one_limit():
    drafter, kept = SuffixDrafter(stored=16), []
    for owner in ("a", "b", "a", "c", "d"):
        drafter.keep(owner, range(6))
        kept.append(list(drafter.answers))
    assert kept == [["a"], ["a", "b"], ["a"], ["c"], ["c", "d"]]


def test_figures_of_an_owner_do_not_tell_what_others_asked_and_got(checkpoint):
    """A key at a server is an owner; its counts of cached and drafted tokens would reveal others' texts."""
    table = {"path": str(checkpoint(eos_token_id=None)), "threads": 1, "method": "suffix"}
    backend = LocalBackend({"models": {"m": table}})

    def figures(owner):
        params = {"prompt": "return fibonacci", "max_tokens": 24, "temperature": 0}
        request = Request(COMPLETION, "local/m", params, options=PerCallOptions(owner=owner))
        answer, telemetry = anyio.run(backend.complete, request, "m")
        details, counts = answer.usage.prompt_tokens_details, telemetry.speculation
        return details and details.cached_tokens, counts.drafted, counts.accepted

    first, again, other = figures("a"), figures("a"), figures("b")
    backend._close()
    assert first == other
    assert again[0]
    assert again[2] > first[2]


def test_a_seeded_sampled_request_does_not_read_other_answers():
    request, drafter = drafting([9, 1, 2], [1, 2, 3, 4], seed=1, temperature=1.0)
    assert not len(proposed(request, drafter, chain(3)))


def test_stored_answers_are_bounded_and_the_latest_remain():
    store = AnswerRuns(limit=100)
    for i in range(50):
        store.add([i, 1000 + i, 2000 + i] * 3)
        assert store.newer.size + store.older.size <= 100
    latest = [each for each in (store.newer, store.older) if each.match([49]).length]
    assert latest
    store.add(list(range(5000, 5300)))
    assert store.newer.match([5298]).length == 1
    assert not store.newer.match([5000]).length


def test_repeated_traffic_is_answered_in_fewer_passes(checkpoint):
    """The second request's answer is the first one's, of which its prompt has nothing."""
    folder = checkpoint(eos_token_id=None)
    with load(folder, method="suffix") as engine:
        plain = engine.generate([5, 6, 7], max_tokens=48, method="plain")
        first, again = (engine.generate([5, 6, 7], max_tokens=48, draft_length=8) for _ in range(2))
    assert first.token_ids == again.token_ids == plain.token_ids
    assert again.speculation.method == "suffix"
    assert again.speculation.steps < first.speculation.steps
    assert again.speculation.steps <= 12
