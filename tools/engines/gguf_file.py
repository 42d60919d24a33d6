"""Write a Llama checkpoint as a GGUF file, in float32.

    python gguf_file.py CHECKPOINT FILE

llama.cpp's own converter refuses a tokenizer whose split into words it has no name for, such as the bundled
pair's. This one names Llama 3's split, which is the same but for indentation after a line's end. It runs in
the environment of llama.cpp, with the ``gguf`` package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np

#: Names of tensors in a block.
_BLOCK: Final = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
_OUTER: Final = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def main(checkpoint: Path, file: Path) -> None:
    """Write the file."""
    config = _json(checkpoint / "config.json")
    writer = gguf.GGUFWriter(str(file), "llama")
    _write_sizes(writer, config)
    _write_tokenizer(writer, checkpoint)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, values in _tensors(checkpoint / "model.safetensors"):
        for projection, count in heads.items():
            if projection in name:
                values = _interleaved(values, count)  # noqa: PLW2901 - the same tensor in another order
        writer.add_tensor(_renamed(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_sizes(writer: Any, config: dict[str, Any]) -> None:
    head = config["head_dim"]
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _write_tokenizer(writer: Any, checkpoint: Path) -> None:
    tokenizer, settings = _json(checkpoint / "tokenizer.json"), _json(checkpoint / "tokenizer_config.json")
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted({**vocabulary, **special}.items(), key=lambda entry: entry[1])
    kinds = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token, _ in tokens]
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(special[settings["bos_token"]])
    writer.add_eos_token_id(special[settings["eos_token"]])
    writer.add_pad_token_id(special[settings["pad_token"]])
    writer.add_add_bos_token(True)
    writer.add_chat_template(settings["chat_template"])


def _tensors(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a safetensors file, whose numbers are bfloat16 or float32, as float32."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        first, last = (start + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            wide = np.frombuffer(data[first:last], dtype=np.uint16).astype(np.uint32) << 16
            values = wide.view(np.float32)
        else:
            values = np.frombuffer(data[first:last], dtype=np.float32)
        yield name, values.reshape(entry["shape"])


def _interleaved(values: Any, heads: int) -> Any:
    """Return a projection whose rotated halves are interleaved, as llama.cpp rotates a Llama's."""
    shape = values.shape
    halves = values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(shape))


def _renamed(name: str) -> str:
    name = name.removesuffix(".weight")
    if not name.startswith("model.layers."):
        return f"{_OUTER[name]}.weight"
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_BLOCK[rest]}.weight"


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
