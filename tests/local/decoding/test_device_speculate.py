"""Device rounds against host rounds: equal random numbers give equal tokens, in any batch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from p_values import chi_square_p
from safetensors.torch import load_file, save_file
from specclient_local.decoding import device_speculate as on_device
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.loading import model_loader as opening
from specclient_local.model.config import read_config
from specclient_local.model.cuda_graphs import device_rounds as rounds
from specclient_local.model.cuda_graphs.device_drafts import ModelDraft
from specclient_local.model.cuda_graphs.device_rounds import DeviceRounds
from specclient_local.model.cuda_graphs.round_layout import RESULT_FIELDS, DeviceRoundRequest
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.sampling import distributions
from specclient_local.model.weights import load_weights
from specclient_local.request.params import VERIFICATIONS, SamplingParams
from tiny_models import letter_shape, load, run, sequence, write_checkpoint
from torch._subclasses.fake_tensor import FakeTensorMode

from specclient.errors import ConfigurationError, EngineError

PROMPT = [7, 8, 9, 10]
SETTINGS = [
    {},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 1.0, "seed": 5, "verification": "token"},
    {"temperature": 0.8, "top_p": 0.9, "seed": 6},
    {"temperature": 1.0, "top_k": 20, "seed": 7},
]


def static(folder, slots, context=96):
    config = read_config(folder)
    with torch.inference_mode():
        weights = load_weights(folder, config, "float32")
        return StaticRunner(TransformerDecoder(config, weights, context), weights, slots, context)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Write a target whose second layer changes little, and its first layer as a draft with fewer tokens."""
    folder = tmp_path_factory.mktemp("device")
    target = write_checkpoint(folder / "target", spread=0.15, tie_word_embeddings=True)
    draft = Path(shutil.copytree(target, folder / "draft"))
    tensors = load_file(target / "model.safetensors")
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"model.layers.1.{name}.weight"] *= 0.3
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:280].clone()
    save_file(tensors, draft / "model.safetensors", {"format": "pt"})
    shape = json.loads((target / "config.json").read_text())
    shape |= {"num_hidden_layers": 1, "vocab_size": 280, "layer_types": None}
    (draft / "config.json").write_text(json.dumps(shape))
    return target, draft


@pytest.fixture(scope="module")
def host(folders):
    target, draft = (DecoderRunner.load(f, dtype="float32", slots=1, context=96) for f in folders)
    return Speculator(target, {"draft": DraftModel(draft, 300)}, sharing="none")


@pytest.fixture(scope="module")
def device(folders):
    target, draft = (static(folder, slots=6) for folder in folders)
    return DeviceSpeculator(target, {"draft": DraftModel(draft, 300)}, sharing="none")


@pytest.fixture
def alone(host):
    """Return a function that runs a single request on the host."""

    def answer(*given, **settings):
        request = sequence(*given, **settings)
        tokens = run(host, request)
        host.end(request)
        return tokens, request.counts

    return answer


def together(speculator, requests):
    """Run requests in common rounds until all have ended."""
    for request in requests:
        while not speculator.prefill(request):
            pass
    going = list(requests)
    while going:
        for request, won in zip(going, speculator.round(going), strict=True):
            if isinstance(won, Exception):
                raise won
            for token in won.tokens:
                if request.finish_reason is None:
                    request.take(token)
        for request in going:
            if request.finish_reason is not None:
                speculator.end(request)
        going = [request for request in going if request.finish_reason is None]


def never(*args, **kwargs):
    raise AssertionError("took the general path")


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "greedy")
def test_device_rounds_with_a_draft_model_equal_the_hosts(alone, device, monkeypatch, settings):
    requested = [{**settings, "max_tokens": 30, "draft_length": length} for length in range(0, 9, 2)]
    expected = [alone(PROMPT, **own) for own in requested]
    monkeypatch.setattr(Speculator, "round", never)
    for own, (tokens, tally) in zip(requested, expected, strict=True):
        request = sequence(PROMPT, slot=3, **own)
        together(device, [request])
        assert request.new_tokens == tokens
        assert (request.counts.accepted, request.counts.steps) == (tally.accepted, tally.steps)
    assert sum(tally.accepted for _, tally in expected) > 20


