"""GGUF files of tiny checkpoints, written by the ``gguf`` package as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.gguf.names import gguf_name

IDS = list(range(3, 40))
"""Tokens whose logits tests compare."""

K_QUANTS = {"Q4_K": (144, (0, 2), 1e-4), "Q5_K": (176, (0, 2), 5e-5), "Q6_K": (210, (208,), 2e-5)}
"""Bytes of a block of 256 numbers, the offsets of its half-precision scales, and scales that make them small.

The package cannot make these blocks from numbers, so random ones are written.
"""

ARCHITECTURES = {
    "mistral": "llama",
    "mixtral": "llama",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
}
"""Architectures whose name is not the ``model_type``."""

MATRICES = (
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "token_embd",
    "output",
    "attn_qkv",
    "ffn_gate_exps",
    "ffn_up_exps",
    "ffn_down_exps",
)


def adjacent_pairs(rows: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the rows of each head from halves to adjacent pairs, as files of llama have them."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def random_blocks(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return random blocks of a K-quantisation, ``[..., bytes]`` uint8."""
    size, scales, least = K_QUANTS[kind]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // 256, size), np.uint8)
    for at in scales:
        values = rng.uniform(least, 2 * least, blocks.shape[:-1]).astype(np.float16)
        blocks[..., at : at + 2] = values[..., None].view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def tensor_kind(name: str, kind: str) -> str:
    """Return the type in which the converter stores a tensor: vectors stay in float32."""
    return kind if name.rsplit(".", 1)[0].split(".")[-1] in MATRICES and name.endswith("weight") else "F32"


def encoded(numbers: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return numbers as a GGUF file has them."""
    import gguf

    if kind in K_QUANTS:
        return random_blocks(kind, numbers.shape, rng)
    return gguf.quantize(np.ascontiguousarray(numbers, np.float32), gguf.GGMLQuantizationType[kind])


def write_gguf(
    checkpoint: Path,
    path: Path,
    kind: str = "F32",
    *,
    values: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    left_out: tuple[str, ...] = (),
    tokens: Any = None,
    split: int = 0,
) -> Path:
    """Write a checkpoint of the Llama family as a GGUF file.

    Args:
        checkpoint: its folder. Its weights are replaced by those of the file, as numbers in float32, so that
            both are the same model.
        path: the file.
        kind: type of the matrices.
        values: metadata in place of the checkpoint's; None leaves a field out.
        tensors: tensors in place of the checkpoint's, in float32.
        left_out: names of tensors that are not written.
        tokens: function that adds the tokenizer to a writer; by default the checkpoint's ``tokenizer.json``.
        split: most tensors of a file, if the model is to be in several; the first one is returned.
    """
    import gguf

    config = json.loads((checkpoint / "config.json").read_text())
    weights = load_file(checkpoint / "model.safetensors")
    architecture = ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer, rng = gguf.GGUFWriter(path, architecture, split_max_tensors=split), np.random.default_rng(0)
    for name, value in (metadata(config) | (values or {})).items():
        if value is not None:
            add_value(
                writer,
                name
                if "." in name and name.startswith(("general", "split", "tokenizer"))
                else f"{architecture}.{name}",
                value,
            )
    (tokens or add_tokens)(writer, checkpoint)
    experts: dict[str, list[str]] = {}
    for name, tensor in weights.items():
        if (own := gguf_name(name, architecture)) in left_out:
            continue
        if ".experts." in name:
            experts.setdefault(own, []).append(name)
            continue
        numbers = tensor.float().numpy()
        if architecture == "gemma3" and name.endswith("norm.weight"):
            writer.add_tensor(own, numbers + 1)
            continue
        heads = (
            {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(own.split(".")[2])
            if own.startswith("blk")
            else None
        )
        paired = architecture == "llama" and heads is not None
        if paired:
            numbers = adjacent_pairs(numbers, config[heads])
        stored = tensor_kind(own, kind)
        blocks = encoded(numbers, stored, rng)
        writer.add_tensor(own, blocks, raw_dtype=gguf.GGMLQuantizationType[stored])
        exact = gguf.dequantize(blocks, gguf.GGMLQuantizationType[stored]).reshape(numbers.shape)
        if paired:
            exact = exact.reshape(config[heads], -1, 2, *exact.shape[1:]).swapaxes(1, 2).reshape(exact.shape)
        weights[name] = torch.from_numpy(exact.copy())
    for own, names in experts.items():
        names.sort(key=lambda name: int(name.split(".experts.")[1].split(".")[0]))
        stored = tensor_kind(own, kind)
        blocks = encoded(torch.stack([weights[name].float() for name in names]).numpy(), stored, rng)
        writer.add_tensor(own, blocks, raw_dtype=gguf.GGMLQuantizationType[stored])
        exact = gguf.dequantize(blocks, gguf.GGMLQuantizationType[stored])
        shape = (len(names), *weights[names[0]].shape)
        weights |= dict(zip(names, torch.from_numpy(exact.reshape(shape).copy()).unbind(0), strict=True))
    for name, numbers in (tensors or {}).items():
        writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_file(weights, checkpoint / "model.safetensors", {"format": "pt"})
    return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf")) if split else path


def metadata(config: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a checkpoint's shape, by names without the architecture's."""
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    return family_metadata(config) | {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "attention.key_length": config.get("head_dim"),
        "attention.value_length": config.get("head_dim"),
        "rope.freq_base": float(rope.get("rope_theta", 10_000.0)),
        "tokenizer.ggml.bos_token_id": config.get("bos_token_id"),
        "tokenizer.ggml.eos_token_id": config.get("eos_token_id"),
    }


def family_metadata(config: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata that the converter writes for some families alone."""
    kind = config["model_type"]
    if kind == "mixtral":
        return {
            "expert_count": config["num_local_experts"],
            "expert_used_count": config["num_experts_per_tok"],
        }
    if kind == "qwen3_moe":
        return {
            "expert_count": config.get("num_experts") or config["num_local_experts"],
            "expert_used_count": config["num_experts_per_tok"],
            "expert_feed_forward_length": config["moe_intermediate_size"],
        }
    if kind in ("gemma3_text", "phi3"):
        return {"attention.sliding_window": config["sliding_window"]}
    return {}


def add_value(writer: Any, name: str, value: Any) -> None:
    """Add a field of the type that the value suggests."""
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, value)


def add_tokens(writer: Any, checkpoint: Path) -> None:
    """Add a byte-level tokenizer and the chat template of a checkpoint."""
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    vocabulary = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    rows = json.loads((checkpoint / "config.json").read_text())["vocab_size"]
    padding = [f"[PAD{number}]" for number in range(len(vocabulary), rows)]
    special = {token["content"] for token in tokenizer["added_tokens"] if token["special"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*vocabulary, *padding])
    writer.add_token_types([*(3 if token in special else 1 for token in vocabulary), *(5 for _ in padding)])
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    )
    settings = json.loads((checkpoint / "tokenizer_config.json").read_text())
    if settings.get("chat_template"):
        writer.add_chat_template(settings["chat_template"])


def logits_of_transformers(checkpoint: Path) -> torch.Tensor:
    """Return the logits of :data:`IDS`, computed by transformers in float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(input_ids=torch.tensor([IDS])).logits[0]


def own_logits(path: Path) -> torch.Tensor:
    """Return the logits of :data:`IDS`, computed by the built-in decoder in float32."""
    return load_model(path, ModelPlacement(), slots=1, context=64).read(0, IDS)
