"""Passes with static shapes against the dynamic runner's: logits, caches, slots, and no reads of values."""

from __future__ import annotations

import pytest
import torch
from specclient_local.model.config import read_config
from specclient_local.model.cuda_graphs.graph_recorder import GraphRecorder
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.cuda_graphs.static_runner import PassBucket, StaticRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.weights import load_weights
from specclient_local.request.token_tree import TokenTree
from tiny_models import write_checkpoint
from torch._subclasses.fake_tensor import FakeTensorMode

from specclient.errors import EngineError

CONTEXT, SLOTS = 100, 6
VARIANTS = {
    "llama": {},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "qwen3 tied": {"kind": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    "window": {"kind": "mistral", "sliding_window": 24},
    "window below": {
        "kind": "qwen3",
        "head_dim": 16,
        "use_sliding_window": True,
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}


def load(folder, device="cpu", *, records=True):
    """Return a dynamic and a static runner with the same weights."""
    config = read_config(folder)
    with torch.inference_mode():
        weights = load_weights(folder, config, "float32", device)
        decoder = TransformerDecoder(config, weights, CONTEXT)
        return DecoderRunner(decoder, SLOTS, CONTEXT), StaticRunner(
            decoder, weights, SLOTS, CONTEXT, records=records
        )


@pytest.fixture(scope="module", params=VARIANTS)
def pair(request, tmp_path_factory):
    return load(write_checkpoint(tmp_path_factory.mktemp("static") / "model", **VARIANTS[request.param]))


def branching():
    tree = TokenTree()
    for parent, token in [(-1, 7), (-1, 8), (0, 9), (0, 10), (1, 9), (2, 11), (5, 12), (4, 13)]:
        tree.add(parent, token)
    return tree


def check_equal_logits(pair, parts):
    expected, found = (runner.score_all(parts) for runner in pair)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, atol=1e-4, rtol=1e-4)
    assert pair[0].cache.lengths == pair[1].cache.lengths


def check_equal_caches(pair):
    for slot, length in enumerate(pair[0].cache.lengths):
        used, fresh = (runner.cache.rows[:, slot, :, :length] for runner in pair)
        torch.testing.assert_close(used, fresh, atol=1e-4, rtol=1e-4)


def test_static_passes_equal_dynamic_ones_in_every_shape(pair):
    for runner in pair:
        for slot in range(SLOTS):
            runner.truncate(slot, 0)
        for slot, count in ((0, 3), (2, 60), (5, 40)):
            runner.prefill(slot, [(7 * i + slot) % 300 for i in range(count)])
    check_equal_logits(pair, [SlotInput(1, [5])])  # from an empty cache
    check_equal_logits(pair, [SlotInput(2, [4, 5], branching())])
    for runner in pair:
        runner.keep(2, 61, [0, 2, 5])
    check_equal_logits(
        pair, [SlotInput(2, [6]), SlotInput(0, [7, 8], TokenTree.chain([9])), SlotInput(5, [1], branching())]
    )
    for runner in pair:
        runner.keep(5, 40, [1, 4])
    check_equal_logits(pair, [SlotInput(5, [3, 2, 1], every=True), SlotInput(2, [8])])
    check_equal_logits(pair, [SlotInput(slot, [slot]) for slot in range(SLOTS)])
    root = TokenTree()
    for token in (7, 8):
        root.add(-1, token)
    for parts in ([SlotInput(0, [3], root)], [SlotInput(0, (), branching(), held=2)]):
        check_equal_logits(pair, parts)
    check_equal_caches(pair)
    assert {
        PassBucket(1, 16, 128, False),
        PassBucket(4, 16, 128, False),
        PassBucket(SLOTS, 1, 128, True),
    } <= {bucket for bucket, _ in pair[1]._buckets}


def test_a_slot_can_be_filled_to_its_last_position(pair):
    for runner in pair:
        runner.truncate(1, 0)
        runner.prefill(1, [5] * (CONTEXT - 3))
    check_equal_logits(pair, [SlotInput(1, [1], TokenTree.chain([2, 3]))])
    check_equal_caches(pair)
    with pytest.raises(ValueError, match="101 positions exceed the 100 a slot can hold"):
        pair[1].score(1, [4])
    for runner in pair:
        runner.truncate(1, 0)


def test_prompts_read_with_static_shapes_equal_those_of_the_dynamic_runner(pair):
    """Chunks end anywhere, also where padding goes beyond the context."""
    assert not pair[1].reads_prompts, "only where passes are recorded"
    pair[1].reads_prompts = True
    try:
        for runner in pair:
            for slot in (0, 4):
                runner.truncate(slot, 0)
            for slot, count in ((0, 70), (4, 3), (0, 25), (4, 17), (0, 4)):
                runner.prefill(slot, [(5 * i + slot) % 300 for i in range(count)])
        assert pair[0].cache.lengths == pair[1].cache.lengths
        check_equal_caches(pair)
        check_equal_logits(pair, [SlotInput(0, [9]), SlotInput(4, [5])])
        with pytest.raises(ValueError, match="101 positions exceed the 100 a slot can hold"):
            pair[1].prefill(0, [4])
    finally:
        pair[1].reads_prompts = False


def test_rows_with_a_negative_position_and_padding_write_outside_the_cache():
    slots, starts = torch.tensor([0, 1, 2]), torch.tensor([-1, 3, 8])
    chain = DensePassLayout.chain(slots, starts, 2, 8, context=8, first=True)
    assert chain.places[0, 0] > 1 << 30
    assert chain.places.flatten()[1:].tolist() == [0, 3, 4, 8, 9]
    assert chain.seen().sum(-1).tolist() == [[1, 1], [4, 5], [1, 1]]
    assert chain.ends.tolist() == [1, 5, 1]


def test_seats_use_the_smallest_possible_batch(pair):
    runner = pair[1]
    assert runner.seats([0]).slots == [0]
    assert runner.seats([0]).first
    assert runner.seats([4]).slots == [4]
    assert not runner.seats([4]).first
    seats = runner.seats([5, 1])
    assert (seats.slots, seats.rows, seats.first) == ([5, 1, 5, 5], {5: 0, 1: 1}, False)
    seats = runner.seats([3, 1])
    assert (seats.slots, seats.rows, seats.first) == ([0, 1, 2, 3], {3: 3, 1: 1}, True)
    assert len(runner.seats([0, 1, 2, 3, 5]).slots) == SLOTS
    assert [runner.attended(n) for n in (1, 128, 129)] == [128, 128, 128]  # at most the size of the cache


@torch.inference_mode()
def test_a_pass_reads_no_tensor_values(pair):
    """Fake tensors have no values: an operation that reads one, which a CUDA graph cannot record, raises."""
    runner, requested = pair[1], []
    recorded = runner._replay
    runner._replay = lambda bucket, values: requested.append((bucket, values)) or recorded(bucket, values)
    runner.truncate(3, 0)
    runner.score_all([SlotInput(3, [1, 2], branching()), SlotInput(1, [4])])
    del runner._replay
    ((bucket, values),) = requested
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        runner._pass(bucket, mode.from_tensor(values))
        with pytest.raises(RuntimeError, match="_local_scalar_dense"):
            mode.from_tensor(values).sum().item()
    runner.truncate(3, 0)
    runner.truncate(1, 0)


def test_a_recorder_without_cuda_runs_the_function_directly():
    recorder, ran = GraphRecorder(torch.device("cpu")), []
    run = recorder.record(lambda: ran.append(1), "a pass")
    assert (ran, recorder.recorded) == ([], 0)
    run()
    run()
    assert ran == [1, 1]


def test_running_out_of_device_memory_raises_with_what_did_not_fit(monkeypatch, tmp_path):
    empty, run = torch.empty, lambda: None

    def full(*args, **kwargs):
        if args[0] in (run, (16 * SLOTS, 300)):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return empty(*args, **kwargs)

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 << 29, 16 << 30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    recorder = GraphRecorder(torch.device("cpu"))
    recorder.records = True
    monkeypatch.setattr(recorder, "_record", full)
    with pytest.raises(EngineError, match=r"a pass of 4 rows did not fit cpu: 1\.5 of its 16\.0 GiB are"):
        recorder.record(run, "a pass of 4 rows")
    folder = write_checkpoint(tmp_path / "model")
    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(EngineError, match="the logits of 96 rows did not fit"):
        load(folder)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_passes_equal_unrecorded_ones(tmp_path):
    folder = write_checkpoint(tmp_path / "model")
    both = load(folder, "cuda", records=False)[1], load(folder, "cuda")[1]
    for _ in range(3):  # first recorded, then replayed twice
        for runner in both:
            runner.truncate(3, 0)
        check_equal_logits(both, [SlotInput(3, [1, 2], branching()), SlotInput(1, [4])])
    assert both[1].recorder.recorded > 0
    assert both[0].recorder.recorded == 0
    check_equal_caches(both)
