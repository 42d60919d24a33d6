"""Names of tensors in GGUF files, by those of transformers' checkpoints.

They are those of the ``gguf`` package, by which llama.cpp's converter names tensors (``tensor_mapping.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OUTPUT_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_OTHERS: Mapping[str, Mapping[str, str]] = {
    "gemma3": _OUTPUT_NORMS,
    "olmo2": _OUTPUT_NORMS,
    "phi3": {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    "qwen3moe": {"mlp.gate": "ffn_gate_inp"},
    "llama": {"block_sparse_moe.gate": "ffn_gate_inp"},
}
"""Names that architectures have beside the others, or in their place."""

_EXPERTS = {
    **dict.fromkeys(("w1", "gate_proj"), "ffn_gate_exps"),
    **dict.fromkeys(("w3", "up_proj"), "ffn_up_exps"),
    **dict.fromkeys(("w2", "down_proj"), "ffn_down_exps"),
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)")


def gguf_name(name: str, architecture: str = "llama") -> str:
    """Return the name in a GGUF file of a tensor of a transformers checkpoint.

    Args:
        name: the tensor's name; that of an expert's matrix stands for those of all experts.
        architecture: ``general.architecture`` of the file.

    Raises:
        KeyError: there is no such tensor in models of the architecture.
    """
    stem, _, kind = name.rpartition(".")
    inner = _LAYER.fullmatch(stem)
    if inner is None:
        return f"{_OUTER[stem]}.{kind}"
    expert = _EXPERT.fullmatch(inner[2])
    if expert is not None:
        return f"blk.{inner[1]}.{_EXPERTS[expert[2]]}.{kind}"
    names = _INNER | dict(_OTHERS.get(architecture, {}))
    return f"blk.{inner[1]}.{names[inner[2]]}.{kind}"


def expert_number(name: str) -> int | None:
    """Return the number of the expert whose matrix a name of transformers names; None for other tensors."""
    stem = name.rpartition(".")[0]
    inner = _LAYER.fullmatch(stem)
    expert = None if inner is None else _EXPERT.fullmatch(inner[2])
    return None if expert is None else int(expert[1])
