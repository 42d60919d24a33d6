"""Sentence-transformers checkpoints of tiny random models, written without that package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tiny_models import byte_tokenizer
from tokenizers import Tokenizer, processors

WIDTH = 32
#: Settings of each architecture beside those that all have.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "bert": {},
    "mpnet": {"max_position_embeddings": 66, "pad_token_id": 1},
    "xlm-roberta": {"max_position_embeddings": 66, "pad_token_id": 1},
    "modernbert": {"local_attention": 16, "global_attn_every_n_layers": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
}
_PACKAGE = "sentence_transformers.models."
_ENDS = ("<|bos|>", "<|eos|>")


def write_embedding_checkpoint(
    folder: Path,
    *,
    kind: str = "bert",
    pooling: str | Sequence[str] = "mean",
    steps: Sequence[str] = ("Normalize",),
    max_seq_length: int | None = None,
    lower_case: bool = False,
    include_prompt: bool = True,
    prompts: Mapping[str, str] | None = None,
    default_prompt: str | None = None,
    seed: int = 0,
) -> Path:
    """Write a checkpoint; ``steps`` are modules after the pooling: Dense, LayerNorm, Normalize, Dropout."""
    _write_model(folder, kind, seed)
    decodes = kind == "qwen3"
    _tokenizer(decodes).save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": _ENDS[0],
            "eos_token": _ENDS[1],
            "pad_token": _ENDS[1],
            "padding_side": "left" if decodes else "right",
            "model_max_length": 10**30,
        },
    )
    _write(
        folder / "sentence_bert_config.json",
        {"max_seq_length": max_seq_length, "do_lower_case": lower_case},
    )
    _write(
        folder / "config_sentence_transformers.json",
        {"prompts": dict(prompts or {}), "default_prompt_name": default_prompt},
    )
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    modes = [pooling] if isinstance(pooling, str) else list(pooling)
    _write(
        folder / "1_Pooling" / "config.json",
        {"embedding_dimension": WIDTH, "pooling_mode": modes, "include_prompt": include_prompt},
    )
    size = WIDTH * len(modes)
    for number, step in enumerate(steps, 2):
        modules.append((step, f"{number}_{step}"))
        size = _write_step(folder / f"{number}_{step}", step, size)
    _write(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": _PACKAGE + name}
            for number, (name, path) in enumerate(modules)
        ],
    )
    return folder


def _write_model(folder: Path, kind: str, seed: int) -> None:
    from transformers import AutoConfig, AutoModel

    shape = {
        "vocab_size": 300,
        "hidden_size": WIDTH,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    torch.manual_seed(seed)
    model = AutoModel.from_config(AutoConfig.for_model(kind, **(shape | KINDS[kind]))).float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if "norm" in name.lower() and "bias" not in name else 0.0, 0.3)
    model.save_pretrained(folder)


def _tokenizer(decodes: bool) -> Tokenizer:
    """Return the byte tokenizer, which adds a beginning and an end, or the end alone."""
    tokenizer = byte_tokenizer(300)
    template = "$A <|eos|>" if decodes else "<|bos|> $A <|eos|>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[(name, tokenizer.token_to_id(name)) for name in _ENDS]
    )
    return tokenizer


def _write_step(folder: Path, step: str, size: int) -> int:
    """Write a module after the pooling; return the size of its vectors."""
    folder.mkdir()
    if step == "Dense":
        out = size - 8
        activation = "torch.nn.modules.activation.Tanh"
        _write(
            folder / "config.json",
            {"in_features": size, "out_features": out, "bias": True, "activation_function": activation},
        )
        weights = {"linear.weight": torch.randn(out, size) * 0.3, "linear.bias": torch.randn(out)}
        save_file(weights, folder / "model.safetensors")
        return out
    if step == "LayerNorm":
        _write(folder / "config.json", {"dimension": size})
        save_file(
            {"norm.weight": torch.randn(size), "norm.bias": torch.randn(size)}, folder / "model.safetensors"
        )
    if step == "Dropout":
        _write(folder / "config.json", {"dropout": 0.5})
    return size


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(value))
