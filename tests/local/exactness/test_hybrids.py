"""Recurrent hybrids (Qwen 3-Next and 3.5): logits of transformers, exact speculation, and what is refused."""

from __future__ import annotations

import json
import logging
import shutil

import numpy as np
import pytest
import tiny_heads
import torch
from drafted_answers import target_distribution
from specclient_local.decoding.speculate import Speculator
from specclient_local.loading.drafter_set import drafter_for_heads, drafter_for_model
from specclient_local.loading.memory_plan import memory_plans
from specclient_local.loading.model_loader import ModelPlacement, load_model, uses_own_decoder
from specclient_local.loading.options import EngineOptions
from specclient_local.model.config import read_config
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import TokenTree
from tiny_models import as_table, distribution_of_rounds, letter_tokenizer, load, write_checkpoint

from specclient.errors import BadRequestError, CheckpointError, ConfigurationError

VOCAB = 8
PROMPT = [3, 1, 4, 1, 5]
STATES = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_hidden_layers": 3,
    "spread": 0.1,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
}
FAMILIES = {
    "qwen3_next": {"kind": "qwen3_next", **EXPERTS, **STATES},
    "qwen3_next-some-dense": {"kind": "qwen3_next", "mlp_only_layers": [1], **EXPERTS, **STATES},
    "qwen3_5_text": {"kind": "qwen3_5_text", **STATES},
    "qwen3_5_moe_text": {"kind": "qwen3_5_moe_text", **EXPERTS, **STATES},
}
VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "patch_size": 4,
    "num_position_embeddings": 16,
}
LETTERS = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "eos_token_id": None,
    "bos_token_id": None,
}


@pytest.fixture(scope="module", params=FAMILIES)
def target(request, checkpoint):
    return checkpoint(**FAMILIES[request.param])


