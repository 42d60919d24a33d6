"""The part of a model's weights that one of several devices holds under tensor parallelism.

Each device has some of the attention heads and of the inner units of the MLPs: rows of the matrices that
compute them, and columns of the matrices that read them. The sums over all devices of what the latter return
are the whole model's (Shoeybi et al., arXiv 1909.08053, section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from specclient.errors import ConfigurationError
from specclient_local.model.config import DecoderConfig

TensorReader = Callable[[str, tuple[int, ...]], Tensor]
"""Returns the tensor of a name and a shape."""

_BY_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_BY_COLUMNS = ("o_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class WeightShard:
    """One of several equal parts.

    Attributes:
        rank: its number, from 0 on. The first one has the output layer.
        size: number of parts.
    """

    rank: int
    size: int

    def config(self, config: DecoderConfig) -> DecoderConfig:
        """Return the configuration of the part.

        Raises:
            ConfigurationError: the model cannot be divided into so many parts.
        """
        if not config.llama_layout or config.model_type == "phi3":
            raise ConfigurationError(
                f"tensor_parallel is {self.size}, but a {config.model_type} model cannot be divided; "
                "supported are llama, mistral, qwen2 and qwen3. Leave it out."
            )
        names = {"key heads": config.kv_heads, "inner units": config.intermediate_size}
        for name, count in names.items():
            if count % self.size:
                raise ConfigurationError(
                    f"tensor_parallel is {self.size}, which does not divide the model's {count} {name}; "
                    "choose a divisor of both its key heads and its inner units, or 1."
                )
        return replace(
            config,
            heads=config.heads // self.size,
            kv_heads=config.kv_heads // self.size,
            intermediate_size=config.intermediate_size // self.size,
            tied=config.tied or self.rank > 0,  # only the first part needs an output layer of its own
        )

    def reader(self, take: TensorReader) -> TensorReader:
        """Return a reader that reads whole tensors by ``take`` and returns this part of them."""

        def part(name: str, shape: tuple[int, ...]) -> Tensor:
            *_, layer, kind = name.split(".")
            if layer in _BY_ROWS:
                whole = take(name, (shape[0] * self.size, *shape[1:]))
                return whole[self.rank * shape[0] : (self.rank + 1) * shape[0]].contiguous()
            if layer in _BY_COLUMNS and kind == "weight":
                whole = take(name, (shape[0], shape[1] * self.size))
                return whole[:, self.rank * shape[1] : (self.rank + 1) * shape[1]].contiguous()
            whole = take(name, shape)
            # A bias of a sum is added once.
            return whole.zero_() if layer in _BY_COLUMNS and self.rank else whole

        return part
