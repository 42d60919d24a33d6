"""LoRA adapters in PEFT's format against models into which they are merged, alone and together in a batch."""

from __future__ import annotations

import json
import shutil

import anyio
import pytest
import torch
from safetensors.torch import load_file, save_file
from specclient_local import Engine
from specclient_local.api.backend import LocalBackend
from specclient_local.loading import model_loader
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import TokenTree
from tiny_models import load

from specclient.errors import BadRequestError, CheckpointError, ConfigurationError
from specclient.types import inference_methods
from specclient.types.request import Request

MODULES = {
    "llama": ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"),
    "phi3": ("self_attn.qkv_proj", "mlp.gate_up_proj"),
    "gemma2": ("self_attn.k_proj", "mlp.gate_proj"),
    "qwen3_moe": ("self_attn.q_proj", "self_attn.k_proj"),
}
OPTIONS = {
    "llama": {},
    "phi3": {"kind": "phi3", "pad_token_id": 1},
    "gemma2": {"kind": "gemma2", "head_dim": 16, "pad_token_id": 1},
    "qwen3_moe": {
        "kind": "qwen3_moe",
        "head_dim": 16,
        "moe_intermediate_size": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
}
IDS = list(range(5, 45))


def write_adapter(folder, base, modules, *, seed=0, rank=4, **settings):
    """Write an adapter of every layer's modules, and return the changes ``[out, in]`` by tensor."""
    weights, torch_seed = load_file(base / "model.safetensors"), torch.Generator().manual_seed(seed)
    table = {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "target_modules": ["q_proj"], "bias": "none"}
    table |= settings
    scale = table["lora_alpha"] / (rank**0.5 if settings.get("use_rslora") else rank)
    tensors, changes = {}, {}
    for layer in range(2):
        for module in modules:
            name = f"model.layers.{layer}.{module}"
            out, width = weights[f"{name}.weight"].shape
            down = torch.randn(rank, width, generator=torch_seed) * 0.2
            up = torch.randn(out, rank, generator=torch_seed) * 0.2
            tensors[f"base_model.model.{name}.lora_A.weight"] = down
            tensors[f"base_model.model.{name}.lora_B.weight"] = up
            changes[f"{name}.weight"] = scale * up @ down
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(table))
    return changes


