"""Checkpoint folders: supported layouts, and errors for the others."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from specclient_local.model.config import read_config
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.weights import load_weights, resolve_checkpoint
from tiny_models import load, write_checkpoint

from specclient.errors import CheckpointError, ConfigurationError


@pytest.fixture
def folder(checkpoint, tmp_path):
    return shutil.copytree(checkpoint(), tmp_path / "model")


def logits(folder, dtype="float32"):
    return DecoderRunner.load(folder, dtype=dtype, slots=1, context=32).score(0, [5, 6, 7])


def rewrite(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_shards_are_read_like_one_file(folder):
    whole = logits(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"model-{i + 1:05}-of-00002.safetensors"
        save_file({n: tensors[n] for n in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(logits(folder), whole)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="is missing, but the index lists it"):
        logits(folder)
    index.write_text(json.dumps({"weight_map": {}}))
    with pytest.raises(CheckpointError, match=r"embed_tokens\.weight is in none of the shards"):
        logits(folder)
    index.write_text('{"weight_map": []}')
    with pytest.raises(CheckpointError, match="is not an index of shards"):
        logits(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_files_are_loaded_as_float32(folder, dtype):
    rewrite(folder, lambda tensors: tensors.update({n: t.to(dtype) for n, t in tensors.items()}))
    weights = load_weights(folder, read_config(folder))
    assert weights.embedding.dtype == torch.float32
    assert torch.equal(weights.embedding, weights.embedding.to(dtype).float())


@pytest.mark.parametrize("tied", [True, False])
def test_tied_embeddings_are_one_tensor_counted_once(checkpoint, tied):
    path = checkpoint(tie_word_embeddings=tied)
    weights = load_weights(path, read_config(path))
    assert (weights.head is weights.embedding) == tied
    matrices = [t for t in load_file(path / "model.safetensors").values() if t.dim() == 2]
    assert read_config(path).parameters == sum(t.numel() for t in matrices)


def test_a_missing_tensor_raises_with_its_name(folder):
    rewrite(folder, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(
        CheckpointError, match=r"tensor model\.layers\.1\.mlp\.up_proj\.weight cannot be read"
    ):
        logits(folder)


def test_a_wrong_shape_raises_with_both_shapes(folder):
    rewrite(folder, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(31)}))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has shape \[31\].*requires \[32\]"):
        logits(folder)


def test_integer_tensors_are_rejected(folder):
    rewrite(folder, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(32, dtype=torch.int8)}))
    with pytest.raises(CheckpointError, match=r"has type torch\.int8; choose an unquantised checkpoint"):
        logits(folder)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_non_finite_weights_raise_with_their_name_and_count(folder, value):
    def spoil(tensors):
        tensors["model.layers.1.mlp.up_proj.weight"][3, :2] = value

    rewrite(folder, spoil)
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.up_proj\.weight contains 2 non-fin"):
        logits(folder)


def test_an_overflow_in_conversion_to_half_precision_raises(folder):
    rewrite(folder, lambda tensors: tensors["model.norm.weight"].fill_(1e6))
    assert torch.isfinite(logits(folder)).all()
    with pytest.raises(
        CheckpointError, match=r"model\.norm\.weight .* in float16; load in float32 or bfloat16"
    ):
        logits(folder, dtype="float16")


def test_a_truncated_file_raises_with_its_name(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read .*; download it again"):
        logits(folder)


def test_pickled_weights_are_not_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="only safetensors are loaded"):
        logits(folder)


def test_names_that_are_not_folders_raise(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file; name the folder"):
        resolve_checkpoint(tmp_path / "file")
    for name in ("./nowhere", str(tmp_path / "nowhere"), "nowhere", "a/b/c"):
        with pytest.raises(CheckpointError, match="is not a folder; name one with"):
            resolve_checkpoint(name)
    with pytest.raises(CheckpointError, match=r"https://\*\*\*@hub\.example/model is not a folder"):
        resolve_checkpoint("https://me:hunter2@hub.example/model")
    for nothing in ("", None, 3):
        with pytest.raises(ConfigurationError, match=f"model is {nothing!r}; it must be a folder or hub id"):
            resolve_checkpoint(nothing)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="owner/name is not a local folder and could not be downloaded"):
        resolve_checkpoint("owner/name")


def test_a_draft_with_another_vocabulary_is_rejected_if_it_must_be_the_same(checkpoint, tmp_path):
    from tiny_models import byte_tokenizer

    draft = write_checkpoint(tmp_path, tokenizer=byte_tokenizer(270))
    with pytest.raises(CheckpointError, match=r"does not fit the target.*290 tokens against 270"):
        load(checkpoint(), draft, draft_vocabulary="same")


def test_a_tokenizer_larger_than_the_models_vocabulary_is_rejected(tmp_path):
    from tiny_models import byte_tokenizer

    folder = write_checkpoint(tmp_path, tokenizer=byte_tokenizer(300), vocab_size=280)
    with pytest.raises(
        CheckpointError, match=r"tokenizer\.json has 290 tokens, but the model's vocab_size is 280"
    ):
        load(folder)


@pytest.mark.parametrize("kind", ["bitsandbytes", "quanto"])
def test_a_quantised_checkpoint_is_rejected_with_advice(folder, kind):
    path = folder / "config.json"
    settings = json.loads(path.read_text()) | {"quantization_config": {"quant_method": kind, "bits": 4}}
    path.write_text(json.dumps(settings))
    for runner in ("own", "hf"):
        with pytest.raises(CheckpointError, match=rf"config\.json: .*quantised \({kind}\).*quantize='int8'"):
            load(folder, runner=runner)


def test_an_architecture_unsupported_by_the_own_decoder_raises_with_the_other_runner(folder):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "gpt2"}))
    with pytest.raises(CheckpointError, match=r"'gpt2' \(architecture LlamaForCausalLM\).*runner='hf'"):
        load(folder, runner="own")
