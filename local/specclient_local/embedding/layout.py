"""The computation of a sentence-transformers checkpoint, as :mod:`.layout_reader` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Maximum size of a hidden state or of a pooled vector.
MAX_DIMENSIONS = 2**17

#: Pooling modes by the older field that turns each on, in the order in which their vectors are concatenated.
POOLING_FIELDS: Mapping[str, str] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLING_MODES = tuple(POOLING_FIELDS.values())
#: Activations of dense modules, by the last part of the class's name.
ACTIVATIONS = ("Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid")


@dataclass(frozen=True, slots=True)
class PoolingLayout:
    """The pooling of hidden states to one vector.

    Attributes:
        hidden_size: size of a hidden state.
        modes: one or more of :data:`POOLING_MODES`; the vectors of several modes are concatenated.
        include_prompt: whether the tokens of a prompt are pooled, too.
    """

    hidden_size: int
    modes: tuple[str, ...]
    include_prompt: bool = True


@dataclass(frozen=True, slots=True)
class DenseLayout:
    """A linear layer with an activation, ``[inputs]`` to ``[outputs]``; its weights are in ``folder``."""

    folder: Path
    inputs: int
    outputs: int
    bias: bool
    activation: str
    residual: bool = False


@dataclass(frozen=True, slots=True)
class LayerNormLayout:
    """A layer norm over a vector of ``size`` numbers; its weights are in ``folder``."""

    folder: Path
    size: int


@dataclass(frozen=True, slots=True)
class NormalizeLayout:
    """Scaling to length 1."""


VectorStep = DenseLayout | LayerNormLayout | NormalizeLayout


@dataclass(frozen=True, slots=True)
class EmbeddingLayout:
    """The computation of a checkpoint.

    Attributes:
        folder: the checkpoint's folder.
        transformer: folder of the transformers model and its tokenizer.
        pooling: the pooling of the model's hidden states.
        steps: the steps that transform the pooled vector, in order.
        dimensions: size of an embedding.
        max_tokens: maximum tokens of a text, with special ones; None leaves it to model and tokenizer.
        length_file: the file that states ``max_tokens``, for error messages.
        lower_case: whether texts are changed to lower case before they are tokenised.
        prompts: texts that are put before an input, by name.
        default_prompt: name of the prompt of inputs that name none; None for no prompt.
    """

    folder: Path
    transformer: Path
    pooling: PoolingLayout
    steps: tuple[VectorStep, ...]
    dimensions: int
    max_tokens: int | None = None
    length_file: Path | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None

    @property
    def normalized(self) -> bool:
        """Whether embeddings have length 1."""
        return bool(self.steps) and isinstance(self.steps[-1], NormalizeLayout)
