"""Greedy rounds in one native call: answers, figures and caches equal those of the general path."""

from __future__ import annotations

import itertools

import pytest
import torch
from specclient_local.model.native import build as build
from specclient_local.model.native import greedy_rounds as rounds
from specclient_local.model.native.greedy_rounds import NativeRounds
from tiny_models import load, noisy_copy, write_checkpoint

pytestmark = pytest.mark.skipif(build.library() is None, reason="there is no C compiler")

SHAPES = {
    "grouped": {},
    "no width is whole vectors": {"hidden_size": 36, "intermediate_size": 53, "head_dim": 6},
    "norms of heads": {"kind": "qwen3", "head_dim": 20},
}
ASKED = [
    {"method": "plain"},
    *({"method": "draft", "draft_length": length} for length in (1, 2, 5, 8, None, "step")),
    {"method": "draft", "draft_tree": (2, 1), "draft_length": 2},
    *(
        {"method": method, "draft_length": length}
        for method in ("ngram", "layer_skip")
        for length in (3, None)
    ),
    {"method": "prediction", "prediction": [9, 9, 4, 5]},
    {"method": "union", "draft_length": 3},
]
PROMPTS = [[5, 6, 7, 8, 5, 6], [9] * 70, [2, 3]]


@pytest.fixture(params=SHAPES)
def engine(request, tmp_path):
    shape = {"eos_token_id": None, "num_hidden_layers": 3, **SHAPES[request.param]}
    target = write_checkpoint(tmp_path / "t", seed=1, spread=0.2, **shape)
    with load(target, noisy_copy(target, tmp_path / "d", 0.03), layer_skip=2, slots=2) as engine:
        yield engine


@pytest.fixture
def calls(monkeypatch):
    """Return a list that gets each single-request native round's source of drafts: model, given or none."""
    made, drafted, verified = [], NativeRounds._run_round, NativeRounds.verify_all

    def run_round(self, sequences, steps):
        if len(sequences) == 1:
            made.append("model")
        return drafted(self, sequences, steps)

    def alone(self, sequences, guesses):
        if len(sequences) == 1:
            made.append("given" if guesses[0] else "none")
        return verified(self, sequences, guesses)

    monkeypatch.setattr(NativeRounds, "_run_round", run_round)
    monkeypatch.setattr(NativeRounds, "verify_all", alone)
    return made


def time_independent_result(engine, prompt, **requested):
    """Return those parts of an answer that do not depend on measured times."""
    answer = engine.generate(prompt, max_tokens=40, **requested)
    figures = answer.speculation
    if requested.get("draft_length", 0) is None:  # the adaptive draft length depends on measured times
        figures = None
    return answer.token_ids, answer.text, answer.finish_reason, figures


def test_native_rounds_give_the_answers_and_figures_of_the_general_path(engine, calls):
    speculator, own = engine.speculator, engine.speculator.rounds
    for prompt, requested in itertools.product(PROMPTS, ASKED):
        speculator.rounds = None
        want = time_independent_result(engine, prompt, **requested)
        made = len(calls)
        speculator.rounds = own
        assert time_independent_result(engine, prompt, **requested) == want, requested
        trees = "draft_tree" in requested or requested["method"] == "union"
        assert trees or len(calls) > made, f"{requested} did not use a native round"
    assert set(calls) == {"model", "given", "none"}


@pytest.mark.parametrize("shared", ["both", "the target's alone", "the draft's alone"])
def test_threads_share_passes_of_a_round(pair, monkeypatch, shared):
    monkeypatch.setattr(rounds, "MIN_PARALLEL_PRODUCTS", 10**12 if shared == "the draft's alone" else 0)
    monkeypatch.setattr(
        rounds, "MIN_PARALLEL_PRODUCTS_AWAKE", 10**12 if shared == "the target's alone" else 0
    )
    with load(*pair, threads=2) as engine:
        for prompt in PROMPTS[:2]:
            want = time_independent_result(engine, prompt, method="plain")[0]
            for length in (1, 4, 8):
                assert time_independent_result(engine, prompt, method="draft", draft_length=length)[0] == want
        lanes = engine.speculator.rounds._target, *engine.speculator.rounds._drafts.values()
        assert [lane._pass_struct.threads for lane in lanes] == {
            "both": [2, 2], "the target's alone": [2, 1], "the draft's alone": [1, 2]
        }[shared]  # fmt: skip


