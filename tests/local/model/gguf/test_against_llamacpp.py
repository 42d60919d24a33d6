"""GGUF files against llama.cpp itself, where its bindings are installed (``pip install xllamacpp``).

llama.cpp computes in float32 where weights are in float32, and dequantises the rows of the embedding. Before
it multiplies a matrix of another type it rounds the other factor, so logits of whole files in these types
agree less.
"""

from __future__ import annotations

import json
import urllib.request
from contextlib import contextmanager

import gguf_files
import numpy as np
import pytest
import torch
from gguf_files import IDS, own_logits, write_gguf
from specclient_local.model.gguf.header import QUANTIZATIONS
from specclient_local.model.tokenizer import Tokenizer
from tiny_models import write_checkpoint

pytest.importorskip("gguf", reason="the extra gguf is not installed")
llamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp's bindings (xllamacpp) are not installed")

WIDE = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
TEXTS = ["def f(x):\n    return x + 1234567  # it's", " \u00e9\u4e2d\U0001f600 don't\r\n\n\tx", "12 345!!?"]


@contextmanager
def served(path):
    """Load a file by llama.cpp, with keys and values in float32; yield a function that asks its server."""
    params = llamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_gpu_layers, params.n_parallel, params.warmup = 128, 0, 1, False
    params.cpuparams.n_threads = 1
    params.cache_type_k = params.cache_type_v = llamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = llamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = llamacpp.Server(params)

    def ask(route, **body):
        data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
        request = urllib.request.Request(f"{server.listening_address}/{route}", data, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    yield ask


def largest_difference(path):
    """Return the largest difference of the last token's log-probabilities."""
    own = torch.log_softmax(own_logits(path)[-1].double(), -1).numpy()
    with served(path) as ask:
        answer = ask("completion", prompt=IDS, n_predict=1, n_probs=len(own), samplers=[], seed=3)
    theirs = np.full(len(own), np.nan)
    for each in answer["completion_probabilities"][0]["top_logprobs"]:
        theirs[each["id"]] = each["logprob"]
    assert own.std() > 0.3, "the comparison must be able to fail"
    return np.abs(own - theirs).max()


def file_of(tmp_path, kind="llama", quantized="F32", **file):
    shape = WIDE | ({"head_dim": 64} if kind == "qwen3" else {})
    made = write_checkpoint(tmp_path / "checkpoint", kind=kind, spread=0.05, eos_token_id=None, **shape)
    return write_gguf(made, tmp_path / "model.gguf", quantized, **file)


YARN = {"type": "yarn", "factor": 4.0, "original_context_length": 16}
FILES = {
    "llama": {},
    "qwen2": {"kind": "qwen2"},
    "qwen3": {"kind": "qwen3"},
    "llama3's factors": {"tensors": {"rope_freqs.weight": np.linspace(1, 8, 32, dtype=np.float32)}},
    "linear": {"values": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}},
    "yarn": {"values": {f"rope.scaling.{name}": value for name, value in YARN.items()}},
}


@pytest.mark.parametrize("name", FILES)
def test_float32_files_give_llamacpps_logits(tmp_path, name):
    assert largest_difference(file_of(tmp_path, **FILES[name])) < 1e-3


@pytest.mark.parametrize("quantized", QUANTIZATIONS[1:])
def test_every_type_is_dequantised_as_llamacpp_does(tmp_path, monkeypatch, quantized):
    assert largest_difference(file_of(tmp_path / "whole", quantized=quantized)) < 0.15
    monkeypatch.setattr(gguf_files, "MATRICES", ("token_embd",))
    assert largest_difference(file_of(tmp_path / "embedding", quantized=quantized)) < 1e-3


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "smollm"])
def test_texts_become_llamacpps_tokens(tmp_path, pre):
    def tokens(writer, checkpoint):
        gguf_files.add_tokens(writer, checkpoint)
        writer.kv_data[0]["tokenizer.ggml.pre"].value = pre
        writer.add_add_bos_token(False)

    path = file_of(tmp_path, tokens=tokens)
    tokenizer = Tokenizer(path)
    with served(path) as ask:
        for text in TEXTS:
            assert tokenizer.encode(text) == ask("tokenize", content=text, add_special=True)["tokens"]
