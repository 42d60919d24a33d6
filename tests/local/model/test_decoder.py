"""The decoder's logits against transformers', for the options of Llama-family configurations."""

from __future__ import annotations

import pytest
import torch
from specclient_local.model import decoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.request.token_tree import TokenTree

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
ROPES = {
    "linear": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1000.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1000.0},
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "rope_theta": 1000.0,
        "original_max_position_embeddings": 32,
    },
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 1000.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.0, 2.0, 3.0, 5.0],
        "original_max_position_embeddings": 16,
    },
    "llama3": LLAMA3,
}
FAMILIES = {
    "llama": {},
    "mistral": {"kind": "mistral", "sliding_window": None},
    "qwen2": {"kind": "qwen2"},
    "qwen3": {"kind": "qwen3", "head_dim": 8},
}
WINDOW = {"sliding_window": 24, "use_sliding_window": True}
VARIANTS = {
    f"{family}-{kind}-rope": {**shape, "rope_parameters": rope}
    for family, shape in FAMILIES.items()
    for kind, rope in ROPES.items()
} | {
    "llama": {},
    "llama-multi-head": {"num_key_value_heads": 4},
    "llama-one-kv-head": {"num_key_value_heads": 1},
    "llama-tied": {"tie_word_embeddings": True},
    "llama-wide-heads": {"head_dim": 24},
    "llama-biases": {"attention_bias": True, "mlp_bias": True},
    "llama-longrope-short": {"rope_parameters": ROPES["longrope"] | {"original_max_position_embeddings": 64}},
    "qwen2-yarn-mscale": {
        "kind": "qwen2",
        "rope_parameters": ROPES["yarn"]
        | {"mscale": 1.5, "mscale_all_dim": 0.8, "truncate": False, "beta_fast": 8, "beta_slow": 2},
    },
    "mistral": {"kind": "mistral", "sliding_window": None},
    "mistral-window": {"kind": "mistral", "sliding_window": 24},
    "qwen2": {"kind": "qwen2"},
    "qwen2-window-from-layer-1": {"kind": "qwen2", "max_window_layers": 1, **WINDOW},
    "qwen3-window-in-layer-0": {
        "kind": "qwen3",
        "head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        **WINDOW,
    },
    "qwen3": {"kind": "qwen3", "head_dim": 16},
    "qwen3-biases": {"kind": "qwen3", "head_dim": 16, "attention_bias": True, "tie_word_embeddings": True},
}