def test_the_comparison_detects_a_wrongly_accepted_token(engine, monkeypatch):
    want = time_independent_result(engine, PROMPTS[0], method="plain")[0]
    original = NativeRounds._run_round

    def accept_all(self, sequences, steps):
        return [found._replace(accepted=len(found.drafted)) for found in original(self, sequences, steps)]

    monkeypatch.setattr(NativeRounds, "_run_round", accept_all)
    assert time_independent_result(engine, PROMPTS[0], method="draft", draft_length=4)[0] != want


def test_caches_equal_a_fresh_prefill(engine, calls):
    target, draft = engine.speculator.target, engine.speculator.drafters["draft"].runner
    pieces = []
    engine.add(PROMPTS[0], pieces.append, max_tokens=40, method="draft", draft_length=3)
    while sum(len(piece.token_ids) for piece in pieces) < 20:
        engine.step()
    tokens = [*PROMPTS[0], *(token for piece in pieces for token in piece.token_ids)]
    assert calls.count("model") > 5
    for runner in (target, draft):
        slot = max((0, 1), key=runner.length)
        length = min(runner.length(slot), len(tokens) - 1)
        assert length > len(PROMPTS[0])
        rows = runner.cache.rows[:, slot, :, :length].clone()
        runner.truncate(1 - slot, 0)
        runner.prefill(1 - slot, tokens[:length])
        torch.testing.assert_close(rows, runner.cache.rows[:, 1 - slot, :, :length], rtol=0.0, atol=1e-5)


def test_non_finite_draft_logits_only_shorten_the_draft(engine, calls):
    want = time_independent_result(engine, PROMPTS[0], method="plain")[0]
    draft = engine.speculator.drafters["draft"].runner
    with torch.inference_mode():
        draft.decoder.embedding[want[6]] = torch.nan
    answer = engine.generate(PROMPTS[0], max_tokens=40, method="draft", draft_length=4)
    assert answer.token_ids == want
    assert "model" in calls
    assert answer.speculation.drafted < 4 * answer.speculation.steps


def test_requests_that_need_the_general_path_do_not_use_single_request_rounds(engine, calls, tmp_path):
    sinks = [[], []]  # added before the engine's thread starts, which could begin with a single request
    for sink in sinks:
        engine.add(PROMPTS[0], sink.append, max_tokens=5, method="plain")
    while engine.step():
        pass
    assert not calls, "two requests share their passes"
    for requested in (
        {"temperature": 1.0},
        {"logprobs": 1},
        {"logit_bias": {3: 1.0}},
        {"prompt_logprobs": 1, "max_tokens": 1},
    ):
        engine.generate(PROMPTS[0], **{"max_tokens": 5, "method": "draft", **requested})
        assert not calls, requested
    sliding = write_checkpoint(tmp_path / "s", kind="mistral", sliding_window=9)
    with load(sliding) as other:
        assert other.speculator.rounds is None


BATCH = [
    {"method": "plain"},
    {"method": "draft", "draft_length": 3},
    {"method": "ngram", "draft_length": 5},
    {"method": "prediction", "prediction": [9, 9, 4, 5]},
    {"method": "draft", "draft_length": 8},
]


@pytest.fixture
def pair(tmp_path):
    target = write_checkpoint(tmp_path / "t", seed=1, spread=0.2, eos_token_id=None)
    return target, noisy_copy(target, tmp_path / "d", 0.03)


@pytest.fixture
def alone(pair):
    """Return the answers to the batch's requests, each run alone."""
    with load(*pair) as engine:
        return [
            time_independent_result(engine, PROMPTS[i % 3], **requested)[0]
            for i, requested in enumerate(BATCH)
        ]


@pytest.fixture
def stepped_engine(pair):
    """Load an engine whose worker thread is not started; tests call ``step`` themselves."""
    with load(*pair, slots=len(BATCH) + 1) as engine:
        yield engine


