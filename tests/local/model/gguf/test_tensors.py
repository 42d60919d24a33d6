"""GGUF files of every type and architecture against transformers with the same numbers as safetensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from specclient_local import Engine
from specclient_local.loading.model_loader import read_any_config
from specclient_local.model.config import read_config
from specclient_local.model.gguf import tensors
from specclient_local.model.gguf.header import QUANTIZATIONS, read_header
from specclient_local.model.gguf.names import gguf_name
from specclient_local.model.gguf.tensors import in_halves
from specclient_local.model.weights import interleave, load_weights
from tiny_models import write_checkpoint

from specclient.errors import CheckpointError

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")

from gguf_files import adjacent_pairs, logits_of_transformers, own_logits, write_gguf  # noqa: E402 - needs the package

WIDE = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
"""A shape whose rows are whole blocks of every type."""
KINDS = {"llama": {}, "mistral": {}, "qwen2": {}, "qwen3": {"head_dim": 64}}


def both(folder, kind="llama", quantized="F32", *, file=None, **shape):
    """Write a checkpoint and a GGUF file of the same numbers."""
    made = write_checkpoint(
        folder / "checkpoint", kind=kind, spread=0.05, **(WIDE | KINDS.get(kind, {}) | shape)
    )
    return made, write_gguf(made, folder / "model.gguf", quantized, **(file or {}))


@pytest.mark.parametrize("quantized", QUANTIZATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers_with_the_dequantised_weights(tmp_path, kind, quantized):
    checkpoint, path = both(tmp_path, kind, quantized)
    expected = logits_of_transformers(checkpoint)
    assert {entry.kind for entry in read_header(path).tensors.values()} == {"F32", quantized}
    torch.testing.assert_close(own_logits(path), expected, atol=1e-4, rtol=0)
    assert expected.std() > 0.3, "the comparison must be able to fail"


@pytest.mark.parametrize("shape", [{"tie_word_embeddings": True}, {"attention_bias": True, "mlp_bias": True}])
def test_tied_heads_and_biases(tmp_path, shape):
    left_out = ("output.weight",) if "tie_word_embeddings" in shape else ()
    checkpoint, path = both(tmp_path, file={"left_out": left_out}, **shape)
    torch.testing.assert_close(own_logits(path), logits_of_transformers(checkpoint), atol=1e-4, rtol=0)


def test_half_precision_and_several_groups_of_rows(tmp_path, monkeypatch):
    checkpoint, path = both(tmp_path, quantized="Q8_0")
    whole = load_weights(path, read_config(path), "bfloat16")
    monkeypatch.setattr(tensors, "_GROUP_BYTES", 4 * 256 * 7)
    parts = load_weights(path, read_config(path), "bfloat16")
    same = load_weights(checkpoint, read_config(checkpoint), "bfloat16")
    for one, other, third in zip(whole.layers, parts.layers, same.layers, strict=True):
        assert one.qkv.dtype == torch.bfloat16
        assert torch.equal(one.qkv, other.qkv)
        assert torch.equal(one.qkv, third.qkv)


def test_a_model_in_several_files_is_that_of_one(tmp_path):
    checkpoint, path = both(tmp_path, quantized="Q8_0", file={"split": 7})
    files = sorted(tmp_path.glob("*.gguf"))
    assert path == files[0]
    assert path.name == "model-00001-of-00003.gguf"
    torch.testing.assert_close(own_logits(path), logits_of_transformers(checkpoint), atol=1e-4, rtol=0)
    with Engine.load(path, threads=1, slots=1) as engine:
        assert engine.generate("ab", max_tokens=2).token_ids
    with pytest.raises(CheckpointError, match=r"not the first file .*; name .*-00001-of-00003\.gguf"):
        read_config(files[1])
    second = files[1].read_bytes()
    for damage, message in (
        (lambda: files[1].unlink(), "00002-of-00003.gguf cannot be read"),
        (lambda: files[1].write_bytes(files[2].read_bytes()), "is not file 2 of 3 of its model"),
        (lambda: files[1].write_bytes(second[:-40]), "but ends at"),
        (lambda: files[1].write_bytes(path.read_bytes()), "is not file 2 of 3 of its model"),
    ):
        damage()
        with pytest.raises(CheckpointError, match=message) as caught:
            read_any_config(path)
        assert "\n" not in str(caught.value)


def test_rows_are_put_back_into_halves():
    rows = np.arange(24.0).reshape(24, 1)
    pairs = torch.from_numpy(adjacent_pairs(rows, 3))
    assert in_halves(pairs, 8)[:, 0].tolist() == rows[:, 0].tolist()
    assert interleave(in_halves(pairs, 8), 8)[:, 0].tolist() == pairs[:, 0].tolist()


def test_names_of_tensors():
    assert gguf_name("model.embed_tokens.weight") == "token_embd.weight"
    assert gguf_name("model.layers.12.self_attn.q_proj.bias") == "blk.12.attn_q.bias"
    with pytest.raises(KeyError):
        gguf_name("model.layers.0.unknown.weight")


BROKEN = {
    "missing": ({"left_out": ("blk.1.ffn_up.weight",)}, "tensor blk.1.ffn_up.weight is missing"),
    "shape": (
        {"values": {"feed_forward_length": 512}},
        r"ffn_gate.weight has shape \[256, 256\], but .* \[512, 256\]",
    ),
    "type": (
        {"left_out": ("output_norm.weight",), "tensors": {"output_norm.weight": np.ones(256, np.int8)}},
        "output_norm.weight has the type I8; supported are F32, F16",
    ),
    "layers": ({"values": {"block_count": 3}}, "tensor blk.2.attn_norm.weight is missing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_tensors_that_do_not_fit_are_refused_before_any_is_read(tmp_path, monkeypatch, name):
    file, message = BROKEN[name]
    _, path = both(tmp_path, file=file)
    monkeypatch.setattr(tensors, "_read", None)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_any_config(path)
    assert "\n" not in str(caught.value)


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    spoilt = np.full(256, np.nan, np.float32)
    _, path = both(
        tmp_path, file={"left_out": ("output_norm.weight",), "tensors": {"output_norm.weight": spoilt}}
    )
    with pytest.raises(CheckpointError, match=r"model.norm.weight contains 256 non-finite numbers"):
        own_logits(path)


def test_a_pair_of_files_drafts_and_answers_like_its_checkpoints(tmp_path):
    """The draft is a file, too, and stops being one when the target is not: both mix."""
    target, target_file = both(tmp_path / "t", eos_token_id=None)
    draft, draft_file = both(tmp_path / "d", quantized="Q8_0", num_hidden_layers=1, eos_token_id=None)
    answers = []
    for pair in ((target, draft), (target_file, draft_file), (target_file, draft)):
        with Engine.load(*pair, threads=1, slots=1, draft_vocabulary="same") as engine:
            greedy = engine.generate("def f(x):", max_tokens=24, draft_length=3)
            sampled = engine.generate("def f(x):", max_tokens=24, draft_length=3, temperature=1.0, seed=1)
            answers.append((greedy.text, greedy.token_ids, sampled.token_ids, greedy.speculation.drafted))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][3]
