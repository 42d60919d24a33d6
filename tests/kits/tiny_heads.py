"""Checkpoints of tiny random heads, in the layouts in which such heads are published.

Names and shapes are copied from the sources: SafeAILab/EAGLE ``model/cnets.py`` and ``cnets1.py``,
vllm-project/speculators ``models/eagle3`` and (its release 0.2) ``models/eagle.py``, FasterDecoding/Medusa
``model/medusa_model.py`` and ``train/train_legacy.py``. None of the engine's own code is used.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

MEDUSA = "medusa_lm_head.safetensors"
HIDDEN, FF, HEADS, KV, HEAD_DIM, VOCAB = 32, 48, 4, 2, 8, 300
TARGET = {"num_hidden_layers": 4}
"""Difference between these heads' target and the usual shape: enough layers for three depths."""


def save(folder: Path, config: dict, tensors: dict[str, torch.Tensor], file="model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / file)
    return folder


def random(names: dict[str, tuple[int, ...]], seed: int, spread: float) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * spread + (1.0 if "norm" in name else 0.0)
        for name, shape in names.items()
    }


def layer(prefix: str, seen: int, hidden=HIDDEN, ff=FF, heads=HEADS, kv=KV) -> dict[str, tuple[int, ...]]:
    dim = hidden // heads
    return {
        f"{prefix}self_attn.q_proj.weight": (heads * dim, seen),
        f"{prefix}self_attn.k_proj.weight": (kv * dim, seen),
        f"{prefix}self_attn.v_proj.weight": (kv * dim, seen),
        f"{prefix}self_attn.o_proj.weight": (hidden, heads * dim),
        f"{prefix}mlp.gate_proj.weight": (ff, hidden),
        f"{prefix}mlp.up_proj.weight": (ff, hidden),
        f"{prefix}mlp.down_proj.weight": (hidden, ff),
        f"{prefix}post_attention_layernorm.weight": (hidden,),
    }


def llama(hidden=HIDDEN, vocab=VOCAB, heads=HEADS, kv=KV, ff=FF, **others) -> dict:
    return {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": ff,
        "max_position_embeddings": 128,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-05,
        "vocab_size": vocab,
        "pad_token_id": None,
        **others,
    }


def eagle(folder: Path, *, seed=0, spread=0.3, bias=True, hidden=HIDDEN, vocab=VOCAB, heads=HEADS, kv=KV):
    """Write an EAGLE-1 head in the layout of its repository."""
    names = {"embed_tokens.weight": (vocab, hidden), "fc.weight": (hidden, 2 * hidden)}
    names |= {"fc.bias": (hidden,)} if bias else {}
    names |= layer("layers.0.", hidden, hidden=hidden, heads=heads, kv=kv)
    config = {"architectures": ["LlamaForCausalLM"], "bias": bias, **llama(hidden, vocab, heads, kv)}
    return save(folder, config, random(names, seed, spread))


def mapping(vocab: int, draft: int, seed: int) -> dict[str, torch.Tensor]:
    """Return a random draft vocabulary as the tensors ``d2t`` and ``t2d``.

    ``d2t`` ([draft]) is the offset from each draft id to the target's id. ``t2d`` ([vocab]) is true for the
    target's tokens that are in the draft vocabulary.
    """
    chosen = torch.randperm(vocab, generator=torch.Generator().manual_seed(seed))[:draft].sort().values
    known = torch.zeros(vocab, dtype=torch.bool)
    known[chosen] = True
    return {"d2t": chosen - torch.arange(draft), "t2d": known}


def eagle3_names(prefix: str, draft: int, hidden: int, heads: int, kv: int, target: int, depths=3):
    return {
        "fc.weight": (hidden, depths * target),
        "norm.weight": (hidden,),
        "lm_head.weight": (draft, hidden),
        f"{prefix}hidden_norm.weight": (hidden,),
        f"{prefix}input_layernorm.weight": (hidden,),
        **layer(prefix, 2 * hidden, hidden=hidden, heads=heads, kv=kv),
    }


def eagle3(
    folder: Path, *, seed=0, spread=0.3, draft=120, hidden=HIDDEN, vocab=VOCAB, heads=HEADS, kv=KV
) -> Path:
    """Write an EAGLE-3 head in the layout of its repository."""
    tensors = random(eagle3_names("midlayer.", draft, hidden, heads, kv, hidden), seed, spread)
    tensors |= mapping(vocab, draft, seed)
    config = {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": draft}
    return save(folder, {**config, **llama(hidden, vocab, heads, kv)}, tensors)


def speculators_config(kind: str, transformer: dict, **others) -> dict:
    return {
        "architectures": [
            {"eagle": "EagleSpeculator", "eagle3": "Eagle3Speculator", "peagle": "PEagleSpeculator"}[kind]
        ],
        "speculators_model_type": kind,
        "speculators_version": "0.3.0",
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "proposal_type": "greedy",
                    "speculative_tokens": 3,
                    "verifier_accept_k": 1,
                    "accept_tolerance": 0.0,
                }
            ],
            "verifier": {"name_or_path": "someone/target", "architectures": ["LlamaForCausalLM"]},
        },
        "transformer_layer_config": transformer,
        **others,
    }


