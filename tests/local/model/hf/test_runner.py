"""Models run by transformers: logits, greedy answers, caches, and unsupported models."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.hf.checkpoint import read_hf_config
from specclient_local.model.hf.runner import HfRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.request.token_tree import TokenTree
from tiny_models import load, run, sequence

from specclient.errors import CheckpointError, ConfigurationError

FAMILIES = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "gpt_neox": {"num_key_value_heads": 4},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 1},
    "phi": {"num_key_value_heads": 4},
    "gemma2": {"head_dim": 8, "sliding_window": 16, "query_pre_attn_scalar": 8, "vocab_size": 320},
    "gemma3_text": {"head_dim": 8, "sliding_window": 16, "query_pre_attn_scalar": 8, "num_hidden_layers": 6},
    "stablelm": {},
    "falcon": {"alibi": False, "new_decoder_architecture": False},
    "bloom": {"n_layer": 2, "n_head": 4},
    "gpt_oss": {"head_dim": 8, "sliding_window": 16, "num_local_experts": 4, "num_experts_per_tok": 2,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
}  # fmt: skip
UNMASKED = ("bloom", "gpt_oss")
ALONE = (*UNMASKED, "falcon")
"""Families that are scored one row per pass; on other machines there may be more."""

LONG = [pytest.mark.soak, pytest.mark.timeout(7200)]
EVERY = [
    pytest.param(kind, marks=LONG if kind in ("gpt_neox", "stablelm", "gpt_oss") else ()) for kind in FAMILIES
]

BRANCHES = [(-1, 7), (-1, 8), (0, 9), (0, 10), (1, 9), (2, 11), (5, 12), (4, 13)]


@pytest.fixture(scope="module")
def made(checkpoint):
    def make(kind):
        return checkpoint(kind=kind, **{"intermediate_size": 64, "spread": 0.3} | FAMILIES[kind])

    return make


def hf(folder, **options):
    return HfRunner.load(folder, **({"dtype": "float32", "slots": 2, "context": 100} | options))


@pytest.fixture(scope="module")
def target(made):
    """Return a function that gives a family's runner, loaded once, with empty slots."""
    loaded = {}

    def take(kind):
        runner = loaded.setdefault(kind, None) or hf(made(kind))
        loaded[kind] = runner
        for slot in range(runner.slots):
            runner.erase(slot)
        return runner

    return take