def run_batch(engine, *others):
    """Run the batch's requests, adding one before each of the first steps."""
    sinks = []
    for i, requested in enumerate((*BATCH, *others)):
        sinks.append([])
        engine.add(PROMPTS[i % 3], sinks[-1].append, **{"max_tokens": 40, **requested})
        engine.step()
    while engine.step():
        pass
    return [sink[-1].generation.token_ids for sink in sinks]


DRAFTED = [
    {"method": "draft", "draft_length": 3},
    {"method": "plain"},
    {"method": "draft", "draft_length": 8},
    {"method": "draft", "draft_length": 1},
]


def test_several_requests_draft_and_verify_in_one_call(stepped_engine, pair, monkeypatch):
    original, made, answers = NativeRounds._run_round, [], []

    def counted(self, sequences, steps):
        made.append(list(steps))
        return original(self, sequences, steps)

    for compiled in (stepped_engine.speculator.rounds, None):
        monkeypatch.setattr(NativeRounds, "_run_round", counted)
        stepped_engine.speculator.rounds = compiled
        sinks = [[] for _ in DRAFTED]
        for i, (requested, sink) in enumerate(zip(DRAFTED, sinks, strict=True)):
            stepped_engine.add(PROMPTS[i % 3], sink.append, max_tokens=30 + i, **requested)
        while stepped_engine.step():
            pass
        finished = [sink[-1].generation for sink in sinks]
        answers.append([(each.token_ids, each.speculation) for each in finished])
    assert answers[0] == answers[1]
    assert [3, 0, 8, 1] in made


def test_non_finite_logits_of_a_draft_shorten_its_chain_alone(stepped_engine, alone):
    draft = stepped_engine.speculator.drafters["draft"].runner
    with torch.inference_mode():
        draft.decoder.embedding[alone[1][6]] = torch.nan
    sinks = [[], []]
    for prompt, sink in zip(PROMPTS, sinks, strict=False):
        stepped_engine.add(prompt, sink.append, max_tokens=40, method="draft", draft_length=4)
    while stepped_engine.step():
        pass
    assert [sink[-1].generation.token_ids for sink in sinks[1:]] == [alone[1]]
    figures = [sink[-1].generation.speculation for sink in sinks]
    assert figures[1].drafted < 4 * figures[1].steps


def test_several_requests_are_verified_in_one_call(stepped_engine, alone, monkeypatch):
    original, made = NativeRounds.verify_all, []

    def counted(self, sequences, guesses):
        if len(sequences) > 1:
            made.append(sum(map(len, guesses)))
        return original(self, sequences, guesses)

    monkeypatch.setattr(NativeRounds, "verify_all", counted)
    assert run_batch(stepped_engine) == alone
    assert max(made) > 8, "chains of several requests in one pass"
    made.clear()
    assert run_batch(stepped_engine, {"temperature": 1.0, "max_tokens": 120})[: len(BATCH)] == alone
    assert len(made) < len(BATCH), "a sampled request makes the whole batch use the general path"


def test_the_batch_comparison_detects_wrongly_accepted_tokens(stepped_engine, alone, monkeypatch):
    original = NativeRounds.verify_all

    def accept_all(self, sequences, guesses):
        return [found._replace(accepted=len(found.drafted)) for found in original(self, sequences, guesses)]

    monkeypatch.setattr(NativeRounds, "verify_all", accept_all)
    assert run_batch(stepped_engine) != alone


def test_non_finite_logits_fail_only_their_own_request(stepped_engine, alone, monkeypatch):
    original = NativeRounds.verify_all

    def spoilt(self, sequences, guesses):
        first, *rest = original(self, sequences, guesses)
        return [first._replace(max_logits=[float("nan")] * len(first.max_logits)), *rest] if rest else [first]

    sinks = [[], []]
    for prompt, sink in zip(PROMPTS, sinks, strict=False):
        stepped_engine.add(prompt, sink.append, max_tokens=40, method="plain")
    monkeypatch.setattr(NativeRounds, "verify_all", spoilt)
    while stepped_engine.step():
        pass
    assert "not finite" in str(sinks[0][-1])
    assert sinks[1][-1].generation.token_ids == alone[1]
