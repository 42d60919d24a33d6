"""The operations of recorded rounds: no read of a value, no copy between devices, and a budget of operations.

Every method, batch and kind of sampling runs under a dispatch mode on the CPU that sees each operation, and
on the device ``meta``, on which an operation with a tensor of another device raises. Neither needs a GPU. The
number of operations, without those that only make views, is the number of launches without kernels of our
own.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import tiny_heads
import torch
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.cuda_graphs.continued_round import continue_inputs, continued_width
from specclient_local.model.cuda_graphs.device_drafts import ModelDraft
from specclient_local.model.cuda_graphs.device_rounds import DeviceRounds
from specclient_local.model.cuda_graphs.round_layout import (
    RESULT_FIELDS,
    DeviceRoundRequest,
    DeviceRoundShape,
    input_width,
)
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.weights import DecoderWeights, LayerWeights
from specclient_local.request.params import SamplingParams
from tiny_models import write_checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

SLOTS, DEPTH = 4, 3
SAMPLING = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=0.8),
    "cut": SamplingParams(temperature=0.8, top_p=0.9, top_k=20),
}
READS = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::masked_select", "aten::_unique2"}
VIEWS = {
    *("view", "_unsafe_view", "expand", "select", "slice", "unsqueeze", "permute", "transpose", "t", "alias"),
    *("unbind", "split", "split_with_sizes", "chunk", "detach", "squeeze", "view_as_complex", "view_as_real"),
    *("as_strided", "unflatten", "_reshape_alias", "reshape"),
}
BUDGETS = {
    ("plain", "greedy"): 170,
    ("plain", "sampled"): 215,
    ("plain", "cut"): 245,
    ("given", "greedy"): 170,
    ("given", "sampled"): 225,
    ("given", "cut"): 255,
    ("draft", "greedy"): 580,
    ("draft", "sampled"): 735,
    ("draft", "cut"): 845,
    ("eagle", "greedy"): 375,
    ("eagle", "sampled"): 535,
    ("eagle", "cut"): 645,
    ("medusa", "greedy"): 205,
    ("medusa", "sampled"): 260,
    ("medusa", "cut"): 290,
}
"""Most operations of a round of four layers with ``DEPTH`` drafted tokens, by method and sampling.

Drawn chains are verified as a block, which takes about 50 operations more than one token after another.
"""


class Watcher(TorchDispatchMode):
    """Counts operations, and raises on those that wait for the device or copy from the host."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().split(".")[0]
        if name in READS:
            raise AssertionError(f"{name} waits for the device")
        if name in ("aten::lift_fresh", "aten::lift_fresh_copy"):
            raise AssertionError("a tensor is made from values of the host")
        if name.removeprefix("aten::") not in VIEWS:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


PAGED = {"plain": 16, "given": 16, "draft": 16, "eagle": 19, "medusa": 19}
"""Operations that a round has in addition if the target's cache is in pages.

They find the page of each row that is written, put each layer's pages in order, which kernels need not, and
find the hidden states that heads read.
"""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Return a target and its heads."""
    folder = tmp_path_factory.mktemp("operations")
    checkpoint = write_checkpoint(folder / "target", num_hidden_layers=4)
    return checkpoint, [tiny_heads.eagle3(folder / "eagle"), tiny_heads.medusa(folder / "medusa")]


def speculator_of(checkpoints, pages=None):
    checkpoint, heads = checkpoints
    placed = ModelPlacement(graphs="on", device="cpu")
    layers = read_config(checkpoint).layers
    own = dataclasses.replace(placed, pages=pages)
    target = load_model(checkpoint, own, slots=SLOTS, context=64, taps=tuple(range(layers + 1)))
    drafters = dict(drafter_for_heads(target, own) for own in heads)
    draft = load_model(checkpoint, placed, slots=SLOTS, context=64, exact=False)
    return DeviceSpeculator(target, {"draft": DraftModel(draft, target.config.vocab_size), **drafters})


@pytest.fixture(scope="module")
def speculator(checkpoints):
    """Return a speculator with a draft model and both kinds of heads, all with static shapes."""
    return speculator_of(checkpoints)


@pytest.fixture(scope="module")
def paged(checkpoints):
    """Return the same with the target's cache in pages."""
    return speculator_of(checkpoints, pages=2 * SLOTS)


