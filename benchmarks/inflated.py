"""Checkpoints of the bundled target's function in a larger shape.

A benchmark at a realistic size needs a draft whose acceptance rate is that of a trained pair. The bundled
target is therefore widened and deepened without changing its function: zeros in the added dimensions of the
hidden states, random heads and MLP units whose outputs are multiplied by zero, and layers that add nothing.
A pass multiplies and reads what a model of the larger shape does.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

_WEIGHTS = "model.safetensors"
_STD = 0.02
"""Standard deviation of the weights whose results are multiplied by zero."""


@dataclass(frozen=True, slots=True)
class InflatedShape:
    """The shape of an inflated checkpoint.

    Attributes:
        hidden: width of the hidden states.
        ff: width of the MLP.
        heads: attention heads, each with its own keys and values.
        layers: layers.
    """

    hidden: int
    ff: int
    heads: int
    layers: int


SHAPES = {
    "0.1B": InflatedShape(hidden=768, ff=2048, heads=12, layers=14),
    "0.4B": InflatedShape(hidden=1280, ff=3584, heads=20, layers=19),
    "1B": InflatedShape(hidden=2048, ff=5632, heads=32, layers=20),
}
"""Shapes by name; 0.4B has 391 million parameters."""


def inflate(source: Path, folder: Path, shape: InflatedShape, seed: int = 0) -> Path:
    """Write a bfloat16 checkpoint of ``source``'s function in a larger shape, without an end token.

    Args:
        source: folder of a Llama checkpoint with tied embeddings and without biases.
        folder: is created.
        shape: at least as large as the source's in every dimension.
        seed: of the weights whose results are multiplied by zero.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    grown = _Grown(shape, width, config["head_dim"], torch.Generator().manual_seed(seed))
    with safe_open(source / _WEIGHTS, framework="pt") as file:
        tensors = {
            "model.embed_tokens.weight": grown.padded(file.get_tensor("model.embed_tokens.weight")),
            "model.norm.weight": grown.norm(file.get_tensor("model.norm.weight")),
        }
        for i in range(shape.layers):
            names = grown.shapes()
            for name in names:
                own = f"model.layers.{i}.{name}.weight"
                tensors[own] = grown.tensor(name, file.get_tensor(own) if i < layers else None)
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}, folder / _WEIGHTS)
    config |= {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ff,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        # The mean square is taken over more dimensions, all zero, so it is smaller by this factor.
        "rms_norm_eps": config["rms_norm_eps"] * width / shape.hidden,
        "eos_token_id": None,
    }
    (folder / "config.json").write_text(json.dumps(config))
    for path in source.iterdir():
        if path.name not in ("config.json", "generation_config.json", _WEIGHTS):
            shutil.copyfile(path, folder / path.name)
    return folder


class _Grown:
    """Grows a checkpoint's tensors, one by one."""

    def __init__(self, shape: InflatedShape, width: int, head_dim: int, generator: torch.Generator) -> None:
        self._shape, self._width, self._head_dim, self._generator = shape, width, head_dim, generator

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a layer's tensors by name."""
        s, inner = self._shape, self._shape.heads * self._head_dim
        return {
            "input_layernorm": (s.hidden,),
            "post_attention_layernorm": (s.hidden,),
            **{f"self_attn.{name}_proj": (inner, s.hidden) for name in "qkv"},
            "self_attn.o_proj": (s.hidden, inner),
            "mlp.gate_proj": (s.ff, s.hidden),
            "mlp.up_proj": (s.ff, s.hidden),
            "mlp.down_proj": (s.hidden, s.ff),
        }

    def tensor(self, name: str, own: Tensor | None) -> Tensor:
        """Return a layer's tensor around the source's own; None for a layer that adds nothing."""
        shape = self.shapes()[name]
        if len(shape) == 1:
            return self.norm(torch.ones(self._width) if own is None else own)
        if name.endswith(("o_proj", "down_proj")):  # nothing of the added units reaches the hidden states
            grown = torch.zeros(shape)
        else:  # the added units compute something from the source's dimensions
            grown = torch.randn(shape, generator=self._generator) * _STD
        if own is not None:
            grown[: own.shape[0], : own.shape[1]] = own
            grown[: own.shape[0], own.shape[1] :] = 0
        return grown

    def norm(self, own: Tensor) -> Tensor:
        """Return a norm's weight; the width enters the mean square, so its root is divided out."""
        grown = torch.ones(self._shape.hidden)
        grown[: self._width] = own.float() * (self._width / self._shape.hidden) ** 0.5
        return grown

    def padded(self, own: Tensor) -> Tensor:
        """Return an embedding with zeros in the added dimensions."""
        grown = torch.zeros(own.shape[0], self._shape.hidden)
        grown[:, : self._width] = own
        return grown
