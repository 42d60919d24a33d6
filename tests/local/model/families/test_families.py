"""The logits of every family against transformers', and the independence of their rows."""

from __future__ import annotations

import pytest
import torch
from specclient_local.loading.model_loader import (
    ModelPlacement,
    load_model,
    read_any_config,
    rounds_rows_of,
    uses_own_decoder,
)
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.families import families
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.weight_shards import WeightShard
from specclient_local.request.token_tree import TokenTree
from tiny_models import load

from specclient.errors import ConfigurationError

YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1000.0, "original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
MIXED_LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 24, "head_dim": 16}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
VARIANTS = {
    "gemma": {"kind": "gemma", "head_dim": 16},
    "gemma2": {"kind": "gemma2", "query_pre_attn_scalar": 24, "attn_logit_softcapping": 3.0, **MIXED_LAYERS},
    "gemma3_text": {"kind": "gemma3_text", "query_pre_attn_scalar": 24, **MIXED_LAYERS},
    "gemma3_text-capped-and-scaled": {
        "kind": "gemma3_text",
        "final_logit_softcapping": 4.0,
        "rope_parameters": {"full_attention": LINEAR, "sliding_attention": {"rope_type": "default"}},
        **MIXED_LAYERS,
    },
    "mixtral": {"kind": "mixtral", **EXPERTS},
    "mixtral-window": {"kind": "mixtral", "sliding_window": 24, **EXPERTS},
    "qwen3_moe": {"kind": "qwen3_moe", "head_dim": 16, "moe_intermediate_size": 16, **EXPERTS},
    "qwen3_moe-some-dense": {
        "kind": "qwen3_moe",
        "head_dim": 16,
        "moe_intermediate_size": 16,
        "mlp_only_layers": [0],
        "norm_topk_prob": True,
        **EXPERTS,
    },
    "phi3": {"kind": "phi3", "sliding_window": 24},
    "phi3-longrope-of-half-heads": {
        "kind": "phi3",
        "original_max_position_embeddings": 32,
        "rope_parameters": {
            "rope_type": "longrope",
            "partial_rotary_factor": 0.5,
            "rope_theta": 1000.0,
            "short_factor": [1.0, 1.1],
            "long_factor": [1.0, 3.0],
        },
    },
    "olmo2": {"kind": "olmo2"},
    "olmo2-yarn": {"kind": "olmo2", "rope_parameters": YARN},
    "gpt_oss": {"kind": "gpt_oss", "rope_parameters": YARN | {"truncate": False}, **MIXED_LAYERS, **EXPERTS},
}


def variant(name):
    return {"pad_token_id": 1, "spread": 0.2, **VARIANTS[name]}


def random_ids(count, seed=1):
    return torch.randint(2, 300, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.fixture(params=VARIANTS, scope="module")
def pair(request, checkpoint):
    """Return a runner and the reference; sliding windows are shorter than the tests' inputs."""
    from transformers import AutoModelForCausalLM

    folder = checkpoint(**variant(request.param))
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return DecoderRunner.load(folder, dtype="float32", slots=2, context=64), reference


def test_every_family_that_is_not_of_the_llama_layout_is_covered():
    older = {"llama", "mistral", "qwen2", "qwen3", "mimo"}  # in test_decoder.py and heads/test_mtp.py
    older |= {
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
    }  # in test_hybrids.py
    assert {VARIANTS[name]["kind"] for name in VARIANTS} == set(families()) - older


@torch.inference_mode()
def test_prefill_then_tokens_one_by_one_equal_transformers(pair):
    runner, model = pair
    ids = random_ids(40)
    expected = model(input_ids=torch.tensor([ids])).logits[0]
    runner.truncate(1, 0)
    runner.prefill(1, ids[:30])
    rows = [runner.score(1, [token])[0] for token in ids[30:]]
    torch.testing.assert_close(torch.stack(rows), expected[30:], atol=1e-4, rtol=0)


@torch.inference_mode()
def test_rows_of_a_shared_pass_have_the_bits_that_they_have_alone(pair):
    runner, model = pair
    prompt, tree = random_ids(30), TokenTree()
    for parent, token in [(-1, 7), (-1, 8), (0, 9), (0, 10), (2, 11)]:
        tree.add(parent, token)
    for slot in (0, 1):
        runner.truncate(slot, 0)
        runner.prefill(slot, prompt[:-2])
    together = runner.score_all([SlotInput(0, prompt[-2:], tree), SlotInput(1, [5], TokenTree.chain([6, 7]))])
    expected = model(input_ids=torch.tensor([[*prompt, 7, 9, 11]])).logits[0, -1]
    torch.testing.assert_close(together[0][5], expected, atol=1e-4, rtol=0)
    runner.truncate(1, len(prompt) - 2)
    alone = [runner.score(1, [token])[0] for token in (5, 6, 7)]
    assert torch.equal(together[1], torch.stack(alone))


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "phi3"])
def test_half_precision_runs_in_the_type_that_was_asked_for(name, checkpoint):
    folder = checkpoint(**variant(name))
    assert uses_own_decoder(folder, "auto")
    runner = load_model(folder, ModelPlacement("bfloat16"), slots=1, context=64)
    full = load_model(folder, ModelPlacement(), slots=1, context=64)
    own, exact = (each.score(0, random_ids(20))[0].float() for each in (runner, full))
    assert torch.nn.functional.cosine_similarity(own, exact, 0) > 0.99
    widened = read_any_config(folder).llama_layout and not rounds_rows_of("bfloat16", None)
    assert runner.cache.rows.dtype == (torch.float32 if widened else torch.bfloat16)


@pytest.mark.parametrize("name", ["gemma3_text", "mixtral", "gpt_oss", "olmo2"])
def test_greedy_drafts_do_not_change_an_answer(name, checkpoint):
    """The draft is the target with other random weights in its second half: some drafts are accepted."""
    target = checkpoint(**variant(name))
    engine = load(target, checkpoint(seed=5), layer_skip=1, slots=2)
    prompt = random_ids(24)
    answers = {
        method: engine.generate(prompt, max_tokens=24, temperature=0, method=method).token_ids
        for method in ("plain", "draft", "layer_skip", "ngram")
    }
    engine.close()
    assert all(answer == answers["plain"] for answer in answers.values()), answers


@pytest.mark.parametrize("name", ["gemma2", "phi3", "mixtral"])
def test_what_cannot_be_divided_among_devices_is_refused_by_name(name, checkpoint):
    config = read_any_config(checkpoint(**variant(name)))
    with pytest.raises(ConfigurationError, match=f"a {name} model cannot be divided"):
        WeightShard(0, 2).config(config)