def speculators_eagle(folder: Path, *, seed=0, spread=0.3) -> Path:
    names = {"fusion_fc.weight": (HIDDEN, 2 * HIDDEN)} | layer("transformer.", HIDDEN)
    config = speculators_config("eagle", llama(), layernorms=False, fusion_bias=False)
    return save(folder, config, random(names, seed, spread))


def speculators_eagle3(folder: Path, *, seed=0, spread=0.3, draft=120, own_width=None, **flags) -> Path:
    """Write an EAGLE-3 head in the layout of ``speculators``.

    ``own_width`` is the hidden size if it is not the target's.
    """
    hidden = own_width or HIDDEN
    names = eagle3_names("layers.0.", draft, hidden, HEADS, KV, HIDDEN)
    others = {"draft_vocab_size": draft, "norm_before_residual": False, "target_hidden_size": None, **flags}
    if own_width:
        names["embed_tokens.weight"] = (VOCAB, hidden)
        others["target_hidden_size"] = HIDDEN
    if flags.get("norm_before_fc"):
        names["input_norm.weight"] = (3 * HIDDEN,)
    if flags.get("fc_norm"):
        names |= {f"fc_norm.{i}.weight": (HIDDEN,) for i in range(3)}
    tensors = random(names, seed, spread) | mapping(VOCAB, draft, seed)
    return save(folder, speculators_config("eagle3", llama(hidden), **others), tensors)


def peagle(
    folder: Path,
    *,
    seed=0,
    spread=0.3,
    draft=120,
    layers=2,
    authors=False,
    hidden=HIDDEN,
    vocab=VOCAB,
    heads=HEADS,
    kv=KV,
    **others,
) -> Path:
    """Write a P-EAGLE head in the layout of ``speculators``, or in that of its ``authors``.

    ``speculators`` has an embedding of the head's own, and rows in the shape of ``mask_hidden``.
    """
    prefix = "midlayer." if authors else "layers.0."
    names = eagle3_names(prefix, draft, hidden, heads, kv, hidden)
    for i in range(1, layers):
        names |= layer(f"layers.{i}.", hidden, hidden=hidden, heads=heads, kv=kv)
        names[f"layers.{i}.input_layernorm.weight"] = (hidden,)
    names["mask_hidden"] = (1, 3 * hidden) if authors else (1, 1, 3 * hidden)
    if not authors:
        names["embed_tokens.weight"] = (vocab, hidden)
    tensors = random(names, seed, spread) | mapping(vocab, draft, seed)
    shape = llama(hidden, vocab, heads, kv, num_hidden_layers=layers)
    if authors:
        config = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": draft, "ptd_token_id": 0}
        return save(folder, {**config, **shape, **others}, tensors)
    config = {"draft_vocab_size": draft, "norm_before_residual": False, "mask_token_id": 0, **others}
    return save(folder, speculators_config("peagle", shape, **config), tensors)


def medusa(
    folder: Path, *, seed=0, spread=0.3, heads=3, blocks=1, own_heads=True, hidden=HIDDEN, vocab=VOCAB
) -> Path:
    """Write Medusa heads in the layout of their trainer; without ``own_heads``, they use the target's."""
    names: dict[str, tuple[int, ...]] = {}
    for head in range(heads):
        for block in range(blocks):
            names[f"{head}.{block}.linear.weight"] = (hidden, hidden)
            names[f"{head}.{block}.linear.bias"] = (hidden,)
        if own_heads:
            names[f"{head}.{blocks}.weight"] = (vocab, hidden)
    config = {"medusa_num_heads": heads, "medusa_num_layers": blocks, "base_model_name_or_path": "a/target"}
    if not own_heads:
        config["original_lm_head"] = True
    return save(folder, config, random(names, seed, spread), MEDUSA)


MTP_NAMES = {
    "mimo": (
        "model.mtp_layers.0.",
        "{}token_layernorm",
        "{}hidden_layernorm",
        "{}input_proj",
        "{}final_layernorm",
    ),
    "deepseek": ("model.layers.{layers}.", "{}enorm", "{}hnorm", "{}eh_proj", "{}shared_head.norm"),
    "qwen": ("mtp.layers.0.", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm"),
}
"""Begin of a layer's names, then norms of token and state, the joining matrix and the last norm.

Copied from vllm-project/vllm ``model_executor/models``: ``mimo_mtp.py``, ``deepseek_mtp.py``,
``qwen3_next_mtp.py``.
"""


def mtp(target: Path, layout: str, *, seed=3, spread=0.25, own_head=False) -> Path:
    """Add an MTP head to a target's checkpoint, with a layer of the shapes of the target's last one."""
    tensors = load_file(target / "model.safetensors")
    layers = json.loads((target / "config.json").read_text())["num_hidden_layers"]
    prefix, token, state, fc, norm = MTP_NAMES[layout]
    prefix, last = prefix.format(layers=layers), f"model.layers.{layers - 1}."
    hidden = tensors["model.norm.weight"].shape[0]
    names = {
        prefix + name.removeprefix(last): tuple(tensor.shape)
        for name, tensor in tensors.items()
        if name.startswith(last)
    }
    names |= {f"{name.format(prefix)}.weight": (hidden,) for name in (token, state, norm)}
    names[f"{fc.format(prefix)}.weight"] = (hidden, 2 * hidden)
    if own_head:
        names[f"{prefix}shared_head.head.weight"] = tuple(tensors["model.embed_tokens.weight"].shape)
    save_file(tensors | random(names, seed, spread), target / "model.safetensors")
    return target