def merged(base, changes, folder):
    """Copy a checkpoint with the changes added to its weights."""
    shutil.copytree(base, folder)
    weights = load_file(base / "model.safetensors")
    weights |= {name: weights[name] + change for name, change in changes.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def loaded(folder, *adapters):
    return load_model(folder, ModelPlacement(adapters=adapters), slots=3, context=64)


@pytest.mark.parametrize("family", MODULES)
@torch.inference_mode()
def test_rows_of_each_adapter_equal_those_of_the_merged_model(family, checkpoint, tmp_path):
    base = checkpoint(spread=0.2, **OPTIONS[family])
    one = write_adapter(tmp_path / "one", base, MODULES[family], use_rslora=True)
    other = write_adapter(tmp_path / "other", base, MODULES[family][:1], seed=1, rank=2)
    runner = loaded(base, tmp_path / "one", tmp_path / "other")
    models = [merged(base, own, tmp_path / f"m{i}") for i, own in enumerate((one, other))]
    expected = [loaded(folder).score(0, IDS[:30], TokenTree.chain(IDS[30:])) for folder in (*models, base)]
    inputs = []
    for slot, adapter in enumerate((0, 1, None)):
        runner.use_adapter(slot, adapter)
        runner.prefill(slot, IDS[:29])
        inputs.append(SlotInput(slot, [IDS[29]], TokenTree.chain(IDS[30:])))
    together = runner.score_all(inputs)
    for own, right in zip(together, expected, strict=True):
        torch.testing.assert_close(own, right, atol=1e-4, rtol=0)
    runner.truncate(1, 29)
    alone = torch.stack([runner.score(1, [token])[0] for token in IDS[29:]])
    assert torch.equal(together[1], alone)


REFUSED = {
    "another base": ({}, {"hidden_size": 48}, "the adapter belongs to another model"),
    "fewer layers": ({}, {"num_hidden_layers": 1}, "layers.1.* is no matrix of a layer of this llama model"),
    "another kind": ({"peft_type": "IA3"}, {}, "peft_type is 'IA3'; supported is 'LORA'"),
    "magnitudes": ({"use_dora": True}, {}, "use_dora is True; supported is False"),
    "whole modules": ({"modules_to_save": ["lm_head"]}, {}, r"modules_to_save is .'lm_head'"),
    "another rank": ({"r": 3}, {}, "has rank 4, but adapter_config.json has r 3"),
    "no rank": ({"r": "many"}, {}, "r is 'many'; it must be a whole number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_adapters_are_refused_in_one_line_before_weights_are_read(
    name, checkpoint, tmp_path, monkeypatch
):
    settings, shape, message = REFUSED[name]
    write_adapter(tmp_path / "a", checkpoint(), MODULES["llama"])
    table = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(table | settings))
    monkeypatch.setattr(model_loader, "load_weights", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(CheckpointError, match=message) as refusal:
        load(checkpoint(**shape), adapters={"a": tmp_path / "a"})
    assert "\n" not in str(refusal.value)


def test_a_missing_adapter_is_named_with_the_files_of_one(tmp_path):
    where = str(tmp_path / "nothing")
    with pytest.raises(
        CheckpointError, match=f"no adapter at {where}; name a folder with adapter_config.json"
    ):
        Engine.load("demo", adapters={"poems": where})


def test_requests_of_several_adapters_share_an_engine(checkpoint, tmp_path):
    """The draft has an adapter of its own; a prompt's cache is not shared between adapters."""
    base, draft = checkpoint(eos_token_id=None), checkpoint(seed=3, eos_token_id=None, spread=0.3)
    changes = write_adapter(tmp_path / "one", base, MODULES["llama"])
    write_adapter(tmp_path / "two", draft, MODULES["llama"], seed=2)
    adapters = {
        "one": {"path": tmp_path / "one", "draft": tmp_path / "two"},
        "two": {"draft": tmp_path / "two"},
    }
    with load(merged(base, changes, tmp_path / "merged")) as engine:
        right = engine.generate(IDS, max_tokens=16).token_ids
    with load(base, draft, adapters=adapters) as engine:
        plain, own, again, drafted = (
            engine.generate(IDS, max_tokens=16, adapter=name, method=method).token_ids
            for name, method in ((None, "plain"), ("one", "draft"), (None, "draft"), ("two", "draft"))
        )
        with pytest.raises(BadRequestError, match="adapter is 'three'; allowed is one of one, two"):
            engine.generate(IDS, max_tokens=4, adapter="three")
    assert own == right != plain
    assert plain == again == drafted


def test_a_configured_adapter_is_a_model_of_its_own_name(checkpoint, tmp_path):
    base = checkpoint()
    write_adapter(tmp_path / "one", base, MODULES["llama"])
    table = {"path": str(base), "threads": 1, "slots": 1, "adapters": {"one": str(tmp_path / "one")}}
    backend = LocalBackend({"models": {"big": table}})
    assert {"big", "big:one"} <= {model.id for model in backend.models()}
    engine = backend.engine_for("big:one")
    assert engine is backend.engine_for("big")

    def text(model, **params):
        settings = {"prompt": "ab", "max_tokens": 8, "temperature": 0, **params}
        request = Request(inference_methods.COMPLETION, f"local/{model}", settings)
        answer, _ = anyio.run(backend.complete, request, model)
        return answer.choices[0].text

    assert text("big") != text("big:one")
    with pytest.raises(BadRequestError, match="unknown field 'adapter'"):
        text("big", specclient={"adapter": "one"})  # a key for "big" is none for its adapters
    backend._close()
    with pytest.raises(ConfigurationError, match="has adapters and engine"):
        LocalBackend({"models": {"big": table | {"engine": "vllm"}}})
    with pytest.raises(ConfigurationError, match="adapters has 'a:b'"):
        LocalBackend({"models": {"big": table | {"adapters": {"a:b": "x"}}}})