def mixed_requests():
    """Return requests that can share a device round, and others that cannot."""
    likely = [*PROMPT, *PROMPT, *PROMPT]
    return [
        (PROMPT, {"draft_length": 3}),
        ([11, 12], {"method": "plain", "temperature": 0.9, "seed": 2}),
        (likely, {"method": "ngram", "draft_length": 4}),
        (likely, {"method": "prediction", "predicted": [5, 6] * 9, "temperature": 0.7, "seed": 3}),
        ([200], {"draft_length": 5, "logit_bias": {4: 1.0}, "temperature": 1.0, "seed": 4}),
        ([290, 299, 3], {"draft_length": 2, "logprobs": 1, "temperature": 0.5, "top_p": 0.9, "seed": 9}),
    ]


def test_requests_in_a_mixed_batch_get_the_answers_they_get_alone(alone, device):
    expected = [alone(tokens, max_tokens=25, **requested)[0] for tokens, requested in mixed_requests()]
    requests = [
        sequence(tokens, slot=slot, max_tokens=25, **requested)
        for slot, (tokens, requested) in enumerate(mixed_requests())
    ]
    together(device, requests)
    assert [request.new_tokens for request in requests] == expected


def test_a_round_mixes_draft_lengths_but_seeded_requests_run_alone(alone, device, monkeypatch):
    sizes = []
    original = DeviceRounds.run
    monkeypatch.setattr(
        DeviceRounds, "run", lambda self, asks, own: sizes.append(len(asks)) or original(self, asks, own)
    )
    given = [
        {"draft_length": 0},
        {"draft_length": 5},
        {"draft_length": 2},
        {"draft_length": 3, "temperature": 1.0, "seed": 1},
        {"draft_length": 4, "temperature": 1.0, "seed": 2},
    ]
    requests = [sequence(PROMPT, slot=slot, max_tokens=20, **own) for slot, own in enumerate(given)]
    together(device, requests)
    for request, own in zip(requests, given, strict=True):
        assert request.new_tokens == alone(PROMPT, max_tokens=20, **own)[0]
    assert set(sizes[:3]) == {3, 1}


def test_a_round_keeps_the_drafts_cache_of_slots_that_do_not_draft(folders):
    """Requests without draft-model tokens reuse slots whose draft cache still has earlier requests' rows."""
    target, draft = (static(folder, slots=3) for folder in folders)
    speculator = DeviceSpeculator(target, {"draft": DraftModel(draft, 300)})
    for slot in (0, 1):
        earlier = sequence([50 + slot, *range(20, 40)], slot=slot, max_tokens=4, draft_length=3)
        run(speculator, earlier)
        speculator.end(earlier)
    held = [draft.cache.rows[:, slot, :, : draft.length(slot)].clone() for slot in (0, 1)]
    assert [rows.shape[2] for rows in held] == [20, 20]
    requests = [
        sequence(PROMPT, slot=0, method="plain", max_tokens=8),
        sequence(PROMPT * 3, slot=1, method="ngram", max_tokens=8, draft_length=2),
        sequence(PROMPT, slot=2, max_tokens=8, draft_length=3),
    ]
    together(speculator, requests)
    for slot, rows in enumerate(held):
        assert draft.cache.rows[:, slot, :, : rows.shape[2]].equal(rows)


def test_seeded_requests_with_logits_processors_run_alone_on_the_host_path(alone, device, monkeypatch):
    sizes = []
    passed = StaticRunner.run_pass
    monkeypatch.setattr(
        StaticRunner,
        "run_pass",
        lambda self, parts, **own: sizes.append(len(parts)) or passed(self, parts, **own),
    )
    ruled = {"logit_bias": {4: 1.0}, "draft_length": 2, "temperature": 1.0}
    given = [{**ruled, "seed": 1}, {**ruled, "seed": 2, "method": "plain"}]
    requests = [sequence(PROMPT, slot=slot, max_tokens=8, **own) for slot, own in enumerate(given)]
    together(device, requests)
    assert set(sizes) == {1}
    for request, own in zip(requests, given, strict=True):
        assert request.new_tokens == alone(PROMPT, max_tokens=8, **own)[0]