def reference(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def load(folder, **overrides):
    return DecoderRunner.load(folder, **({"dtype": "float32", "slots": 2, "context": 96} | overrides))


def random_ids(count, vocab=300, seed=1):
    return torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.fixture(params=VARIANTS, scope="module")
def pair(request, checkpoint):
    """Return a runner and the reference; sliding windows are shorter than the tests' inputs."""
    folder = checkpoint(**VARIANTS[request.param])
    return load(folder, context=64), reference(folder)


@torch.inference_mode()
def test_prefill_then_tokens_one_by_one_equal_transformers(pair):
    runner, model = pair
    ids = random_ids(40)
    expected = model(input_ids=torch.tensor([ids])).logits[0]
    runner.truncate(1, 0)
    runner.prefill(1, ids[:30])
    rows = [runner.score(1, [token])[0] for token in ids[30:]]
    torch.testing.assert_close(torch.stack(rows), expected[30:], atol=1e-4, rtol=0)
    assert runner.length(1) == 40


@torch.inference_mode()
def test_one_pass_over_many_rows_equals_transformers(pair):
    runner, model = pair
    ids = random_ids(44)
    expected = model(input_ids=torch.tensor([ids])).logits[0]
    runner.truncate(0, 0)
    logits = runner.score(0, ids[:4], TokenTree.chain(ids[4:]))
    torch.testing.assert_close(logits, expected[3:], atol=1e-4, rtol=0)


@torch.inference_mode()
def test_tree_logits_equal_those_of_each_path_alone(pair):
    runner, model = pair
    prompt, tree = random_ids(30), TokenTree()
    for parent, token in [(-1, 7), (-1, 8), (0, 9), (0, 10), (1, 9), (2, 11), (5, 12), (4, 13)]:
        tree.add(parent, token)
    runner.truncate(0, 0)
    runner.prefill(0, prompt[:-2])
    logits = runner.score(0, prompt[-2:], tree)
    for node in range(len(tree)):
        path, at = [], node
        while at != -1:
            path.insert(0, tree.tokens[at])
            at = tree.parents[at]
        expected = model(input_ids=torch.tensor([prompt + path])).logits[0, -1]
        torch.testing.assert_close(logits[node + 1], expected, atol=1e-4, rtol=0)


@torch.inference_mode()
def test_a_prefill_in_several_passes_equals_transformers(checkpoint):
    folder = checkpoint(max_position_embeddings=1024)
    runner, model = load(folder, context=MAX_PASS_ROWS * 2 + 40), reference(folder)
    ids = random_ids(MAX_PASS_ROWS * 2 + 30)
    expected = model(input_ids=torch.tensor([ids])).logits[0, -1]
    torch.testing.assert_close(runner.score(0, ids)[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("window", [None, 24])
@torch.inference_mode()
def test_chain_rows_are_bit_identical_to_rows_scored_alone(checkpoint, window, native, monkeypatch):
    """The model has the bundled target's shape; drafts of all lengths cross a cache block boundary."""
    folder = checkpoint(
        hidden_size=320, intermediate_size=896, num_attention_heads=5, num_key_value_heads=5, vocab_size=512,
        spread=0.05, kind="mistral", sliding_window=window,
    )  # fmt: skip
    if not native:
        monkeypatch.setattr(decoder, "native_passes", lambda *given: None)
    runner = load(folder, context=128)
    if not runner.decoder.exact_rows and set(runner.decoder.passes.kernels.values()) != {"packed"}:
        pytest.skip(f"this machine has no row-independent kernel: {runner.decoder.passes.kernels}")
    ids = random_ids(90)
    for start in (5, 58, 61):
        for length in range(1, 9):
            runner.truncate(0, 0)
            runner.prefill(0, ids[:start])
            together = runner.score(
                0, ids[start : start + 1], TokenTree.chain(ids[start + 1 : start + 1 + length])
            )
            runner.truncate(0, start)
            alone = torch.cat([runner.score(0, [token]) for token in ids[start : start + 1 + length]])
            assert torch.equal(together, alone)


@torch.inference_mode()
def test_a_sliding_window_far_into_the_context_equals_transformers(checkpoint):
    """Whole cache blocks before the window are masked."""
    folder = checkpoint(kind="mistral", sliding_window=24, max_position_embeddings=1200)
    runner, model = load(folder, context=1200), reference(folder)
    ids = random_ids(1108)
    expected = model(input_ids=torch.tensor([ids])).logits[0]
    runner.prefill(0, ids[:1100])
    chain = runner.score(0, ids[1100:1101], TokenTree.chain(ids[1101:]))
    torch.testing.assert_close(chain, expected[1100:], atol=1e-4, rtol=0)
    runner.truncate(0, 1100)
    alone = torch.cat([runner.score(0, [token]) for token in ids[1100:]])
    torch.testing.assert_close(alone, chain, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@torch.inference_mode()
def test_half_precision_stays_close_to_float32(checkpoint, dtype):
    folder = checkpoint(spread=0.1)
    ids = random_ids(30)
    expected = reference(folder)(input_ids=torch.tensor([ids])).logits[0]
    got = load(folder, dtype=dtype).score(0, ids[:1], TokenTree.chain(ids[1:]))
    assert got.dtype == getattr(torch, dtype)
    assert (got.float() - expected).abs().max() < 0.05 * expected.abs().max()


def test_more_positions_than_a_slots_context_raise(checkpoint):
    runner = load(checkpoint(), context=8)
    with pytest.raises(ValueError, match="9 positions exceed the 8"):
        runner.prefill(0, list(range(9)))


def test_more_rows_than_one_pass_allows_raise(checkpoint):
    runner = load(checkpoint(), context=MAX_PASS_ROWS + 40)
    with pytest.raises(ValueError, match="257 rows exceed the 256 of one pass"):
        runner.read(0, [5] * (MAX_PASS_ROWS + 1))
    assert len(runner.read(0, [5] * MAX_PASS_ROWS)) == MAX_PASS_ROWS