def recorded_run(rounds, method, params, batch):
    """Run a round once, and return the function that would be recorded, its shape and its input."""
    replayed = []
    original = rounds._replay
    rounds._replay = lambda shape, values: replayed.append((shape, values)) or original(shape, values)
    depth = 0 if method == "plain" else DEPTH
    given = [3, 4, 5] if method == "given" else None
    requests = [
        DeviceRoundRequest(slot, [7, 8, 9, 10], 3, depth, params, given, [0.5] * (2 * DEPTH + 1))
        for slot in range(batch)
    ]
    rounds.run(requests, method if method in rounds.drafts else None)
    del rounds._replay
    ((shape, values),) = replayed
    return shape, values


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("method", ["plain", "given", "draft", "eagle", "medusa"])
@torch.inference_mode()
def test_a_round_waits_for_nothing_within_its_budget_of_operations(speculator, method, sampling):
    rounds, counts = speculator.device_rounds, []
    for batch in (1, SLOTS):
        shape, values = recorded_run(rounds, method, SAMPLING[sampling], batch)
        output = torch.zeros(shape.slots, shape.depth + RESULT_FIELDS, dtype=torch.long)
        with Watcher() as watcher:
            rounds._round(shape, values, output)
        counts.append(watcher.counts)
    assert counts[1].total() - counts[0].total() <= 3, "the number of launches does not depend on the batch"
    assert counts[1].total() <= BUDGETS[method, sampling], counts[1].most_common()


CONTINUED_BUDGET = 40
"""Most operations that make the inputs of a round that continues another."""


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("method", ["plain", "draft", "eagle", "medusa"])
@torch.inference_mode()
def test_a_round_is_continued_without_a_wait_or_values_of_the_host(speculator, method, sampling):
    """The host sends rows by a buffer that was there before; all else is on the device already."""
    rounds = DeviceRounds(speculator.target, speculator.device_rounds.drafts, continued=True)
    depth, drafter, counts = 0 if method == "plain" else DEPTH, None if method == "plain" else method, []
    numbers = [0.5] * (2 * depth + 1)
    for batch in (1, SLOTS):
        requests = [
            DeviceRoundRequest(slot, [7, 8, 9, 10], 3, depth, SAMPLING[sampling], None, numbers, left=20)
            for slot in range(batch)
        ]
        later = {"start": depth + 4, "uniform": 2 * numbers, "continues": True}
        going = [dataclasses.replace(each, **later) for each in requests]
        first = rounds.launch(requests, drafter)
        with Watcher() as watcher:
            second = rounds.proceed(first, going, drafter)
            third = rounds.proceed(second, going, drafter)
        assert [len(each.read()) for each in (second, third)] == [batch, batch]
        with Watcher() as watcher:
            first.recorded.continued.run()
        counts.append(watcher.counts)
    assert counts[0].total() == counts[1].total() <= CONTINUED_BUDGET, counts[1].most_common()


@torch.inference_mode()
def test_the_inputs_of_a_round_that_continues_are_made_on_one_device():
    shape = DeviceRoundShape(
        slots=4, length=64, first=True, depth=3, drafter="draft", draws=True, cuts=True, block=True
    )
    width = input_width(3, 2)
    sizes = (4, width), (4, 3 + RESULT_FIELDS), (4, continued_width(width, 3))
    tensors = [torch.zeros(size, dtype=torch.long, device="meta") for size in sizes]
    continue_inputs(*tensors, shape, context=64, vocab=300)
    for i in range(3):
        mixed = [torch.zeros_like(each, device="cpu") if at == i else each for at, each in enumerate(tensors)]
        with pytest.raises((RuntimeError, NotImplementedError)):
            continue_inputs(*mixed, shape, context=64, vocab=300)


@pytest.mark.parametrize("method", ["plain", "given", "draft", "eagle", "medusa"])
@torch.inference_mode()
def test_a_round_over_pages_waits_for_nothing_and_allocates_no_page(speculator, paged, method):
    counts = []
    for own in (speculator, paged):
        rounds = own.device_rounds
        shape, values = recorded_run(rounds, method, SAMPLING["sampled"], SLOTS)
        output = torch.zeros(shape.slots, shape.depth + RESULT_FIELDS, dtype=torch.long)
        if own is paged:
            table, pool = rounds.target.cache.table, rounds.target.cache.pool
            before = table.clone(), pool.available, table.data_ptr()
        with Watcher() as watcher:
            rounds._round(shape, values, output)
        counts.append(watcher.counts.total())
    assert (pool.available, rounds.target.cache.table.data_ptr()) == before[1:]
    assert torch.equal(table, before[0])
    assert counts[1] - counts[0] <= PAGED[method]