def test_an_exception_in_a_round_fails_only_its_requests(device, monkeypatch):
    original = DeviceRounds.run
    monkeypatch.setattr(
        DeviceRounds,
        "run",
        lambda self, asks, own: 1 / 0 if asks[0].params.seed == 5 else original(self, asks, own),
    )
    settings = [{}, {"temperature": 1.0, "seed": 5}, {"logit_bias": {4: 1.0}}]
    requests = [sequence(PROMPT, slot=slot, max_tokens=4, **own) for slot, own in enumerate(settings)]
    for request in requests:
        while not device.prefill(request):
            pass
    outcomes = device.round(requests)
    for request in requests:
        device.end(request, broken=True)
    assert [isinstance(outcome, ZeroDivisionError) for outcome in outcomes] == [False, True, False]


def compare_with_a_prefill(runner, slot, tokens):
    length, vocab = runner.length(slot), runner.config.vocab_size
    runner.truncate(4, 0)
    runner.prefill(4, [token if token < vocab else 0 for token in tokens[:length]])
    used, fresh = (runner.cache.rows[:, s, :, :length] for s in (slot, 4))
    torch.testing.assert_close(used, fresh, atol=1e-5, rtol=0)
    runner.truncate(4, 0)


def test_caches_equal_a_fresh_prefill(device):
    kept = 0
    for seed in range(4):
        request = sequence(PROMPT, slot=2, max_tokens=30, temperature=0.6, seed=seed, draft_length=1 + seed)
        run(device, request)
        kept += request.counts.accepted
        for runner in (device.target, device.drafters["draft"].runner):
            assert runner.length(2) > len(request.tokens) - 6
            compare_with_a_prefill(runner, 2, request.tokens)
        device.end(request)
    assert kept > 10


def test_a_draft_catches_up_after_rounds_without_it(alone, device):
    expected = alone(PROMPT, max_tokens=30, draft_length=0)[0]
    request = sequence(PROMPT, slot=1, max_tokens=30, draft_length=0)
    while not device.prefill(request):
        pass
    for length in (0, 0, 0, 4, 0, 4, 4):
        request.params = SamplingParams(max_tokens=30, draft_length=length)
        (won,) = device.round([request])
        for token in won.tokens:
            request.take(token)
    assert request.new_tokens == expected[: len(request.new_tokens)]
    compare_with_a_prefill(device.drafters["draft"].runner, 1, request.tokens)
    device.end(request)


def test_a_context_can_be_filled_completely(alone, device):
    tokens = [(3 * i) % 280 for i in range(80)]
    request = sequence(tokens, slot=0, max_tokens=16, draft_length=8)
    together(device, [request])
    assert request.new_tokens == alone(tokens, max_tokens=16, draft_length=8)[0]


def test_non_finite_logits_fail_only_their_own_request(alone, folders):
    speculator = DeviceSpeculator(static(folders[0], slots=2), sharing="none")
    good, bad = (sequence(PROMPT, slot=slot, method="plain", max_tokens=5) for slot in range(2))
    for request in (good, bad):
        speculator.prefill(request)
    with torch.inference_mode():
        speculator.target.cache.rows[:, 1, :, 0] = torch.nan
    won, error = speculator.round([good, bad])
    assert won.tokens == alone(PROMPT, method="plain", max_tokens=5)[0][:1]
    assert isinstance(error, EngineError)
    assert "not finite" in str(error)


def test_non_finite_draft_logits_only_cost_drafted_tokens(alone, folders):
    target, draft = (static(folder, slots=1) for folder in folders)
    speculator = DeviceSpeculator(target, {"draft": DraftModel(draft, 300)}, sharing="none")
    for settings in SETTINGS:
        request = sequence(PROMPT, max_tokens=9, draft_length=3, **settings)
        speculator.prefill(request)
        with torch.inference_mode():
            draft.cache.rows[:, 0, :, 0] = torch.nan
        while request.finish_reason is None:
            (won,) = speculator.round([request])
            request.take(won.tokens[0])
        assert request.new_tokens == alone(PROMPT, max_tokens=9, draft_length=0, **settings)[0]
        assert request.counts.drafted == 0
        speculator.end(request)
        assert not draft.cache.rows.isnan().any()


