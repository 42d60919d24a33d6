"""Untrusted checkpoints: any content is read, or refused by a CheckpointError of one line, without a hang."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from specclient_local.engine.engine import Engine
from specclient_local.loading.model_loader import read_any_config
from specclient_local.model.checkpoint_files import MAX_JSON_BYTES, MAX_JSON_DEPTH, read_json
from specclient_local.model.config import DecoderConfig, read_config
from specclient_local.model.heads.checkpoint import read_heads, read_heads_shape
from specclient_local.model.hf.checkpoint import read_hf_config
from specclient_local.model.rope import frequencies
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.weights import count_numbers, load_weights, resolve_checkpoint
from tiny_models import write_checkpoint

from specclient.errors import CheckpointError, ConfigurationError

pytestmark = pytest.mark.timeout(120)

CONFIG = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
FUZZED = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    """Return a copy of a whole checkpoint, to be damaged."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tiny.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def assert_one_line(error: BaseException) -> None:
    text = str(error)
    assert text.isprintable(), text
    assert len(text) < 1500


def refusal(read: Any, *args: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(*args)
    assert_one_line(caught.value)
    return str(caught.value)


def read_or_refuse(read: Any, *args: Any) -> Any:
    """Return what is read, or None if it is refused as it should be."""
    try:
        return read(*args)
    except CheckpointError as error:
        assert_one_line(error)
        return None


# Values that no honest file holds


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_attention_heads", 0),
        ("num_attention_heads", -4),
        ("num_key_value_heads", 0),
        ("head_dim", 0),
        ("head_dim", -8),
        ("hidden_size", 0),
        ("hidden_size", 1e400),
        ("vocab_size", -1),
        ("vocab_size", 10**30),
        ("intermediate_size", 0),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 10**12),
        ("max_position_embeddings", -5),
        ("max_position_embeddings", 0),
        ("max_position_embeddings", float("nan")),
        ("rms_norm_eps", float("inf")),
        ("rope_theta", 0),
        ("rope_theta", "1e4"),
        ("eos_token_id", [[1]]),
        ("eos_token_id", "end"),
        ("architectures", {"a": 1}),
    ],
)
def test_an_absurd_value_is_refused_by_name(tmp_path: Path, field: str, value: Any) -> None:
    changed = CONFIG | {field: value} | ({"model_type": "new"} if field == "architectures" else {})
    (tmp_path / "config.json").write_text(json.dumps(changed))
    assert field.removesuffix("s") in refusal(read_config, tmp_path)


@pytest.mark.parametrize(
    "table",
    [
        {"rope_type": "yarn", "factor": 0},
        {"rope_type": "yarn", "factor": 4.0, "mscale": -10.0, "mscale_all_dim": -10.0 / 1.3862943611198906},
        {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1.0},
        {"rope_type": "yarn", "beta_slow": 1e-320},
        {"rope_type": "llama3", "low_freq_factor": 0},
        {"rope_type": "llama3", "low_freq_factor": 2, "high_freq_factor": 2},
        {"rope_type": "linear", "factor": float("nan")},
        {"rope_type": "longrope", "short_factor": [0.0] * 4, "long_factor": [1.0] * 4},
        {"rope_type": "longrope", "original_max_position_embeddings": 0},
        {"rope_type": "longrope", "original_max_position_embeddings": 1},
    ],
)
def test_absurd_rotations_are_refused(tmp_path: Path, table: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"rope_parameters": table}))
    assert "config.json" in refusal(read_config, tmp_path)


def test_tokens_outside_of_the_vocabulary_are_left_out(tmp_path: Path) -> None:
    changed = CONFIG | {"bos_token_id": 64, "eos_token_id": [-1, 2, 64, 10**30]}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    config = read_config(tmp_path)
    assert (config.bos, config.eos) == (None, (2,))


