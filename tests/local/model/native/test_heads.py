"""Compiled heads: results equal torch's, chains run in one call, and torch is the fallback."""

from __future__ import annotations

import json

import pytest
import tiny_heads
import torch
from specclient_local.drafting.drafter import GrownTree, chain
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model import decoder
from specclient_local.model.config import read_config
from specclient_local.model.heads.checkpoint import read_heads, required_hidden_layers
from specclient_local.model.heads.eagle import EagleHead
from specclient_local.model.heads.eagle_runner import EaglePasses, EagleRunner
from specclient_local.model.heads.kernels import fast_kernels
from specclient_local.model.heads.medusa import MedusaHeads
from specclient_local.model.native import build, passes
from specclient_local.model.native import medusa as native_medusa
from specclient_local.model.native.eagle import NativeEagle
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.rope import turns
from specclient_local.request.token_tree import TokenTree
from tiny_models import load, sequence, write_checkpoint

pytestmark = pytest.mark.skipif(build.library() is None, reason="there is no C compiler")

PROMPT = [5, 17, 120, 33, 80, 201, 9]
WIDTH = tiny_heads.HIDDEN


def with_all_extras(folder):
    """Write an EAGLE-1 head with biases in its layer, and norms of query and key heads as in Qwen 3."""
    tiny_heads.eagle(folder)
    raw = json.loads((folder / "config.json").read_text()) | {"attention_bias": True}
    dim, kv = tiny_heads.HEAD_DIM, tiny_heads.KV
    more = {f"layers.0.self_attn.{name}_norm.weight": (dim,) for name in "qk"}
    more |= {f"layers.0.self_attn.{name}_proj.bias": (heads * dim,) for name, heads in QKV_HEADS.items()}
    more |= {"layers.0.self_attn.o_proj.bias": (WIDTH,), "fc.bias": (WIDTH,), "fc.weight": (WIDTH, 2 * WIDTH)}
    names = tiny_heads.layer("layers.0.", WIDTH) | more
    assert kv == QKV_HEADS["k"]
    return tiny_heads.save(folder, raw, tiny_heads.random(names, 3, 0.3))


QKV_HEADS = {"q": tiny_heads.HEADS, "k": tiny_heads.KV, "v": tiny_heads.KV}
EAGLES = {
    "eagle": tiny_heads.eagle,
    "eagle without bias": lambda folder: tiny_heads.eagle(folder, bias=False),
    "eagle with biases and norms of heads": with_all_extras,
    "eagle3": tiny_heads.eagle3,
    "eagle3 of one key head": lambda folder: tiny_heads.eagle3(folder, kv=1),
    "eagle3 with normed residual": lambda folder: tiny_heads.speculators_eagle3(
        folder, norm_before_residual=True
    ),
    "eagle3 fed what its last norm gives": lambda folder: tiny_heads.speculators_eagle3(
        folder, norm_output=True, fc_norm=True
    ),
    "eagle3 of a width of its own": lambda folder: tiny_heads.speculators_eagle3(folder, own_width=24),
}
MEDUSAS = {
    "own heads": {},
    "the target's head": {"own_heads": False},
    "several blocks": {"own_heads": False, "blocks": 3},
    "own heads, several blocks": {"blocks": 2, "heads": 5},
}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    return write_checkpoint(folder, spread=0.1, max_position_embeddings=700, **tiny_heads.TARGET)


def opened(target, heads, slots=2, **placed):
    taps = tuple(sorted(set(required_hidden_layers(heads, read_config(target)))))
    return load_model(target, ModelPlacement(**placed), slots=slots, context=128, taps=taps)


def with_torch_passes(eagle, weights, target):
    """Replace an EAGLE runner's compiled passes with torch's."""
    c = eagle.config
    eagle.head = EagleHead(eagle.head.shape, weights, target.shared_weights(), fast_kernels())
    eagle.decoder.passes = EaglePasses(eagle.head, turns(c.rope, c.head_dim, eagle.context))
    return eagle


@pytest.fixture(params=EAGLES)
def pair(target, tmp_path, request):
    """Return an EAGLE runner with compiled passes, and one with torch's."""
    folder = EAGLES[request.param](tmp_path)
    found, runner = read_heads(folder, read_config(target)), opened(target, folder)
    ours, theirs = (EagleRunner(found.shape, found.weights, runner) for _ in range(2))
    assert isinstance(ours.decoder.passes, NativeEagle)
    return ours, with_torch_passes(theirs, found.weights, runner)


def states(eagle, count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, eagle.config.hidden_size, generator=generator)


def branching():
    tree = TokenTree()
    for parent, token in [(-1, 7), (-1, 8), (0, 9), (0, 10), (1, 9), (2, 11), (5, 12)]:
        tree.add(parent, token)
    return tree


def close(mine, want):
    scale = max(1.0, float(want.abs().max()))
    torch.testing.assert_close(mine, want, atol=1e-5 * scale, rtol=0)