def test_a_round_reads_no_tensor_values_before_its_result(device, monkeypatch):
    requested = []
    replay = DeviceRounds._replay
    monkeypatch.setattr(
        DeviceRounds, "_replay", lambda self, *given: requested.append(given) or replay(self, *given)
    )
    for settings in SETTINGS:
        params = SamplingParams(**settings)
        for given in (None, [3, 4, 5]):
            asks = [DeviceRoundRequest(s, PROMPT, 3, 3, params, given, [0.5] * 7) for s in (1, 3)]
            device.device_rounds.run(asks, "draft")
    assert len(requested) == 2 * len(SETTINGS)
    with torch.inference_mode(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for shape, values in requested:
            won = mode.from_tensor(torch.zeros(shape.slots, shape.depth + RESULT_FIELDS, dtype=torch.long))
            device.device_rounds._round(shape, mode.from_tensor(values), won)


def test_requests_of_a_round_choose_their_own_rule(device):
    """Slots may hold anything here: a round is a function of its inputs and the caches."""
    rng, differ = np.random.default_rng(0), 0
    for _ in range(20):
        numbers = rng.random(9).tolist()
        asks = {
            (slot, rule): DeviceRoundRequest(
                slot, PROMPT, 3, 4, SamplingParams(temperature=1.0, verification=rule), uniform=numbers
            )
            for slot in (1, 3)
            for rule in VERIFICATIONS
        }
        alone = {key: device.device_rounds.run([ask], "draft")[0] for key, ask in asks.items()}
        for mixed in ([(1, "block"), (3, "token")], [(1, "token"), (3, "block")]):
            found = device.device_rounds.run([asks[key] for key in mixed], "draft")
            assert found == [alone[key] for key in mixed]
        differ += alone[1, "block"] != alone[1, "token"]
    assert differ > 2


VOCAB, SAMPLES, PAD = 8, 3000, 60


def p_value_of_rounds(tmp_path, params):
    """Return the chi-square p-value of two tokens won in many rounds against the target's distribution."""
    shape = letter_shape(VOCAB)
    target = static(write_checkpoint(tmp_path / "t", seed=5, spread=0.25, **shape), PAD)
    draft = static(write_checkpoint(tmp_path / "d", seed=6, spread=0.25, num_hidden_layers=1, **shape), PAD)
    prompt, device = [3, 1, 4, 1, 5], DeviceRounds(target, {"draft": ModelDraft(draft, target.context)})
    (after,) = distributions(target.read(0, prompt)[-1:], params)
    distribution = np.zeros((VOCAB, VOCAB))
    for token in range(VOCAB):
        target.truncate(0, len(prompt))
        distribution[token] = after[token] * distributions(target.score(0, [token]), params)[0]
    for slot in range(PAD):
        for runner in (target, draft):
            runner.truncate(slot, 0)
            runner.prefill(slot, prompt[:-1])
    rng, counts, kept = np.random.default_rng(0), np.zeros((VOCAB, VOCAB)), 0
    for _ in range(SAMPLES // PAD):
        first = device.run(
            [DeviceRoundRequest(s, prompt, 4, 2, params, uniform=rng.random(5)) for s in range(PAD)], "draft"
        )
        won = [gained.tokens for gained in first]
        kept += sum(len(tokens) - 1 for tokens in won)
        short = [slot for slot, tokens in enumerate(won) if len(tokens) == 1]
        asks = [DeviceRoundRequest(s, [5, *won[s]], 5, 2, params, uniform=rng.random(5)) for s in short]
        for slot, gained in zip(short, device.run(asks, "draft") if asks else (), strict=True):
            won[slot] = won[slot] + gained.tokens
        for tokens in won:
            counts[tokens[0], tokens[1]] += 1
    assert kept > SAMPLES / 4
    return chi_square_p(counts, distribution)


@pytest.mark.parametrize("rule", VERIFICATIONS)
@pytest.mark.parametrize("settings", [{}, {"top_p": 0.8}, {"top_k": 5}], ids=lambda s: "-".join(s) or "all")
def test_device_rounds_follow_the_targets_distribution(tmp_path, settings, rule):
    params = SamplingParams(temperature=0.9, verification=rule, **settings)
    assert p_value_of_rounds(tmp_path, params) > 0.001


@pytest.mark.parametrize("mutant", ["accept always", "claim a wrong q"])
def test_the_chi_square_test_detects_wrong_rounds(tmp_path, monkeypatch, mutant):
    right = rounds.accept_sampled

    def wrong(p, q, drafts, certain, uniform, *, block):
        if mutant == "claim a wrong q":
            return right(p, torch.full_like(q, 1 / VOCAB), drafts, certain, uniform, block=block)
        return right(p, q, drafts, certain, torch.zeros_like(uniform), block=block)

    monkeypatch.setattr(rounds, "accept_sampled", wrong)
    assert p_value_of_rounds(tmp_path, SamplingParams(temperature=0.9)) < 1e-6


def test_an_engine_gives_the_same_answers_with_graphs_on_and_off(folders, monkeypatch):
    """The requests are batched, share prompts and end at different times."""
    requested = [
        ("def f(x):", {}),
        ("def f(x):", {"temperature": 1.0, "seed": 1}),
        ("import os", {"draft_length": 6, "temperature": 0.7, "seed": 2, "top_p": 0.8}),
        ("import os", {"method": "ngram"}),
        ("x", {"method": "plain", "max_tokens": 7}),
        ("x", {"logprobs": 2}),
        ("y", {"overflow": "slide", "max_tokens": 100, "draft_length": 5}),
        ("x" * 30, {"prediction": "xxxxxx", "max_tokens": 12}),
    ]
    taken, run_round = [], DeviceRounds.run
    answers = {}
    for graphs in ("off", "on"):
        with load(*folders, slots=3, context=90, graphs=graphs) as engine:
            monkeypatch.setattr(DeviceRounds, "run", lambda *given: taken.append(1) or run_round(*given))
            events = [[] for _ in requested]
            for (prompt, settings), sink in zip(requested, events, strict=True):
                engine.add(prompt, sink.append, **{"max_tokens": 20, **settings})
            while engine.step():
                pass
            assert (len(taken) > 20) == (graphs == "on")
        answers[graphs] = [sink[-1].generation.token_ids for sink in events]
    assert answers["on"] == answers["off"]


def test_graphs_on_a_device_without_float64_are_rejected(folders, monkeypatch):
    monkeypatch.setattr(opening, "resolve_device", torch.device)
    with pytest.raises(ConfigurationError, match="graphs is 'on', but mps has no float64"):
        opening.load_model(folders[0], opening.ModelPlacement(device="mps", graphs="on"), slots=1, context=64)
    with pytest.raises(ConfigurationError, match="graphs is 'always'; allowed are auto, on, off"):
        load(*folders, graphs="always")


def test_every_sampling_parameter_is_handled_or_listed_as_unsupported_on_the_device():
    """A new parameter must either be read by device rounds or make its requests use the host's."""
    read = {"temperature", "top_p", "top_k", "verification"}
    by_host = {"max_tokens", "min_tokens", "seed", "stop", "stop_token_ids", "overflow"}
    by_host |= {"draft_length", "method", "prediction"}
    assert set(SamplingParams.__slots__) == read | by_host | set(on_device._UNSUPPORTED)


def test_drafts_end_where_their_rounds_turn_out_to_take_long(folders):
    target, draft = (static(folder, slots=1) for folder in folders)
    nearly_free = RoundCosts(0.01, (1.0, 1.01, 1.02, 1.03, 1.04))
    now, depths = [0.0], []
    device = DeviceSpeculator(
        target, {"draft": DraftModel(draft, 300)}, {"draft": nearly_free}, clock=lambda: now[0]
    )
    original = device.device_rounds.run

    def slowly(requests, drafter):
        depths.append(requests[0].depth)
        now[0] += 50.0 if requests[0].depth else 1.0
        return original(requests, drafter)

    device.device_rounds.run = slowly
    together(device, [sequence(PROMPT, max_tokens=80)])
    assert depths[:4] == [0, 0, 0, 4], "plain rounds are measured first"
    assert max(depths[4:10]) > 0
    assert depths[10:].count(0) > 0.9 * len(depths[10:]), "all but those that probe"
