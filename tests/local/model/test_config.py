"""Reading config.json, and checking sampling parameters: errors have the value and the allowed ones."""

from __future__ import annotations

import json
import math
import sys

import pytest
import specclient_local
from specclient_local.loading.configured_models import resolve_pair_name
from specclient_local.model.config import BUNDLED, read_config
from specclient_local.request.params import SamplingParams

from specclient.errors import BadRequestError, CheckpointError

LLAMA = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


def read(tmp_path, generation=None, **changes):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | changes))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    return read_config(tmp_path)


def test_defaults_are_those_of_the_model_family(tmp_path):
    config = read(tmp_path)
    assert (config.kv_heads, config.head_dim, config.tied, config.norm_eps) == (4, 8, False, 1e-6)
    assert (config.qkv_bias, config.o_bias, config.mlp_bias, config.qk_norm) == (False, False, False, False)
    assert config.rope.theta == 10_000.0
    assert config.eos == ()
    assert read(tmp_path, model_type="qwen2").qkv_bias
    assert not read(tmp_path, model_type="qwen2").o_bias
    assert read(tmp_path, model_type="qwen3").qk_norm


@pytest.mark.parametrize(
    "written",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}},
    ],
)
def test_old_and_new_rope_settings_are_equivalent(tmp_path, written):
    rope = read(tmp_path, **written).rope
    assert (rope.theta, rope.kind, rope.factor) == (5e5, "linear", 2.0)


def test_end_tokens_are_read_from_both_files(tmp_path):
    assert read(tmp_path, generation={"eos_token_id": [2, 7]}, eos_token_id=2).eos == (2, 7)
    assert read(tmp_path, generation={}, eos_token_id=[3]).eos == (3,)


def test_sliding_layers_are_read_in_each_familys_format(tmp_path):
    def sliding(kind, **changes):
        config = read(tmp_path, model_type=kind, **({"sliding_window": 32} | changes))
        assert config.context == 128
        return config.window, config.sliding

    on = {"use_sliding_window": True}
    assert sliding("llama") == (None, (False, False))
    assert sliding("mistral") == (32, (True, True))
    assert sliding("mistral", sliding_window=None) == (None, (False, False))
    assert sliding("qwen2", use_sliding_window=False) == (None, (False, False))
    assert sliding("qwen2", **on) == (None, (False, False))  # from layer 28 on by default
    assert sliding("qwen2", max_window_layers=1, **on) == (32, (False, True))
    assert sliding("qwen3", max_window_layers=0, **on) == (32, (True, True))
    assert sliding("qwen3", layer_types=["sliding_attention", "full_attention"], **on) == (32, (True, False))
    assert read(tmp_path, model_type="mistral").window == 4096


def test_rope_scaling_extends_the_context(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert read(tmp_path, rope_scaling=yarn).context == 512
    assert read(tmp_path, rope_scaling=yarn | {"original_max_position_embeddings": 32}).context == 128
    assert read(tmp_path, rope_scaling={"type": "dynamic", "factor": 4.0}).context == 128


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
            "'gpt2'.*GPT2LM.*llama, mimo, mistral",
        ),
        ({"rope_scaling": {"rope_type": "su"}}, "RoPE type 'su'.*default, linear, dynamic, yarn, longrope"),
        (
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}},
            "short_factor has 1 and long_factor 0",
        ),
        (
            {"model_type": "qwen3", "use_sliding_window": True, "layer_types": ["chunked_attention"] * 2},
            "layer_types is .'chunked_attention'.*sliding_attention and full_attention",
        ),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported is 'silu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config says .*unquantised"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 must be a multiple of num_key_value_heads 3"),
        ({"vocab_size": "many"}, "vocab_size is 'many'; it must be a whole number"),
        ({"rope_scaling": 3}, "wrong type"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor is 0.5; supported is 1.0",
        ),
    ],
)
def test_unsupported_settings_raise_with_the_supported_ones(tmp_path, changes, message):
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path, **changes)


def test_invalid_files_raise_with_the_reason(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json is not readable JSON"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="contains a list"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(CheckpointError, match="'num_attention_heads' is missing"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", None),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_p", False),
        ("top_k", -1),
        ("top_k", 2.0),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("seed", "x"),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", ["a"] * 17),
        ("stop", [1]),
        ("stop", 3),
        ("draft_length", 11),
        ("draft_length", -1),
        ("method", "magic"),
    ],
)
def test_an_invalid_parameter_raises_with_its_name_and_value(name, value):
    with pytest.raises(BadRequestError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name
    assert caught.value.status_code == 400
    shown = (value,) if name == "stop" and isinstance(value, str) else value
    assert str(caught.value).startswith(f"{name} is {shown!r}; allowed is ")


def test_valid_parameters_are_accepted():
    params = SamplingParams(
        max_tokens=None,
        temperature=0,
        top_p=1,
        top_k=0,
        seed=-(2**63),
        stop="\n",
        draft_length=0,
        method="plain",
    )
    assert params.stop == ("\n",)
    assert SamplingParams(stop=None).stop == ()
    assert SamplingParams(stop=["a", "b"], seed=2**64 - 1).stop == ("a", "b")


def test_without_torch_the_error_names_the_package_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "specclient_local.request.sequence", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"torch missing.*pip install 'specclient\[local\]'"
    ) as caught:
        _ = specclient_local.TokenScore
    assert caught.value.name == "torch"


def test_the_bundled_pair_can_be_named_by_its_route():
    for name in ("demo", "local/demo"):
        assert resolve_pair_name(name, None) == (BUNDLED / "target", BUNDLED / "draft")
        assert resolve_pair_name(name, "own")[1] == "own"
    assert resolve_pair_name("other/demo", None) == ("other/demo", None)
