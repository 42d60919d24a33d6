"""EAGLE and Medusa heads in rounds on the device: the same tokens as on the host, whatever the batch."""

from __future__ import annotations

import pytest
import tiny_heads
import torch
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.decoding.speculate import Speculator
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.cuda_graphs.static_hidden_runner import StaticHiddenRunner
from specclient_local.model.heads.checkpoint import required_hidden_layers
from tiny_models import letter_tokenizer, load, run, sequence, write_checkpoint

PROMPT = [3, 1, 4, 1, 5]
SLOTS, CONTEXT = 4, 96
VOCAB = 8
SHAPE = {"hidden": 16, "vocab": VOCAB, "heads": 2, "kv": 1}
HEADS = {
    "eagle": lambda folder: tiny_heads.eagle(folder, spread=0.25, **SHAPE),
    "eagle3": lambda folder: tiny_heads.eagle3(folder, spread=0.25, draft=5, **SHAPE),
    "medusa": lambda folder: tiny_heads.medusa(folder, spread=0.2, hidden=16, vocab=VOCAB),
    "medusa shared": lambda folder: tiny_heads.medusa(
        folder, spread=0.2, hidden=16, vocab=VOCAB, own_heads=False
    ),
}
"""Heads over eight letters, some of whose drafted tokens are accepted by chance."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 4,
        "eos_token_id": None,
        "bos_token_id": None,
        "tokenizer": letter_tokenizer(VOCAB),
    }
    return write_checkpoint(tmp_path_factory.mktemp("heads") / "target", seed=5, spread=0.2, **shape)


@pytest.fixture(scope="module", params=HEADS)
def both(request, target, tmp_path_factory):
    """Return the method of heads, and their speculators on the host and on the device."""
    folder = HEADS[request.param](tmp_path_factory.mktemp("heads") / "heads")
    config = read_config(target)
    taps = tuple(sorted(set(required_hidden_layers(folder, config))))
    built = []
    for graphs, kind in (("off", Speculator), ("on", DeviceSpeculator)):
        placed = ModelPlacement(device="cpu", graphs=graphs)
        runner = load_model(target, placed, slots=SLOTS, context=CONTEXT, taps=taps)
        assert isinstance(runner, StaticHiddenRunner) == (graphs == "on")
        method, drafter = drafter_for_heads(runner, folder)
        built.append(kind(runner, {method: drafter}, sharing="none"))
    return method, *built


def never(*args, **kwargs):
    raise AssertionError("took the general path")


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.7, "seed": 5}, {"temperature": 1.0, "top_p": 0.8, "seed": 6}]
)
def test_rounds_on_the_device_give_the_hosts_tokens(both, monkeypatch, settings):
    method, host, device = both
    accepted = 0
    for length in range(5):
        options = {**settings, "method": method, "max_tokens": 30, "draft_length": length}
        expected, request = sequence(PROMPT, **options), sequence(PROMPT, slot=2, **options)
        run(host, expected)
        host.end(expected)
        with monkeypatch.context() as patch:
            patch.setattr(Speculator, "round", never)
            run(device, request)
        assert request.new_tokens == expected.new_tokens
        assert request.counts.accepted == expected.counts.accepted
        accepted += request.counts.accepted
        device.end(request)
    # Random heads say nothing about greedy tokens; at a temperature, chance accepts some.
    assert accepted > (5 if settings else -1)


def test_requests_of_different_lengths_and_methods_share_rounds(both):
    method, host, device = both
    settings = [
        {"method": method, "draft_length": 3},
        {"method": "plain"},
        {"method": "ngram", "draft_length": 4},
        {"method": method, "draft_length": 1},
    ]
    prompts = [PROMPT, [1, 2], PROMPT * 3, [7, 6, 2]]
    expected, requests = [], []
    for slot, (prompt, own) in enumerate(zip(prompts, settings, strict=True)):
        alone = sequence(prompt, max_tokens=20, **own)
        expected.append(run(host, alone))
        host.end(alone)
        requests.append(sequence(prompt, slot=slot, max_tokens=20, **own))
    for request in requests:
        while not device.prefill(request):
            pass
    going = list(requests)
    while going:
        for request, won in zip(going, device.round(going), strict=True):
            for token in won.tokens:
                if request.finish_reason is None:
                    request.take(token)
        for request in going:
            if request.finish_reason is not None:
                device.end(request)
        going = [request for request in going if request.finish_reason is None]
    assert [request.new_tokens for request in requests] == expected


def test_a_head_catches_up_after_rounds_without_it(both):
    """Rounds of another length, or on the general path, leave rows that the head has not read."""
    method, host, device = both
    expected = sequence(PROMPT, method="plain", max_tokens=40)
    run(host, expected)
    host.end(expected)
    request = sequence(PROMPT, slot=1, method=method, max_tokens=40, draft_length=0)
    while not device.prefill(request):
        pass
    for length in (4, 0, 0, 0, 1, 4, 2):
        request.params = type(request.params)(max_tokens=40, draft_length=length)
        (won,) = device.round([request])
        for token in won.tokens:
            request.take(token)
    assert request.new_tokens == expected.new_tokens[: len(request.new_tokens)]
    device.end(request)


@torch.inference_mode()
def test_the_kept_hidden_states_are_those_of_a_prefill(both):
    method, _, device = both
    request = sequence(PROMPT, slot=3, method=method, max_tokens=24, draft_length=3)
    run(device, request)
    runner = device.target
    length = runner.length(3)
    held = runner.features(3, 0, length, runner.layers).clone()
    runner.truncate(0, 0)
    runner.prefill(0, request.tokens[:length])
    torch.testing.assert_close(held, runner.features(0, 0, length, runner.layers), atol=1e-4, rtol=1e-4)
    runner.truncate(0, 0)
    device.end(request)


def test_an_engine_with_heads_gives_the_same_answers_with_graphs_on_and_off(target, tmp_path):
    heads = [HEADS[kind](tmp_path / kind) for kind in ("eagle3", "medusa")]
    answers = {}
    for graphs in ("off", "on"):
        with load(target, heads=heads, slots=2, context=90, graphs=graphs) as engine:
            answers[graphs] = [
                engine.generate(PROMPT, max_tokens=20, method=method, **own).token_ids
                for method in ("eagle", "medusa", "plain")
                for own in ({}, {"temperature": 1.0, "seed": 1}, {"draft_tree": [2, 2]})
            ]
    assert answers["on"] == answers["off"]


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "seed": 5}], ids=str)
def test_p_eagle_heads_draft_on_the_host_for_a_target_with_rounds_on_the_device(target, tmp_path, settings):
    folder = tiny_heads.peagle(tmp_path, spread=0.25, draft=5, **SHAPE)
    taps = tuple(sorted({*required_hidden_layers(folder, read_config(target))}))
    options = {**settings, "max_tokens": 30, "draft_length": 3}
    found, accepted = [], 0
    for graphs, kind in (("off", Speculator), ("on", DeviceSpeculator)):
        runner = load_model(
            target, ModelPlacement(device="cpu", graphs=graphs), slots=SLOTS, context=CONTEXT, taps=taps
        )
        method, drafter = drafter_for_heads(runner, folder)
        request = sequence(PROMPT, method=method, **options)
        found.append(run(kind(runner, {method: drafter}), request))
        accepted += request.counts.accepted
    assert found[0] == found[1]
    assert accepted > (0 if settings else -1)