def ids_of(count, seed=1):
    return torch.randint(2, 300, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@torch.inference_mode()
def test_prompts_and_single_tokens_have_the_logits_of_transformers(target):
    """Prompts of more than one chunk of the rule, in two passes; short ones; and tokens one by one."""
    from transformers import AutoModelForCausalLM

    assert uses_own_decoder(target, "auto")
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    runner = DecoderRunner.load(target, dtype="float32", slots=2, context=128)
    ids = ids_of(112)
    expected = model(input_ids=torch.tensor([ids])).logits[0]
    for prompt in ((80, 20), (5,)):
        runner.truncate(1, 0)
        done = 0
        for count in prompt:
            runner.prefill(1, ids[done : done + count])
            done += count
        rows = [runner.score(1, [token])[0] for token in ids[done : done + 12]]
        torch.testing.assert_close(torch.stack(rows), expected[done : done + 12], atol=1e-4, rtol=0)


def with_vision(folder, text, *, fused, **more):
    """Write a model with weights for images, whose text part is that of a checkpoint, and return it."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoConfig, AutoModelForImageTextToText

    raw = json.loads((text / "config.json").read_text())
    kind = raw["model_type"].removesuffix("_text")
    vision = VISION | {"out_hidden_size": raw["hidden_size"]}
    config = AutoConfig.for_model(kind, text_config=raw, vision_config=vision, **more)
    model = AutoModelForImageTextToText.from_config(config).float().eval()
    own = load_file(text / "model.safetensors")
    shutil.copytree(text, folder)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors |= {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in own.items()}
    if fused:
        tensors = fused_experts(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def fused_experts(tensors):
    """Return tensors whose experts are two tensors in each layer, as published checkpoints have them."""
    found, experts = {}, {}
    for name, tensor in tensors.items():
        layer, mark, rest = name.partition(".mlp.experts.")
        if not mark:
            found[name] = tensor
            continue
        number, matrix, _ = rest.split(".")
        experts.setdefault(layer, {}).setdefault(int(number), {})[matrix] = tensor
    for layer, own in experts.items():
        each = [own[i] for i in range(len(own))]
        gate_up = [torch.cat((one["gate_proj"], one["up_proj"])) for one in each]
        found[f"{layer}.mlp.experts.gate_up_proj"] = torch.stack(gate_up)
        found[f"{layer}.mlp.experts.down_proj"] = torch.stack([one["down_proj"] for one in each])
    return found


@pytest.mark.parametrize(
    ("kind", "fused"), [("qwen3_5", False), ("qwen3_5_moe", False), ("qwen3_5_moe", True)]
)
def test_of_a_model_with_weights_for_images_the_text_part_is_read(checkpoint, tmp_path, caplog, kind, fused):
    from transformers import AutoModelForImageTextToText

    folder = with_vision(tmp_path / "vision", checkpoint(**FAMILIES[f"{kind}_text"]), fused=fused)
    with caplog.at_level(logging.WARNING, logger="specclient"), load(folder, context=64) as engine:
        answer = engine.generate("def f", max_tokens=12, method="plain").token_ids
        assert engine.generate("def f", max_tokens=12, method="ngram").token_ids == answer
    assert "only its text part is loaded" in caplog.text
    ids = ids_of(40)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    runner = load_model(folder, ModelPlacement(), slots=1, context=64)
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([ids])).logits[0]
        torch.testing.assert_close(runner.read(0, ids), expected, atol=1e-4, rtol=0)
    assert read_config(folder).eos == (1,), "the text part names it"


@pytest.mark.parametrize("text", [None, [], "text"])
def test_a_model_without_the_shape_of_its_text_part_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": text}))
    with pytest.raises(CheckpointError, match=r"text_config is .*; it must be an object"):
        read_config(tmp_path)


@torch.inference_mode()
def test_rows_have_the_same_bits_in_any_pass_and_after_a_rejection(target):
    runner = DecoderRunner.load(target, dtype="float32", slots=2, context=64)
    prompt, drafted = ids_of(30), [7, 8, 9, 10, 11]

    def read(slot):
        runner.truncate(slot, 0)
        runner.prefill(slot, prompt)

    read(0)
    alone = [runner.score(0, [token])[0] for token in (5, *drafted)]
    for kept in range(len(drafted) + 1):
        read(0)
        read(1)
        chain = TokenTree.chain(drafted)
        one, _ = runner.score_all([SlotInput(0, [5], chain), SlotInput(1, [6], TokenTree.chain([2]))])
        assert torch.equal(one, torch.stack(alone))
        runner.keep(0, len(prompt), list(range(kept)))
        following = [3, *drafted[kept:]] if kept < len(drafted) else [3]
        after = runner.score(0, following[:1])[0]
        read(1)
        expected = [runner.score(1, [token])[0] for token in (5, *drafted[:kept], 3)][-1]
        assert torch.equal(after, expected), kept


@pytest.mark.parametrize("slots", [1, 3])
def test_greedy_answers_of_every_method_equal_plain_decoding(target, checkpoint, slots):
    prompts = ["def f(x):", "import ", "return 1\n" * 6]
    accepted = 0
    with load(target, checkpoint(seed=5), slots=slots) as engine:
        assert "union" not in engine.methods
        plain = [engine.generate(p, max_tokens=20, method="plain").token_ids for p in prompts]
        for method in ("draft", "ngram", "suffix", "prediction"):
            sinks = [[] for _ in prompts]
            for i, (prompt, sink) in enumerate(zip(prompts, sinks, strict=True)):
                more = {"prediction": [*plain[i][:9], 7, *plain[i][9:]]} if method == "prediction" else {}
                engine.add(prompt, sink.append, max_tokens=20, method=method, draft_length=3, **more)
            while engine.step():
                pass
            for i, sink in enumerate(sinks):
                answer = sink[-1].generation
                assert answer.token_ids == plain[i], method
                counts = answer.speculation
                accepted += (counts.accepted or 0) + (counts.predicted_accepted or 0)
        again = engine.generate(prompts[0], max_tokens=20, method="plain")
        assert again.token_ids == plain[0]
        assert again.cached_tokens == 0, "no prefix of a recurrent model is shared"
    assert accepted > 0


@pytest.fixture(scope="module", params=["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"])
def letters(request, tmp_path_factory):
    """Write a target over eight letters with an MTP head of its own, and a draft."""
    folder = tmp_path_factory.mktemp("letters")
    shape = FAMILIES[request.param] | {"spread": 0.2, "num_hidden_layers": 2} | LETTERS
    shape["layer_types"] = ["linear_attention", "full_attention"]
    seed = 6 if "moe" in request.param else 5  # of targets that accept some of what the draft proposes
    target = write_checkpoint(folder / "target", seed=seed, tokenizer=letter_tokenizer(VOCAB), **shape)
    tiny_heads.mtp(target, "qwen")
    draft = {"seed": 3, "tokenizer": letter_tokenizer(VOCAB), "spread": 0.3, "num_hidden_layers": 1}
    return target, write_checkpoint(folder / "draft", **(LETTERS | draft))


@pytest.mark.parametrize("method", ["draft", "mtp"])
def test_rounds_follow_the_targets_distribution(letters, method):
    target, draft = letters
    config = read_config(target)
    taps = (config.layers,) if method == "mtp" else ()
    runner = load_model(target, ModelPlacement(), slots=1, context=64, taps=taps)
    if method == "mtp":
        _, drafter = drafter_for_heads(runner, target)
    else:
        own = load_model(draft, ModelPlacement(), slots=1, context=64, exact=False)
        drafter = drafter_for_model(own, VOCAB)
    speculating = Speculator(runner, {method: drafter})
    params = {"temperature": 1.1, "top_k": 2, "draft_length": 2}
    found, kept = distribution_of_rounds(speculating, PROMPT, method=method, **params)
    np.testing.assert_allclose(
        as_table(found, VOCAB), target_distribution(target, PROMPT, VOCAB, 1.1, 2), atol=1e-5
    )
    assert kept > 0


def test_an_mtp_head_of_a_hybrid_leaves_greedy_answers_unchanged(letters):
    target, _ = letters
    with load(target, method="mtp", slots=2) as engine:
        plain = engine.generate(PROMPT, max_tokens=20, method="plain").token_ids
        found = engine.generate(PROMPT, max_tokens=20, draft_length=3)
        assert found.token_ids == plain
        assert found.speculation.accepted > 0


def test_what_recurrent_layers_cannot_do_is_refused_by_name(target, checkpoint, tmp_path):
    name = read_config(target).model_type
    with load(target) as engine, pytest.raises(BadRequestError, match=f"a {name} model is recurrent"):
        engine.generate("def f", max_tokens=4, method="ngram", draft_tree=[2, 1])
    for draft, options, named in (
        (target, {}, f"the draft is a {name} model, which is recurrent"),
        (None, {"layer_skip": 1}, "recurrent in some layers and cannot skip them"),
        ([checkpoint(), checkpoint(seed=4)], {}, "draft names 2 models, whose union is a tree"),
        (None, {"graphs": "on"}, f"is a {name} model, whose passes have no static shapes"),
        (None, {"tensor_parallel": 2, "device": "cpu"}, f"a {name} model cannot be divided"),
    ):
        own = checkpoint() if draft == target else target
        with pytest.raises(ConfigurationError, match=named):
            load(own, draft, **options)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="whose matrices adapters cannot change"):
        load(target, adapters={"poems": str(tmp_path)})


def bytes_of(tensors):
    """Return the bytes that tensors keep in memory, of which some may be parts of the same."""
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}
    return sum(storages.values())


def test_the_plan_counts_states_of_recurrent_layers_instead_of_keys_and_values(target):
    config = read_config(target)
    (plan,) = memory_plans(target, [], EngineOptions(device="cpu"), 64, lambda _: None).values()
    (model,) = plan.models
    assert model.kv_per_token == 2 * 1 * config.kv_heads * config.head_dim * 4
    runner = DecoderRunner.load(target, dtype="float32", slots=1, context=64)
    for rows in (1, 40, 16):  # of the first pass, of a prompt's chunk, and the most that are recorded
        runner.read(0, ids_of(rows))
        held = bytes_of(
            t
            for each in runner.recurrent_states[0].layers.values()
            for t in (each.state, each.next_state, each.inputs, each.next_inputs, *recorded(each.rows))
        )
        assert held <= model.states, rows
    assert held == model.states
    assert runner.cache.rows.shape[0] == 1


def recorded(rows):
    return () if rows is None else (rows.inputs, rows.keys, rows.values, rows.decay, rows.beta)
