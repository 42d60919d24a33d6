"""MTP heads of every layout against transformers' layers, and checkpoints whose head cannot be used."""

from __future__ import annotations

import pytest
import tiny_heads
import torch
from safetensors.torch import load_file
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.memory_plan import memory_plans
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.loading.options import EngineOptions
from specclient_local.model.config import read_config
from specclient_local.model.heads.mtp_checkpoint import read_mtp_shape
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import TokenTree
from tiny_models import load, write_checkpoint
from torch.nn import functional as F

from specclient.errors import CheckpointError, ConfigurationError

TOKENS = [5, 17, 120, 33, 80, 201, 9]
NEXT = 44
EPS = 1e-6
EXPERTS = {"head_dim": 8, "moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
CASES = {
    "mimo": ("mimo", {"kind": "qwen2"}, {}),
    "mimo in the other family": ("mimo", {"kind": "llama", "rms_norm_eps": EPS}, {}),
    "deepseek": ("deepseek", {"kind": "qwen3", "head_dim": 8}, {}),
    "deepseek with a head": ("deepseek", {"kind": "llama", "rms_norm_eps": EPS}, {"own_head": True}),
    "qwen": ("qwen", {"kind": "qwen3", "head_dim": 8}, {}),
    "qwen with experts": ("qwen", {"kind": "qwen3_moe", "num_hidden_layers": 2, **EXPERTS}, {}),
}


@pytest.fixture(params=CASES, scope="module")
def case(request, tmp_path_factory):
    layout, shape, options = CASES[request.param]
    folder = write_checkpoint(tmp_path_factory.mktemp("mtp") / "target", spread=0.2, **shape)
    return layout, tiny_heads.mtp(folder, layout, **options)


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def model_of_one_layer(folder, prefix, norm_name):
    """Return transformers' model with the head's layer as its only one, and its last norm."""
    from transformers import AutoConfig, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = 1
    if hasattr(config, "layer_types"):
        config.layer_types = config.layer_types[-1:]
    w = load_file(folder / "model.safetensors")
    names = {
        f"model.layers.0.{name.removeprefix(prefix)}": t for name, t in w.items() if name.startswith(prefix)
    }
    names |= {"model.norm.weight": w[norm_name], "model.embed_tokens.weight": w["model.embed_tokens.weight"]}
    names["lm_head.weight"] = w.get(f"{prefix}shared_head.head.weight", w["lm_head.weight"])
    own = folder.parent / "one"
    if not own.exists():
        own.mkdir()
        config.save_pretrained(own)
        from safetensors.torch import save_file

        copies = {name: tensor.clone() for name, tensor in names.items()}
        save_file(copies, own / "model.safetensors", metadata={"format": "pt"})
    return model, AutoModelForCausalLM.from_pretrained(own, dtype=torch.float32).eval()


def by_transformers(layout, folder):
    """Yield the head's logits after the tokens, and after one drafted token."""
    prefix, *names = tiny_heads.MTP_NAMES[layout]
    layers = read_config(folder).layers
    prefix = prefix.format(layers=layers)
    token, state, fc, last = (f"{name.format(prefix)}.weight" for name in names)
    w = load_file(folder / "model.safetensors")
    model, head = model_of_one_layer(folder, prefix, last)
    with torch.inference_mode():
        states = model.model(torch.tensor([TOKENS[:-1]])).last_hidden_state[0]
        ids = TOKENS[1:]
        for _ in range(2):
            parts = [norm(w["model.embed_tokens.weight"][ids], w[token]), norm(states, w[state])]
            joined = F.linear(torch.cat(parts[::-1] if layout == "mimo" else parts, -1), w[fc])
            kept = []
            hook = head.model.norm.register_forward_pre_hook(
                lambda _, given, kept=kept: kept.append(given[0][0])
            )
            found = head.model(inputs_embeds=joined[None]).last_hidden_state[0]
            hook.remove()
            yield head.lm_head(found[-1])
            states = torch.cat((states, (kept[0] if layout == "deepseek" else found)[-1:]))
            ids = [*ids, NEXT]


@torch.inference_mode()
def by_engine(folder, graphs):
    """Yield the same logits, computed by the engine's runner."""
    config = read_config(folder)
    placed = ModelPlacement(device="cpu", graphs=graphs if config.llama_layout else "off")
    runner = load_model(folder, placed, slots=1, context=64, taps=(config.layers,))
    _, drafter = drafter_for_heads(runner, folder)
    mtp = drafter.runner
    runner.prefill(0, TOKENS[:-1])
    states = mtp.head.read(runner.features(0, 0, len(TOKENS) - 1, (config.layers,)))
    mtp.extend(0, TOKENS[1:-1], states[:-1])
    (first,), (hidden,) = mtp.step([SlotInput(0, TOKENS[-1:])], [states[-1:]])
    (second,), _ = mtp.step([SlotInput(0, [], TokenTree.chain([NEXT]))], [hidden])
    yield from (first[0], second[0])


@pytest.mark.parametrize("graphs", ["off", "on"])
def test_the_logits_of_a_head_are_those_of_its_layer_in_transformers(case, graphs):
    layout, folder = case
    for own, expected in zip(by_engine(folder, graphs), by_transformers(layout, folder), strict=True):
        torch.testing.assert_close(own, expected, atol=2e-4, rtol=1e-4)


def test_a_mimo_checkpoint_is_read_as_one_of_qwen2(checkpoint, tmp_path):
    import json

    source = checkpoint(kind="qwen2", spread=0.2)
    folder = tmp_path / "mimo"
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    raw = json.loads((folder / "config.json").read_text())
    raw |= {"model_type": "mimo", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(raw))
    tiny_heads.mtp(folder, "mimo")
    with load(source) as one, load(folder, method="mtp") as other:
        expected = one.generate("def f", max_tokens=12).token_ids
        assert other.generate("def f", max_tokens=12).token_ids == expected
        assert other.generate("def f", max_tokens=12, method="plain").token_ids == expected


def test_the_plan_counts_the_head_and_the_hidden_states_that_it_reads(case):
    _, folder = case
    options = EngineOptions(method="mtp", device="cpu")
    (plan,) = memory_plans(folder, [], options, 64, lambda _: None, heads=[folder]).values()
    head = next(model for model in plan.models if model.name == "mtp")
    config = read_config(folder)
    assert read_mtp_shape(folder, config).parameters == head.parameters
    assert head.kv_per_token == 2 * config.kv_heads * config.head_dim * 4
    states = next(model for model in plan.models if model.name == "hidden states")
    assert states.kv_per_token == config.hidden_size * 4


@pytest.mark.parametrize(
    ("shape", "options", "error", "named"),
    [
        ({}, {"method": "mtp"}, CheckpointError, r"ships no MTP head: .*mtp_layers\.0\.input_proj"),
        ({"kind": "gpt2"}, {"method": "mtp"}, ConfigurationError, "method is 'mtp', but transformers runs"),
        (
            {"kind": "gemma2", "head_dim": 16},
            {"method": "mtp"},
            CheckpointError,
            "in a gemma2 model, whose layers heads cannot compute",
        ),
        ({}, {"method": "mtp", "tensor_parallel": 2}, ConfigurationError, "keeps no hidden states"),
    ],
)
def test_heads_that_cannot_be_used_are_refused_by_name(tmp_path, shape, options, error, named):
    folder = write_checkpoint(tmp_path / "target", **shape)
    if shape.get("kind") == "gemma2":
        tiny_heads.mtp(folder, "qwen")
    with pytest.raises(error, match=named):
        load(folder, **options)


def test_a_request_for_a_head_that_was_not_loaded_says_how_to_load_it(checkpoint):
    from specclient.errors import BadRequestError

    with load(checkpoint()) as engine, pytest.raises(BadRequestError, match="method='mtp'"):
        engine.generate("def f", max_tokens=4, method="mtp")