def reference(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def random_ids(count, seed=1):
    return torch.randint(0, 300, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def branching(nodes=8):
    tree = TokenTree()
    for parent, token in BRANCHES[:nodes]:
        tree.add(parent, token)
    return tree


def close(got, expected):
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", EVERY)
@torch.inference_mode()
def test_logits_equal_transformers_in_every_kind_of_pass(made, target, kind):
    """Prefill, single tokens, chains and trees, beyond sliding windows, and after a path is accepted."""
    runner, model = target(kind), reference(made(kind))
    assert runner.masked == (kind not in UNMASKED)
    assert not (runner.together and kind in ALONE)

    def after(tokens):
        return model(torch.tensor([tokens])).logits[0]

    ids = random_ids(80)
    expected = after(ids)
    runner.prefill(1, ids[:50])
    close(torch.cat([runner.score(1, [token]) for token in ids[50:60]]), expected[50:60])
    close(runner.score(1, ids[60:61], TokenTree.chain(ids[61:])), expected[60:])
    runner.truncate(1, 55)
    close(runner.read(1, ids[55:60]), expected[55:60])
    tree = branching()
    got = runner.score(1, ids[60:61], tree)
    for row, path in zip(got, tree.paths(), strict=True):
        close(row, after(ids[:61] + path)[-1])
    runner.keep(1, 60, [1, 4])
    assert runner.length(1) == 63
    close(runner.score(1, [13, 5])[0], after([*ids[:61], 8, 9, 13, 5])[-1])


@pytest.mark.parametrize("kind", ["gpt2", "bloom"])
@torch.inference_mode()
def test_a_tree_scored_level_by_level_equals_one_scored_at_once(target, kind):
    runner, tree = target(kind), branching()
    ids = random_ids(20)
    whole = runner.score(0, ids, tree)
    runner.truncate(0, 0)
    first = runner.score_all([SlotInput(0, ids, branching(2))])[0]
    second = runner.score_all([SlotInput(0, (), branching(5), held=2)])[0]
    third = runner.score_all([SlotInput(0, (), tree, held=5)])[0]
    close(torch.cat([first, second, third]), whole)


@torch.inference_mode()
def test_long_prompts_and_chains_are_split_into_passes(checkpoint):
    folder = checkpoint(kind="gpt_neox", intermediate_size=64, max_position_embeddings=600)
    runner, model = hf(folder, context=600), reference(folder)
    ids = random_ids(2 * MAX_PASS_ROWS + 60)
    expected = model(torch.tensor([ids])).logits[0]
    close(
        runner.score(0, ids[: MAX_PASS_ROWS + 20], TokenTree.chain(ids[MAX_PASS_ROWS + 20 :][:40])),
        expected[MAX_PASS_ROWS + 19 :][:41],
    )
    with pytest.raises(ValueError, match="601 positions exceed the 600"):
        runner.prefill(0, [1] * (601 - runner.length(0)))


@pytest.mark.parametrize("kind", ["gpt2", "gemma2", "falcon"])
@torch.inference_mode()
def test_a_targets_rows_are_bit_identical_to_rows_scored_alone(target, kind):
    runner, ids = target(kind), random_ids(90)
    for start in (5, 61):
        for length in (1, 4, 8):
            runner.truncate(0, 0)
            runner.prefill(0, ids[:start])
            end = start + 1 + length
            together = runner.score(0, ids[start : start + 1], TokenTree.chain(ids[start + 1 : end]))
            runner.truncate(0, start)
            assert torch.equal(together, torch.cat([runner.score(0, [t]) for t in ids[start:end]]))


@pytest.fixture(scope="module")
def pairs(made, tmp_path_factory):
    """Return a function that writes a target, and a copy with noise in its weights as its draft."""

    def make(kind):
        target, draft = made(kind), tmp_path_factory.mktemp("draft") / "draft"
        shutil.copytree(target, draft)
        tensors = load_file(draft / "model.safetensors")
        torch.manual_seed(9)
        noisy = {name: tensor + 0.02 * torch.randn_like(tensor) for name, tensor in tensors.items()}
        save_file(noisy, draft / "model.safetensors", metadata={"format": "pt"})
        return target, draft

    return make


@pytest.mark.parametrize("kind", ["gpt2", "gemma2", "bloom"])
def test_greedy_answers_equal_plain_decoding_and_transformers(pairs, kind):
    """Chains, trees and look-up give the same answers, in rounds shared by two requests."""
    target, draft = (
        hf(folder, exact=exact) for folder, exact in zip(pairs(kind), (True, False), strict=True)
    )
    speculator = Speculator(target, {"draft": DraftModel(draft, target.config.vocab_size)})
    prompt, kept = [7, 8, 9, 30, 31], 0
    model = reference(pairs(kind)[0])
    expected = model.generate(
        torch.tensor([prompt]), max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, len(prompt) :].tolist()
    plain = sequence(prompt, method="plain", max_tokens=24)
    assert run(speculator, plain) == expected
    speculator.end(plain)
    for settings in ({"draft_length": 1}, {"draft_length": 5}, {"draft_tree": [2, 2]}, {"method": "ngram"}):
        pair = [sequence(prompt, slot=slot, max_tokens=24, **settings) for slot in (0, 1)]
        for request in pair:
            while not speculator.prefill(request):
                pass
        while any(running := [request for request in pair if request.finish_reason is None]):
            for request, won in zip(running, speculator.round(running), strict=True):
                for token in won.tokens[: request.remaining]:
                    request.take(token)
        for request in pair:
            assert request.new_tokens == expected, settings
            kept += request.counts.accepted
            speculator.end(request)
    assert kept > 60


def test_own_and_transformers_runners_can_draft_for_each_other(checkpoint):
    """Both run the same checkpoint, so every drafted token is accepted."""
    folder = checkpoint(intermediate_size=64, spread=0.2)
    own = DecoderRunner.load(folder, dtype="float32", slots=1, context=100)
    other = hf(folder, slots=1)
    expected = run(Speculator(own), sequence([7, 8, 9], method="plain", max_tokens=20))
    own.truncate(0, 0)
    for target, draft in ((own, other), (other, own)):
        request = sequence([7, 8, 9], max_tokens=20, draft_length=4)
        assert run(Speculator(target, {"draft": DraftModel(draft, 300)}), request) == expected
        assert request.counts.accepted == request.counts.drafted > 10
        for runner in (target, draft):
            runner.truncate(0, 0)


def test_the_runner_option_selects_the_runner(checkpoint):
    folder = checkpoint(intermediate_size=64, spread=0.2)
    with load(folder) as own, load(folder, runner="hf") as other:
        assert isinstance(own.speculator.target, DecoderRunner)
        assert isinstance(other.speculator.target, HfRunner)
        assert (
            own.generate("def f", max_tokens=20).token_ids == other.generate("def f", max_tokens=20).token_ids
        )
    with pytest.raises(ConfigurationError, match="layer_skip is 1, but transformers runs the target"):
        load(folder, runner="hf", layer_skip=1)


@torch.inference_mode()
def test_slots_are_independent_and_prefixes_can_be_copied(target):
    runner, ids = target("opt"), random_ids(40)
    runner.prefill(0, ids[:30])
    expected = runner.score(0, ids[30:31])
    runner.copy(0, 1, 0, 30)
    assert torch.equal(runner.score(1, ids[30:31]), expected)
    runner.score(1, [5], branching())
    assert runner.unmoved_length(1) == runner.length(1) == 40
    runner.keep(1, 31, [1, 4])
    assert (runner.unmoved_length(1), runner.length(1)) == (32, 34)
    runner.erase(1)
    assert (runner.unmoved_length(1), runner.length(1)) == (0, 0)
    runner.truncate(0, 30)
    assert torch.equal(runner.score(0, ids[30:31]), expected)


@torch.inference_mode()
def test_the_cache_after_an_accepted_path_equals_a_fresh_prefill(target):
    for kind in ("phi", "bloom"):
        runner, ids = target(kind), random_ids(40)
        for slot in (0, 1):
            runner.prefill(slot, ids[:20])
        runner.score(0, ids[20:21], branching())
        runner.keep(0, 20, [0, 2, 5])
        assert runner.length(0) == 24
        runner.prefill(1, [ids[20], 7, 9, 11])
        used, fresh = (runner._slots[slot].cache.layers for slot in (0, 1))
        for mine, theirs in zip(used, fresh, strict=True):
            close(mine.keys[..., :24, :], theirs.keys[..., :24, :])
            close(mine.values[..., :24, :], theirs.values[..., :24, :])


def test_caches_that_do_not_fit_are_rejected_with_their_size(made):
    with pytest.raises(ConfigurationError, match=r"4000000000 slots of 100 positions take .* GiB in float32"):
        hf(made("gpt2"), slots=4_000_000_000)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "mamba"}, "'mamba' is recurrent in some layers"),
        ({"model_type": "qwen3_next"}, "'qwen3_next' is recurrent in some layers"),
        ({"model_type": "t5"}, "'t5' is an encoder-decoder"),
        ({"model_type": "vit"}, "'vit' is not a causal language model"),
        ({"model_type": "gpt2", "quantization_config": {"quant_method": "gptq"}}, r"quantised \(gptq\)"),
        ({"model_type": "own", "auto_map": {"AutoConfig": "code.Own"}}, "Code from checkpoints is never run"),
        ({}, "cannot read model_type None"),
    ],
)
def test_unsupported_architectures_are_rejected_by_their_configuration(tmp_path, settings, message):
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{message}"):
        read_hf_config(tmp_path)


def drop(tensors):
    tensors.pop("transformer.h.1.mlp.c_fc.weight")


def reshape(tensors):
    tensors["transformer.ln_f.weight"] = torch.zeros(31)


def spoil(tensors):
    tensors["transformer.ln_f.weight"][3] = torch.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, r"tensor transformer\.h\.1\.mlp\.c_fc\.weight is missing \(1 in all\)"),
        (reshape, r"transformer\.ln_f\.weight has shape \[31\], but config\.json requires \[32\]"),
        (spoil, r"transformer\.ln_f\.weight contains 1 non-finite numbers"),
        (None, "only safetensors are loaded"),
        ("cut", r"model\.safetensors cannot be read"),
    ],
)
def test_invalid_weights_raise_with_the_reason(made, tmp_path, change, message):
    folder = shutil.copytree(made("gpt2"), tmp_path / "model")
    path = folder / "model.safetensors"
    if change is None:
        path.rename(folder / "pytorch_model.bin")
    elif change == "cut":
        path.write_bytes(path.read_bytes()[:200])
    else:
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        hf(folder)