@torch.inference_mode()
def test_logits_states_and_caches_equal_torchs(pair):
    """For prompts, rows of two requests, and a tree whose first nodes are in the cache."""
    whole, outputs = branching(), []
    first = TokenTree()
    for parent, token in zip(whole.parents[:3], whole.tokens[:3], strict=True):
        first.add(parent, token)
    for eagle in pair:
        eagle.extend(0, PROMPT, states(eagle, 7))
        parts = [SlotInput(1, PROMPT[:3]), SlotInput(0, [4, 6], first)]
        one = eagle.step(parts, [states(eagle, 3, 2), states(eagle, 5, 3)])
        two = eagle.step([SlotInput(0, [], whole, held=3)], [states(eagle, 4, 4)])
        outputs.append([*one[0], *one[1], *two[0], *two[1], eagle.cache.rows[:, 0, :, :16]])
    for mine, want in zip(*outputs, strict=True):
        assert mine.shape == want.shape
        assert want.abs().max() > 0.1
        close(mine, want)


@torch.inference_mode()
def test_a_chain_in_one_call_equals_one_in_steps(pair):
    ours, theirs = pair
    ids, given = theirs.head.weights.ids, states(ours, 3, 2)
    for eagle in pair:
        eagle.extend(0, PROMPT, states(eagle, 7))
    found = ours.follow(0, [4, 6, 8], given, 5)
    expected, tokens = [], [4, 6, 8]
    for _ in range(5):
        (logits,), (given,) = theirs.step([SlotInput(0, tokens)], [given])
        best = int(logits[-1].argmax())
        tokens = [best if ids is None else int(ids[best])]
        expected += tokens
    assert found == expected
    assert ours.length(0) == theirs.length(0) == 7 + 3 + 4
    close(*(eagle.cache.rows[:, 0, :, :14] for eagle in pair))


@torch.inference_mode()
def test_a_chain_ends_at_non_finite_logits(pair):
    ours, _ = pair
    ours.extend(0, PROMPT, states(ours, 7))
    ours.cache.rows[:, 0, :, 3] = torch.nan
    assert ours.follow(0, [4], states(ours, 1), 3) == []
    assert ours.length(0) == 8


def test_states_with_a_wrong_number_of_rows_are_rejected(pair):
    """Compiled code would read beyond the end of the states."""
    ours, _ = pair
    with pytest.raises(ValueError, match=r"states have shape \[2, \d+\]; allowed is \[3, \d+\]"):
        ours.extend(0, [1, 2, 3], states(ours, 2))


@pytest.fixture
def threads(monkeypatch):
    """Make all passes use threads; return a function that sets torch's thread count, which is restored."""
    for module in (native_medusa, passes):
        monkeypatch.setattr(module, "MIN_PARALLEL_PRODUCTS", 0)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@torch.inference_mode()
