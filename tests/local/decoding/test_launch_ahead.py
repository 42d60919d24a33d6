"""Rounds that are launched before the results of the rounds before are read: the same answers, in any batch.

On a CPU a launch computes the round at once, by the same code, so a request is always one round further on
the device than the host knows.
"""

from __future__ import annotations

import itertools

import pytest
import tiny_heads
import torch
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.decoding.launch_ahead import LaunchAheadSpeculator
from specclient_local.decoding.round_entry import RoundResult
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.cuda_graphs.device_rounds import DeviceRounds
from specclient_local.request.sequence import RandomStream
from tiny_models import letter_shape, load, sequence, write_checkpoint

from specclient.errors import EngineError

PROMPT = [3, 1, 4, 1, 5]
VOCAB, SLOTS, CONTEXT = 8, 6, 96
SHAPE = letter_shape(VOCAB)
HEAD = {"hidden": 16, "vocab": VOCAB}
COSTS = RoundCosts(0.05, tuple(1.0 + 0.05 * k for k in range(9)))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a target of eight letters and its drafters: a draft model and both kinds of heads."""
    folder = tmp_path_factory.mktemp("ahead")
    checkpoint = write_checkpoint(folder / "target", seed=5, spread=0.2, num_hidden_layers=4, **SHAPE)
    small = write_checkpoint(folder / "draft", seed=6, spread=0.2, num_hidden_layers=1, **SHAPE)
    heads = [
        tiny_heads.eagle3(folder / "eagle", spread=0.25, draft=5, heads=2, kv=1, **HEAD),
        tiny_heads.medusa(folder / "medusa", spread=0.2, **HEAD),
    ]
    placed = ModelPlacement(graphs="on", device="cpu")
    layers = read_config(checkpoint).layers
    target = load_model(checkpoint, placed, slots=SLOTS, context=CONTEXT, taps=tuple(range(layers + 1)))
    draft = load_model(small, placed, slots=SLOTS, context=CONTEXT, exact=False)
    drafters = dict(drafter_for_heads(target, own) for own in heads)
    return target, {"draft": DraftModel(draft, VOCAB), **drafters}


@pytest.fixture(scope="module")
def waiting(models):
    return DeviceSpeculator(*models, sharing="none")


@pytest.fixture(scope="module")
def ahead(models):
    return LaunchAheadSpeculator(*models, sharing="none")


def prefilled(speculator, requests):
    for request in requests:
        while not speculator.prefill(request):
            pass
    return requests


def step(run, requests):
    """Run a round; return the requests that go on, and end the others."""
    for request, outcome in zip(requests, run(requests), strict=True):
        if isinstance(outcome, Exception):
            raise outcome
        for token in () if outcome is None else outcome.tokens:
            if request.finish_reason is None:
                request.take(token)
    for request in requests:
        if request.finish_reason is not None:
            run.__self__.end(request)
    return [request for request in requests if request.finish_reason is None]


def finish(run, requests):
    prefilled(run.__self__, requests)
    going = list(requests)
    while going:
        going = step(run, going)
    return [(request.new_tokens, request.counts) for request in requests]


@pytest.fixture
def launches(monkeypatch):
    """Return a list of the launches, those that continue a round, and the reads, in order."""
    seen: list[str] = []
    launch, proceed, launched = DeviceRounds.launch, DeviceRounds.proceed, DeviceRounds._launched

    def kept(name, call):
        def wrapper(self, *given, **own):
            result = call(self, *given, **own)
            if result is not None:
                seen.append(name)
            return result

        return wrapper

    def noted(self, *given):
        round_, number = launched(self, *given), len(reads)
        reads.append(number)
        read = round_.read
        object.__setattr__(round_, "read", lambda: seen.append(f"read {number}") or read())
        return round_

    reads: list[int] = []
    monkeypatch.setattr(DeviceRounds, "launch", kept("launch", launch))
    monkeypatch.setattr(DeviceRounds, "proceed", kept("proceed", proceed))
    monkeypatch.setattr(DeviceRounds, "_launched", noted)
    return seen


SETTINGS = [
    {},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 1.0, "seed": 5, "verification": "token"},
    {"temperature": 0.8, "top_p": 0.9, "top_k": 6, "seed": 6},
]


@pytest.mark.parametrize("method", ["plain", "draft", "eagle", "medusa"])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "greedy")
def test_answers_and_counts_are_those_of_rounds_that_wait(waiting, ahead, launches, method, settings):
    for length in (1, 4):
        options = {**settings, "method": method, "draft_length": length, "max_tokens": 40}
        expected = finish(waiting.round, [sequence(PROMPT, slot=3, **options)])
        launches.clear()
        assert finish(ahead.round_ahead, [sequence(PROMPT, slot=3, **options)]) == expected
        assert launches.count("proceed") > 0.4 * expected[0][1].steps


def test_a_round_is_launched_before_the_last_one_is_read(ahead, launches):
    finish(ahead.round_ahead, [sequence(PROMPT, method="plain", max_tokens=5)])
    rounds = ["launch", "proceed", "read 0", "proceed", "read 1", "proceed", "read 2", "proceed", "read 3"]
    assert launches == [*rounds, "read 4"], "the last round is certain to end the request"


def requests_of_a_batch():
    """Return requests of different lengths, whose random numbers are known, but which no seed binds."""
    settings = [
        (5, {"draft_length": 3, "max_tokens": 30}),
        (0, {"draft_length": 3, "max_tokens": 9, "temperature": 0.9}),
        (2, {"method": "plain", "max_tokens": 21, "temperature": 0.7, "top_p": 0.9}),
        (3, {"draft_length": 2, "max_tokens": 40, "temperature": 1.0}),
    ]
    requests = []
    for slot, own in settings:
        requests.append(sequence(PROMPT, slot=slot, **own))
        requests[-1].random = RandomStream(slot)
    return requests


def test_requests_that_end_or_join_do_not_disturb_others(waiting, ahead, launches):
    expected = finish(waiting.round, requests_of_a_batch())
    requests, done = prefilled(ahead, requests_of_a_batch()), 0
    going = requests[:2]
    launches.clear()
    while going:
        going = step(ahead.round_ahead, going)
        done += 1
        if done in (3, 4):
            going.append(requests[done - 1])
    assert [(request.new_tokens, request.counts) for request in requests] == expected
    assert launches.count("proceed") > 2 * launches.count("launch")


def test_a_request_that_joins_is_in_the_round_that_is_launched_next(ahead):
    first, second = prefilled(
        ahead, [sequence(PROMPT, slot=slot, method="plain", max_tokens=20) for slot in (0, 1)]
    )
    for token in ahead.round_ahead([first])[0].tokens:
        first.take(token)
    for joined in (False, True):
        won = ahead.round_ahead([first, second])
        assert [isinstance(each, RoundResult) for each in won] == [True, joined]
        for request, outcome in zip((first, second), won, strict=True):
            for token in outcome.tokens if outcome else ():
                request.take(token)
    assert ahead.launched
    for request in (first, second):
        ahead.end(request)
    assert not ahead.launched


def test_tokens_after_a_stop_are_neither_kept_nor_counted(waiting, ahead, launches):
    own = {"method": "draft", "draft_length": 3, "temperature": 1.0}
    options = {**own, "max_tokens": 60, "seed": 3}
    (answer, _), *_ = finish(waiting.round, [sequence(PROMPT, **options)])
    stop = next(token for i, token in enumerate(answer) if i > 8 and token not in answer[:i])
    expected = finish(waiting.round, [sequence(PROMPT, slot=1, eos=(stop,), **options)])
    request = sequence(PROMPT, slot=1, eos=(stop,), **options)
    launches.clear()
    assert finish(ahead.round_ahead, [request]) == expected
    assert request.new_tokens == answer[: len(request.new_tokens)]
    assert request.new_tokens[-1] == stop
    launched = launches.count("launch") + launches.count("proceed")
    assert launched == request.counts.steps + 1, "the round past the stop was launched, and is not counted"
    assert not ahead.launched
    assert finish(ahead.round_ahead, [sequence(PROMPT, slot=1, **options)])[0][0] == answer


def test_a_slot_that_is_given_to_another_request_is_not_written_by_the_round_that_runs(waiting, ahead):
    long = {"method": "draft", "draft_length": 2, "max_tokens": 60}
    expected = finish(waiting.round, [sequence(PROMPT, slot=0, **long), sequence([2, 2], slot=1, **long)])
    stays, leaves = prefilled(ahead, [sequence(PROMPT, slot=0, **long), sequence([6, 5, 4], slot=1, **long)])
    step(ahead.round_ahead, [stays, leaves])
    ahead.end(leaves)  # cancelled
    (joins,) = prefilled(ahead, [sequence([2, 2], slot=1, **long)])
    going = [stays, joins]
    while going:
        going = step(ahead.round_ahead, going)
    assert [(stays.new_tokens, stays.counts), (joins.new_tokens, joins.counts)] == expected


def test_a_context_can_be_filled_completely(waiting, ahead):
    tokens = [(3 * i) % VOCAB for i in range(CONTEXT - 20)]
    for method in ("plain", "draft", "eagle"):
        own = {"method": method, "draft_length": 8, "max_tokens": 20}
        expected = finish(waiting.round, [sequence(tokens, slot=2, **own)])
        assert finish(ahead.round_ahead, [sequence(tokens, slot=2, **own)]) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "ngram"},
        {"method": "suffix"},
        {"method": "prediction", "predicted": [5, 6] * 9},
        {"draft_length": "step"},
        {"logit_bias": {4: 1.0}},
        {"logprobs": 1},
        {"method": "eagle", "draft_tree": [2, 2]},
    ],
    ids=lambda s: "-".join(s),
)
def test_rounds_wait_where_the_host_reads_tokens(waiting, ahead, launches, settings):
    own = {"max_tokens": 12, **settings}
    expected = finish(waiting.round, [sequence(PROMPT * 2, slot=1, **own)])
    assert finish(ahead.round_ahead, [sequence(PROMPT * 2, slot=1, **own)]) == expected
    assert "proceed" not in launches
    assert not ahead.launched


def test_a_length_that_changes_waits_and_is_kept(models, launches):
    target, drafters = models
    speculator = LaunchAheadSpeculator(target, drafters, {"draft": COSTS}, sharing="none")
    lengths, common = iter((3, 3, 2, 2, 4, 0, 0)), speculator._lengths._by_method["draft"]
    asked: list[int] = []

    def chosen(*given):
        asked.append(next(lengths, 0))
        return asked[-1]

    common.next = chosen
    request = sequence(PROMPT, method="draft", max_tokens=50)
    (counts,) = (counts for _, counts in finish(speculator.round_ahead, [request]))
    assert asked[:7] == [3, 3, 2, 2, 4, 0, 0]
    assert len(asked) == counts.steps, "each round has one choice"
    assert counts.drafted == 3 + 3 + 2 + 2 + 4
    assert launches[:9] == [
        *("launch", "proceed", "read 0", "read 1", "launch", "proceed", "read 2", "read 3", "launch")
    ]


def test_adapting_lengths_give_the_greedy_answer(waiting, models):
    speculator = LaunchAheadSpeculator(*models, {"draft": COSTS, "eagle": COSTS}, sharing="none")
    expected = finish(
        waiting.round, [sequence(PROMPT, slot=s, method="plain", max_tokens=70) for s in (0, 1)]
    )
    requests = [sequence(PROMPT, slot=s, method="draft", max_tokens=70) for s in (0, 1)]
    found = finish(speculator.round_ahead, requests)
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    assert sum(counts.drafted for _, counts in found) > 20


def test_numbers_that_are_not_finite_fail_only_their_own_request(waiting, models):
    speculator = LaunchAheadSpeculator(*models, sharing="none")
    target, own = models[0], {"method": "plain", "max_tokens": 12}
    expected = finish(waiting.round, [sequence(PROMPT, slot=0, **own)])
    good, bad = prefilled(speculator, [sequence(PROMPT, slot=slot, **own) for slot in (0, 1)])
    step(speculator.round_ahead, [good, bad])
    with torch.inference_mode():
        target.cache.rows[:, 1, :, 0] = torch.nan
    step(speculator.round_ahead, [good, bad])  # was launched before
    behind = target.cache.rows[:, 1, :, len(bad.tokens) : CONTEXT]
    before = behind.clone()
    won, error = speculator.round_ahead([good, bad])
    assert isinstance(error, EngineError)
    assert "not finite" in str(error)
    assert behind.equal(before), "the next round did not go on with it"
    for token in won.tokens:
        good.take(token)
    speculator.end(bad, broken=True)
    going = [good]
    while going:
        going = step(speculator.round_ahead, going)
    assert [(good.new_tokens, good.counts)] == expected


def test_tokens_that_are_not_appended_are_an_error(ahead):
    (request,) = prefilled(ahead, [sequence(PROMPT, method="plain", max_tokens=9)])
    ahead.round_ahead([request])
    (outcome,) = ahead.round_ahead([request])
    ahead.end(request)
    assert isinstance(outcome, EngineError)
    assert "append all tokens" in str(outcome)


def test_a_round_that_waits_repeats_the_one_that_was_launched(waiting, ahead):
    own = {"method": "draft", "draft_length": 2, "max_tokens": 20, "temperature": 1.0, "seed": 3}
    expected = finish(waiting.round, [sequence(PROMPT, **own)])
    (request,) = prefilled(ahead, [sequence(PROMPT, **own)])
    going, turn = [request], 0
    while going:
        going, turn = step(ahead.round if turn % 3 == 2 else ahead.round_ahead, going), turn + 1
    assert [(request.new_tokens, request.counts)] == expected


ASKED = [
    ("def f(x):", {"draft_length": 3}),
    ("def f(x):", {"temperature": 1.0, "seed": 1, "draft_length": 3}),
    ("import os", {"draft_length": 6, "temperature": 0.7, "seed": 2, "top_p": 0.8}),
    ("x", {"method": "plain", "max_tokens": 7}),
    ("x", {"logprobs": 2, "draft_length": 2}),
    ("y", {"overflow": "slide", "max_tokens": 100, "draft_length": 5}),
    ("def f(x):", {"draft_length": 3, "stop": ["\u0000"], "max_tokens": 33}),
    ("z", {"method": "plain", "max_tokens": 1}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("engine") / "target", spread=0.15)


def answers(engine, asked):
    events = [[] for _ in asked]
    for (prompt, settings), sink in zip(asked, events, strict=True):
        engine.add(prompt, sink.append, **{"max_tokens": 20, **settings})
    while engine.step():
        pass
    for pieces in events:
        whole = pieces[-1].generation
        assert [token for piece in pieces for token in piece.token_ids] == whole.token_ids
        assert whole.timings.decode_s > 0
    return [(own[-1].generation.token_ids, own[-1].generation.speculation) for own in events]


def test_an_engine_gives_the_same_answers_and_figures(folder, launches):
    """Requests arrive while others run, share slots and end at different times."""
    with load(folder, folder, slots=3, context=90, graphs="on") as engine:
        expected = answers(engine, ASKED)
    assert "proceed" not in launches
    with load(folder, folder, slots=3, context=90, graphs="on", launch_ahead=True) as engine:
        assert answers(engine, ASKED) == expected
        assert launches.count("proceed") > 5, "some take the general path, or have a round of their own"
        assert [answers(engine, [own])[0] for own in ASKED] == expected
        assert launches.count("proceed") > 40
        text = engine.generate("def f(x):", max_tokens=20, draft_length=3)  # by the worker's thread
        assert text.token_ids == expected[0][0]


def test_a_cancelled_request_leaves_the_others_alone(folder):
    asked = [("def f(x):", {"draft_length": 3}), ("import os", {"method": "plain"})]
    with load(folder, folder, slots=2, context=90, graphs="on", launch_ahead=True) as engine:
        alone = answers(engine, asked[:1])
        sink, other = [], []
        engine.add("def f(x):", sink.append, max_tokens=20, draft_length=3)
        number = engine.add("import os", other.append, max_tokens=60, method="plain")
        for _ in range(4):
            engine.step()
        engine.cancel(number)
        count = len(other)
        while engine.step():
            pass
        assert len(other) == count
        assert sink[-1].generation.token_ids == alone[0][0]


def test_drafts_that_end_at_a_limit_are_not_taken_for_broken_ones(ahead, monkeypatch):
    def never(*given):
        raise AssertionError("numbers of the draft were taken for not finite")

    monkeypatch.setattr(DraftModel, "mark_not_finite", never)
    request = sequence(PROMPT, method="draft", draft_length=4, max_tokens=12)
    finish(ahead.round_ahead, [request])
    assert len(request.new_tokens) == 12


def test_the_time_of_a_round_that_runs_between_steps_counts(folder):
    """By a clock that advances with each look at it."""
    busy = {}
    for launch_ahead in (False, True):
        with load(folder, slots=1, context=90, graphs="on", launch_ahead=launch_ahead) as engine:
            ticks = itertools.count()
            engine._worker.batch._clock = lambda ticks=ticks: float(next(ticks))
            answers(engine, [("x", {"method": "plain"})])
            busy[launch_ahead] = engine.busy_s
    assert busy[True] > 1.5 * busy[False]