@pytest.mark.parametrize("depth", [MAX_JSON_DEPTH + 1, 900, 100_000])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors.index.json"])
def test_a_deep_file_is_refused(folder: Path, name: str, depth: int) -> None:
    (folder / name).write_text('{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}")
    assert "nested more than 64 levels deep" in refusal(Engine.load, folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_deep_file_of_the_tokenizer_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert name in refusal(lambda: Tokenizer(folder).template())


def test_a_file_may_be_as_deep_as_published_ones(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a": ' + "[" * (MAX_JSON_DEPTH - 1) + "]" * (MAX_JSON_DEPTH - 1) + "}")
    assert read_json(path)["a"]


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)  # sparse
    assert f"at most {MAX_JSON_BYTES} are read" in refusal(read_json, path)


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    hostile = "\x1b[2J\nall is well\n" * 50 + "\ud800"
    for change in (
        {"model_type": hostile},
        {"model_type": "x", "architectures": [hostile]},
        {"quantization_config": {"quant_method": hostile}},
        {"hidden_act": hostile},
        {"vocab_size": hostile},
        {"rope_parameters": {"rope_type": hostile}},
    ):
        (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
        refusal(read_config, tmp_path)


# Files that are no files

FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
         "model.safetensors", "model.safetensors.index.json", "chat_template.jinja")  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_fifo_in_place_of_a_file_is_refused_at_once(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    for read in (resolve_checkpoint, Engine.load, Tokenizer):
        assert f"{name} is a FIFO, not a regular file" in refusal(read, folder)


@pytest.mark.parametrize("read", [read_config, read_any_config, read_hf_config, load_weights, count_numbers])
def test_no_reader_waits_for_a_fifo(folder: Path, read: Any) -> None:
    config = read_config(folder)
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    assert "FIFO" in refusal(read, folder, *([config] if read is load_weights else []))


def test_a_device_and_a_folder_are_refused(folder: Path) -> None:
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "generation_config.json").symlink_to("/dev/zero")
    assert "is a device" in refusal(Engine.load, folder)
    (folder / "generation_config.json").unlink()
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    assert "is a folder" in refusal(Engine.load, folder)


@pytest.mark.parametrize("file", ["../model.safetensors", "/etc/passwd", "a/b", "", "..", "x\0y"])
def test_an_index_cannot_name_files_elsewhere(folder: Path, file: str) -> None:
    index = {"weight_map": dict.fromkeys(load_file(folder / "model.safetensors"), file)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "must be a file of the same folder" in refusal(count_numbers, folder)


# Fuzzed files

numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-3, 300),
    st.floats(),
    st.sampled_from([10**400, -(10**400), 2**31, 2**63]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=20), st.sampled_from(["yarn", "llama3"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ROPE = ("rope_type", "type", "factor", "rope_theta", "low_freq_factor", "high_freq_factor", "beta_fast",
        "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate", "short_factor",
        "long_factor", "original_max_position_embeddings", "partial_rotary_factor")  # fmt: skip
ropes = st.dictionaries(st.sampled_from(ROPE), values, max_size=6).flatmap(
    lambda table: st.sampled_from(["default", "linear", "dynamic", "yarn", "longrope", "llama3"]).map(
        lambda kind: {"rope_type": kind, **table}
    )
)
FIELDS = (*CONFIG, "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "sliding_window",
          "use_sliding_window", "max_window_layers", "layer_types", "bos_token_id", "eos_token_id",
          "architectures", "hidden_act", "quantization_config", "attention_bias")  # fmt: skip
configs = st.builds(
    lambda kind, rope, changes: CONFIG | {"model_type": kind, "rope_scaling": rope} | changes,
    st.sampled_from(["llama", "mistral", "qwen2", "qwen3"]),
    st.none() | ropes | values,
    st.dictionaries(st.sampled_from([name for name in FIELDS if name != "model_type"]), values, max_size=4),
)


@FUZZED
@given(raw=configs)
def test_any_config_is_read_or_refused(tmp_path: Path, raw: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(raw))
    config = read_or_refuse(read_config, tmp_path)
    if config is not None:
        assert isinstance(config, DecoderConfig)
        assert min(config.heads, config.kv_heads, config.head_dim, config.layers, config.vocab_size) > 0
        assert 2 <= config.context < 2**31
        assert config.bos is None or 0 <= config.bos < config.vocab_size
        assert len(frequencies(config.rope, config.head_dim, config.context)) == config.head_dim // 2


@FUZZED
@given(data=st.data())
def test_any_bytes_of_a_config_are_read_or_refused(tmp_path: Path, data: Any) -> None:
    text = bytearray(json.dumps(CONFIG).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=8))
    (tmp_path / "config.json").write_bytes(bytes(text))
    read_or_refuse(read_config, tmp_path)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a JSON document, of lists only the first few."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in list(inner)[:6] for place in places(each, (*path, key)))]


@settings(FUZZED, max_examples=80)
@given(data=st.data())
def test_any_tokenizer_is_read_or_refused(tiny: Path, tmp_path: Path, data: Any) -> None:
    document = json.loads((tiny / "tokenizer.json").read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places(document)[1:]))
        holder = document
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = data.draw(values)
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    tokenizer = read_or_refuse(Tokenizer, tmp_path)
    if tokenizer is not None:
        assert all(isinstance(tokenizer.piece(token), bytes) for token in range(300))


HEADER = st.dictionaries(
    st.sampled_from(["model.norm.weight", "model.embed_tokens.weight", "__metadata__", "x"]),
    st.fixed_dictionaries(
        {},
        optional={
            "dtype": st.sampled_from(["F32", "BF16", "F8_E4M3", "F4", "I64", "BOOL", "F6_E2M3"]) | values,
            "shape": st.lists(numbers, max_size=4) | values,
            "data_offsets": st.lists(st.integers(0, 300), min_size=2, max_size=2) | values,
        },
    )
    | values,
    max_size=4,
)


@FUZZED
@given(header=HEADER, length=st.none() | st.integers(0, 2**64 - 1), size=st.integers(0, 300))
def test_any_safetensors_header_is_read_or_refused(
    tiny: Path, tmp_path: Path, header: dict[str, Any], length: int | None, size: int
) -> None:
    text = json.dumps(header).encode()
    file = struct.pack("<Q", len(text) if length is None else length) + text + bytes(size)
    (tmp_path / "model.safetensors").write_bytes(file)
    (tmp_path / "config.json").write_bytes((tiny / "config.json").read_bytes())
    read_or_refuse(count_numbers, tmp_path)
    read_or_refuse(load_weights, tmp_path, read_config(tmp_path))


@FUZZED
@given(data=st.data())
def test_any_bytes_of_safetensors_are_read_or_refused(tiny: Path, tmp_path: Path, data: Any) -> None:
    file = bytearray((tiny / "model.safetensors").read_bytes())
    head = 8 + struct.unpack("<Q", file[:8])[0]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, head))
        file[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    del file[data.draw(st.sampled_from([None, head // 2, head, len(file) - 1])) :]
    (tmp_path / "model.safetensors").write_bytes(bytes(file))
    read_or_refuse(load_weights, tmp_path, read_config(tiny))


@FUZZED
@given(
    index=st.fixed_dictionaries(
        {}, optional={"weight_map": st.dictionaries(st.text(max_size=9), values) | values}
    )
)
def test_any_index_is_read_or_refused(tmp_path: Path, index: dict[str, Any]) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    read_or_refuse(count_numbers, tmp_path)


HEADS = ("speculators_model_type", "transformer_layer_config", "medusa_num_heads", "medusa_num_layers",
         "draft_vocab_size", "target_hidden_size", "eagle_aux_hidden_state_layer_ids", "layernorms",
         "norm_output", "original_lm_head")  # fmt: skip


@settings(FUZZED, max_examples=80)
@given(
    changes=st.dictionaries(
        st.sampled_from(HEADS), values | st.sampled_from(["eagle", "eagle3"]), max_size=4
    ),
    layer=configs,
)
def test_any_config_of_heads_is_read_or_refused(
    tiny: Path, tmp_path: Path, changes: dict[str, Any], layer: dict[str, Any]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**layer, "num_hidden_layers": 1, **changes}))
    target = read_config(tiny)
    read_or_refuse(read_heads_shape, tmp_path, target)
    read_or_refuse(read_heads, tmp_path, target)


@settings(FUZZED, max_examples=60)
@given(
    changes=st.dictionaries(
        st.sampled_from([*FIELDS, "n_positions", "n_head", "n_layer"]), values, max_size=4
    )
)
def test_any_config_for_transformers_is_read_or_refused(
    tiny: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    (tmp_path / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **changes}))
    read_or_refuse(read_hf_config, tmp_path)


@settings(FUZZED, max_examples=40)
@given(raw=configs)
def test_an_engine_of_any_config_is_loaded_or_refused(folder: Path, raw: dict[str, Any]) -> None:
    """Also where the configuration is possible, but not that of the weights."""
    (folder / "config.json").write_text(json.dumps({**raw, "vocab_size": raw["vocab_size"]}))
    try:
        Engine.load(folder, threads=1, slots=1).close()
    except (CheckpointError, ConfigurationError) as error:  # ConfigurationError: too large for the memory
        assert_one_line(error)