@torch.inference_mode()
def test_a_recorded_round_reads_a_table_that_has_changed(paged):
    """The table is read when a round runs, not when it is recorded: its slot may have other pages then."""
    target = paged.device_rounds.target
    found = []
    for others in ([], [1, 2]):
        for slot in range(SLOTS):
            target.truncate(slot, 0)
        for slot in (*others, 0):
            target.prefill(slot, [5, 6, 7][: 3 if slot == 0 else 2])
        pages = list(target.cache.pool.pages_of(0))
        (won,) = paged.device_rounds.run([DeviceRoundRequest(0, [8, 9], 3, 0, SAMPLING["greedy"])])
        found.append((pages, won.tokens, target.cache.rows[:, pages[0], :, :4].clone()))
    assert all(rows[:, :, 3].any() for _, _, rows in found), "the round wrote to the slot's page"
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]
    assert torch.equal(found[0][2], found[1][2])


@torch.inference_mode()
def test_the_watcher_detects_reads_and_values_of_the_host():
    with Watcher(), pytest.raises(AssertionError, match="waits for the device"):
        torch.ones(3).sum().item()
    with Watcher(), pytest.raises(AssertionError, match="values of the host"):
        torch.tensor([1, 2])


def fake_weights(config, dtype, device):
    def matrix(*shape):
        return torch.empty(shape, dtype=dtype, device=device)

    hidden, ff = config.hidden_size, config.intermediate_size
    layer = LayerWeights(
        input_norm=matrix(hidden),
        qkv=matrix((config.heads + 2 * config.kv_heads) * config.head_dim, hidden),
        qkv_bias=None,
        qk_norm=None,
        o=matrix(hidden, config.heads * config.head_dim),
        o_bias=None,
        post_norm=matrix(hidden),
        gate_up=matrix(2 * ff, hidden),
        gate_up_bias=None,
        down=matrix(hidden, ff),
        down_bias=None,
    )
    embedding = matrix(config.vocab_size, hidden)
    return DecoderWeights(embedding, [layer] * config.layers, matrix(hidden), embedding)


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("batch", [1, SLOTS])
@torch.inference_mode()
def test_all_tensors_of_a_round_are_on_the_models_device(checkpoint, batch, sampling):
    config, runners = read_config(checkpoint()), []
    for layers in (2, 1):
        own = dataclasses.replace(config, layers=layers, sliding=config.sliding[:layers])
        weights = fake_weights(own, torch.bfloat16, "meta")
        runners.append(StaticRunner(TransformerDecoder(own, weights, 64), weights, SLOTS, 64))
    target, draft = runners
    rounds = DeviceRounds(target, {"draft": ModelDraft(draft, 64)})
    for method in ("draft", None):
        shape = DeviceRoundShape(
            slots=batch,
            length=64,
            first=True,
            depth=DEPTH,
            drafter=method,
            draws=sampling != "greedy",
            cuts=sampling == "cut",
            block=sampling != "greedy",
        )
        values = torch.zeros(batch, input_width(DEPTH, rounds._tail(shape)), dtype=torch.long, device="meta")
        output = torch.zeros(batch, DEPTH + RESULT_FIELDS, dtype=torch.long, device="meta")
        rounds._round(shape, values, output)
        with pytest.raises((RuntimeError, NotImplementedError)):
            rounds._round(shape, torch.zeros_like(values, device="cpu"), output)


@torch.inference_mode()
def test_one_token_and_a_verified_draft_use_products_of_the_same_shape(speculator):
    """A library chooses its kernel by shape; the same kernel rounds a row alike in both passes."""
    dense, shapes = speculator.target.dense, []
    product = dense.ops.product
    dense.row_class = 16  # as on CUDA devices
    try:
        for method in ("plain", "given"):
            own = set()
            dense.ops.product = lambda x, w, b, own=own: own.add((*x.shape, len(w))) or product(x, w, b)
            recorded_run(speculator.device_rounds, method, SAMPLING["greedy"], 1)
            shapes.append(own)
    finally:
        dense.row_class = 1
        dense.ops.product = product
    assert shapes[0] == shapes[1]
    assert {rows for rows, *_ in shapes[0]} == {16}
