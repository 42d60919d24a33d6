"""The modules of a checkpoint as untrusted input: what is read, and errors of one line that name the file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from specclient_local.embedding.layout import POOLING_FIELDS, POOLING_MODES
from specclient_local.embedding.layout_reader import read_layout
from specclient_local.loading.embedding_loader import load_embedder
from specclient_local.loading.embedding_options import EmbeddingOptions

from specclient.errors import CheckpointError

Change = Callable[[Path], None]


@pytest.fixture
def folder(embedding_checkpoint, tmp_path: Path) -> Path:
    """Return a copy of a checkpoint with every kind of module, to be damaged."""
    source = embedding_checkpoint(
        kind="bert", pooling=("mean",), steps=("Dense", "LayerNorm", "Normalize"), max_seq_length=32
    )
    return Path(shutil.copytree(source, tmp_path / "checkpoint"))


def edited(name: str, **values: Any) -> Change:
    """Return a change of an object's fields; None removes one."""

    def change(folder: Path) -> None:
        path = folder / name
        raw = json.loads(path.read_text()) if path.exists() else {}
        raw |= values
        path.write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))

    return change


def module(number: int, **values: Any) -> Change:
    """Return a change of a module's row."""

    def change(folder: Path) -> None:
        rows = json.loads((folder / "modules.json").read_text())
        rows[number] |= values
        (folder / "modules.json").write_text(json.dumps(rows))

    return change


def cut(name: str, share: float = 0.5) -> Change:
    def change(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * share)])

    return change