def test_rows_are_bit_identical_in_any_batch_and_thread_count(pair, threads):
    ours, _ = pair
    given = states(ours, 6)
    threads(1)
    alone = [
        ours.step([SlotInput(0, [token])], [row[None]]) for token, row in zip(PROMPT[:6], given, strict=True)
    ]
    threads(2)
    ours.truncate(0, 0)
    parts = [SlotInput(1, [3], branching()), SlotInput(0, PROMPT[:6], every=True)]
    (_, logits), (_, hidden) = ours.step(parts, [states(ours, 8, 2), given])
    assert torch.equal(logits, torch.cat([logits for (logits,), _ in alone]))
    assert torch.equal(hidden, torch.cat([hidden for _, (hidden,) in alone]))


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_draft_with_non_finite_values_is_erased_from_the_cache(target, tmp_path, kind):
    folder = EAGLES[kind](tmp_path)
    runner = opened(target, folder)
    _, drafter = drafter_for_heads(runner, folder)
    request = sequence(PROMPT, method="eagle")
    runner.prefill(0, PROMPT[:-1])
    assert drafter.begin(request)
    drafter.runner.cache.rows[:, 0, :, 1] = torch.nan
    (tree,) = drafter.propose([request], [chain(3)])
    assert len(tree) == 0
    drafter.end(request)
    assert not drafter.runner.cache.rows[:, 0].any()


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_native_stepwise_and_torch_proposals_are_equal(target, tmp_path, monkeypatch, kind):
    """Compared are a greedy chain, and trees of two requests in one call."""
    folder = EAGLES[kind](tmp_path)
    found = []
    for way in ("whole", "steps", "torch"):
        runner = opened(target, folder)
        _, drafter = drafter_for_heads(runner, folder)
        calls = []
        monkeypatch.setattr(
            drafter.runner,
            "follow",
            lambda *a, calls=calls, f=drafter.runner.follow: calls.append(a) or f(*a),
        )
        if way == "torch":
            with_torch_passes(drafter.runner, read_heads(folder, read_config(target)).weights, runner)
        elif way == "steps":
            monkeypatch.setattr(EagleDrafter, "_draft_natively", lambda *_: None)
        requests = [sequence(PROMPT, method="eagle"), sequence(PROMPT[2:], slot=1, method="eagle")]
        for request in requests:
            runner.prefill(request.cache_slot, request.tokens[:-1])
            assert drafter.begin(request)
        trees = drafter.propose(requests[:1], [chain(6)])
        assert bool(calls) == (way == "whole")
        trees += drafter.propose(requests, [(2, 2), GrownTree(3, 8)])
        found.append([(tree.tokens, tree.parents, tree.q) for tree in trees])
        assert len(trees[0]) == 6
        assert [drafter.runner.length(slot) for slot in (0, 1)] == [len(r.tokens) - 1 for r in requests]
        monkeypatch.undo()
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("way", ["torch", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3"])
def test_greedy_answers_equal_plain_decoding_however_heads_are_computed(
    target, tmp_path, monkeypatch, kind, way
):
    """With torch, in half precision, and for a target with a quantised output matrix."""
    folder = EAGLES[kind](tmp_path) if kind in EAGLES else tiny_heads.medusa(tmp_path, own_heads=False)
    options = {"torch": {}, "int8": {"quantize": "int8"}}.get(way, {"dtype": way})
    if way == "int8":
        pytest.importorskip("torchao", reason="torchao quantises")
    if way == "torch":
        monkeypatch.setattr(decoder, "native_passes", lambda *_: None)
    with load(target, heads=folder, slots=1, **options) as engine:
        if kind in EAGLES:
            compiled = isinstance(engine.speculator.drafters["eagle"].runner.decoder.passes, NativeEagle)
            assert compiled == (way in ("bfloat16", "int8"))
        for prompt in ("def f(x):", "return 1\n" * 6):
            wanted = engine.generate(prompt, max_tokens=16, method="plain").token_ids
            for tree in (None, "grow"):
                answer = engine.generate(prompt, max_tokens=16, draft_length=3, draft_tree=tree)
                assert answer.token_ids == wanted, tree
                assert answer.speculation.drafted > 0


@pytest.mark.parametrize("kind", ["medusa", "eagle3"])
def test_native_rounds_give_the_answers_and_hidden_states_of_the_general_path(target, tmp_path, kind):
    """The number of running requests changes from one to three and back."""
    folder = EAGLES[kind](tmp_path) if kind in EAGLES else tiny_heads.medusa(tmp_path, own_heads=False)
    requested = [{"draft_length": 3}, {"method": "plain"}, {"draft_length": 2, "max_tokens": 9}]
    found = []
    for single in (True, False):
        with load(target, heads=folder, slots=3) as engine:
            assert engine.speculator.rounds is not None
            if not single:
                engine.speculator.rounds = None
            sinks = [[] for _ in requested]
            for own, sink in zip(requested, sinks, strict=True):
                engine.add("def f(x):", sink.append, **({"max_tokens": 24} | own))
                engine.step()
            while engine.step():
                pass
            answers = [sink[-1].generation for sink in sinks]
            runner = engine.speculator.target
            states = [runner.features(slot, 0, 30, runner.layers).clone() for slot in range(3)]
        found.append(([(a.token_ids, a.speculation) for a in answers], torch.stack(states)))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][1].count_nonzero() > 0


def medusas(target, folder, **made):
    """Return compiled Medusa heads, and ones computed by torch."""
    tiny_heads.medusa(folder, **made)
    found, runner = read_heads(folder, read_config(target)), opened(target, folder)
    given = found.shape, found.weights, runner.shared_weights()
    compiled = native_medusa.native_medusa(*given, runner.decoder.passes)
    assert compiled is not None
    return compiled, MedusaHeads(*given, fast_kernels())


@torch.inference_mode()
@pytest.mark.parametrize("made", MEDUSAS)
def test_medusa_logits_equal_torchs(target, tmp_path, made):
    ours, theirs = medusas(target, tmp_path, **MEDUSAS[made])
    features = torch.randn(9, 2, 1, WIDTH, generator=torch.Generator().manual_seed(5)) * 3
    for rows in (features[:1, 0], features[:, 1], features):
        for heads in (1, 2, 3):
            mine, want = (one.logits(one.read(rows), heads) for one in (ours, theirs))
            assert mine.shape == want.shape == (*rows.shape[:-2], heads, tiny_heads.VOCAB)
            close(mine, want)


@torch.inference_mode()
@pytest.mark.parametrize("made", MEDUSAS)
def test_medusa_logits_are_bit_identical_on_any_thread_count(target, tmp_path, threads, made):
    ours, _ = medusas(target, tmp_path, **MEDUSAS[made])
    given = torch.randn(5, WIDTH)
    threads(1)
    alone = ours.logits(given, 3)
    threads(2)
    assert torch.equal(ours.logits(given, 3), alone)
    assert torch.equal(torch.cat([ours.logits(row, 3) for row in given.split(1)]), alone)


def test_heads_use_torch_if_the_targets_passes_do(target, tmp_path, monkeypatch):
    monkeypatch.setattr(decoder, "native_passes", lambda *_: None)
    eagle, medusa = tiny_heads.eagle3(tmp_path / "eagle"), tiny_heads.medusa(tmp_path / "medusa")
    runner = opened(target, eagle)
    found = read_heads(eagle, read_config(target))
    assert isinstance(EagleRunner(found.shape, found.weights, runner).decoder.passes, EaglePasses)
    _, drafter = drafter_for_heads(runner, medusa)
    assert isinstance(drafter.heads, MedusaHeads)