def removed(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def written(name: str, text: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).write_text(text)

    return change


def fifo(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def test_a_layout_has_the_modules_in_order(folder: Path) -> None:
    layout = read_layout(folder)
    assert layout.pooling.modes == ("mean",)
    assert [type(step).__name__ for step in layout.steps] == [
        "DenseLayout",
        "LayerNormLayout",
        "NormalizeLayout",
    ]
    assert (layout.dimensions, layout.max_tokens, layout.normalized) == (24, 32, True)


@pytest.mark.parametrize("field", POOLING_FIELDS)
def test_the_older_fields_of_the_pooling(folder: Path, field: str) -> None:
    flags = {name: name == field for name in POOLING_FIELDS}
    edited(
        "1_Pooling/config.json",
        pooling_mode=None, embedding_dimension=None, word_embedding_dimension=32, **flags,
    )(folder)  # fmt: skip
    assert read_layout(folder).pooling.modes == (POOLING_FIELDS[field],)


def test_several_older_fields_are_in_the_packages_order(folder: Path) -> None:
    flags = dict.fromkeys(reversed(POOLING_FIELDS), True)
    edited("1_Pooling/config.json", pooling_mode=None, **flags)(folder)
    edited("2_Dense/config.json", in_features=32 * len(POOLING_FIELDS))(folder)
    assert read_layout(folder).pooling.modes == POOLING_MODES


POOLING, DENSE, NORM = "1_Pooling/config.json", "2_Dense/config.json", "3_LayerNorm/config.json"
LENGTH, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
_TYPE = "sentence_transformers.models."
BAD: list[tuple[Change, str]] = [
    (removed("modules.json"), r"has no modules\.json, which every sentence-transformers checkpoint has"),
    (written("modules.json", "{}"), r"modules\.json contains a dict; an array is expected"),
    (written("modules.json", "[]"), r"modules\.json lists 0 modules"),
    (written("modules.json", "[" * 100 + "]" * 100), r"modules\.json is nested more than 64"),
    (written("modules.json", "[1]"), r"modules\.json: a value has the wrong type"),
    (written("modules.json", '[{"path": ""}]'), r"modules\.json: 'type' is missing"),
    (fifo("modules.json"), r"modules\.json is a FIFO"),
    (module(1, type="custom_st.Pooler"), r"'custom_st\.Pooler' is code of the checkpoint.*trust_remote_code"),
    (module(2, type=_TYPE + "LSTM"), r"modules\.json: module .*LSTM is not supported; supported are"),
    (module(2, type=_TYPE + "Pooling"), r"module Pooling follows Pooling"),
    (module(0, type=_TYPE + "Dense"), r"modules\.json: the modules are Dense, Pooling"),
    (module(1, path="../other"), r"modules\.json: path '\.\./other' of a module must be a folder inside"),
    (module(1, path="/etc"), r"modules\.json: path '/etc' of a module"),
    (module(1, path=3), r"modules\.json: path 3 of a module"),
    (removed("1_Pooling/config.json"), r"1_Pooling/config\.json is missing"),
    (edited(POOLING, pooling_mode="attention"), r"pooling mode 'attention' is not supported"),
    (edited(POOLING, pooling_mode=[]), r"pooling mode \[\] is not supported"),
    (edited(POOLING, pooling_mode_new=True), r"pooling mode 'pooling_mode_new' is not"),
    (edited(POOLING, embedding_dimension=-1), r"embedding_dimension is -1"),
    (edited(POOLING, embedding_dimension=48), r"in_features is 32, but the vector before it has"),
    (edited(DENSE, in_features=64), r"2_Dense/config\.json: in_features is 64, but"),
    (edited(DENSE, out_features=10**9), r"2_Dense/config\.json: out_features is 1000000000"),
    (edited(DENSE, activation_function="os.system"), r"activation_function 'os\.system' is not"),
    (edited(DENSE, module_input_name="token_embeddings"), r"module_input_name is 'token_emb"),
    (edited(NORM, dimension=5), r"3_LayerNorm/config\.json: dimension is 5, but"),
    (edited(LENGTH, max_seq_length=0), r"sentence_bert_config\.json: max_seq_length is 0"),
    (edited(LENGTH, transformer_task="fill-mask"), r"transformer_task is 'fill-mask'"),
    (edited(LENGTH, config_args={"x": 1}), r"config_args sets 'x', which is not"),
    (edited(PROMPTS, model_type="SparseEncoder"), r"model_type is 'SparseEncoder'"),
    (edited(PROMPTS, default_prompt_name="q"), r"default_prompt_name is 'q'"),
    (edited(PROMPTS, prompts={"q": 1}), r"the prompt 'q' is 1; it must be a string"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_bad_layout_is_one_line_that_names_the_file(folder: Path, change: Change, message: str) -> None:
    change(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_layout(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


BAD_WEIGHTS: list[tuple[Change, str]] = [
    (cut("model.safetensors"), r"model\.safetensors cannot be read"),
    (cut("2_Dense/model.safetensors"), r"2_Dense/model\.safetensors.* cannot be read"),
    (removed("model.safetensors"), r"contains no model\.safetensors; only safetensors are loaded"),
    (removed("2_Dense/model.safetensors"), r"2_Dense/model\.safetensors is missing; only safetensors"),
    (edited(DENSE, bias=False, out_features=23), r"3_LayerNorm/config\.json: dimension is 24"),
    (edited(DENSE, use_residual=True), r"2_Dense/model\.safetensors: tensor residual\.weight"),
    (cut("tokenizer.json"), r"tokenizer\.json is not readable JSON"),
    (written("tokenizer.json", "{}"), r"the tokenizer cannot be loaded"),
    (edited("config.json", model_type="nomic_new", auto_map={"AutoModel": "m.M"}), r"trust_remote_code"),
    (edited("config.json", model_type="t5"), r"config\.json: .*model_type 't5' is no encoder or decoder"),
    (edited("config.json", hidden_size=48), r"config\.json: hidden_size is 48, but the pooling's"),
    (edited("config.json", num_hidden_layers=3), r"tensor .*layer\.2.* is missing"),
    (edited("config.json", num_hidden_layers=10**9), r"num_hidden_layers is 1000000000; it must be from 1"),
    (edited("config.json", intermediate_size=96), r"has shape \[48\], but config\.json requires \[96\]"),
    (edited("config.json", vocab_size=200), r"has shape \[300, 32\], but config\.json requires \[200, 32\]"),
    (edited(LENGTH, max_seq_length=65), r"max_seq_length is 65, but the model has 64 pos"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD_WEIGHTS, ids=[text[:40] for _, text in BAD_WEIGHTS])
def test_a_bad_checkpoint_is_not_loaded(folder: Path, change: Change, message: str) -> None:
    change(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_embedder(folder, EmbeddingOptions())
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
