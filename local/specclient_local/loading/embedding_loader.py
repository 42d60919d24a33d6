"""Load an embedding model from a folder or hub id, if it fits into the free memory.

Imports transformers; import it inside ``import_lock``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from specclient.errors import CheckpointError, ConfigurationError
from specclient_local.embedding.batches import batch_tokens
from specclient_local.embedding.embedder import Embedder
from specclient_local.embedding.layout import EmbeddingLayout
from specclient_local.embedding.layout_reader import read_layout
from specclient_local.embedding.text_encoder import TextEncoder, count_parameters, read_model_config
from specclient_local.embedding.text_tokens import TextTokenizer
from specclient_local.loading.embedding_options import EmbeddingOptions
from specclient_local.loading.free_memory import free_memory
from specclient_local.model.devices import resolve_device
from specclient_local.model.weights import count_numbers, resolve_checkpoint

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: Number of vectors of hidden size that a layer holds at once, besides those of its feed-forward part.
_ACTIVATIONS = 12
#: Names of the configuration's fields for the sliding window of a model's layers.
_WINDOWS = ("sliding_window", "local_attention")


@dataclass(frozen=True, slots=True)
class EmbeddingMemoryPlan:
    """The memory that an embedding model needs.

    Attributes:
        device: name of the device that it runs on.
        dtype: data type of its weights.
        parameters: number of weights.
        dimensions: size of an embedding.
        context: maximum tokens of an input; None if it is unknown until the model is loaded.
        batch_tokens: maximum tokens of a batch, with padding.
        weights: bytes of its weights.
        passes: bytes of the activations of the largest batch.
        memory: free bytes of the device; None where unknown.
    """

    device: str
    dtype: str
    parameters: int
    dimensions: int
    context: int | None
    batch_tokens: int
    weights: int
    passes: int
    memory: int | None

    @property
    def total(self) -> int:
        """Bytes of weights and activations together."""
        return self.weights + self.passes

    @property
    def fits(self) -> bool:
        """Whether the total fits in memory; true where the memory is unknown."""
        return self.memory is None or self.total <= self.memory


def plan_embedding(
    folder: Path, options: EmbeddingOptions, free: Callable[[torch.device], int | None] = free_memory
) -> EmbeddingMemoryPlan:
    """Compute the memory that an embedding model needs; its weights are not read.

    Args:
        folder: the checkpoint's folder.
        options: the options for loading it.
        free: returns a device's free bytes before the model is loaded.

    Raises:
        CheckpointError, ConfigurationError: see :func:`load_embedder`.
    """
    device = resolve_device(options.device)
    layout = read_layout(folder)
    config = read_model_config(layout.transformer)
    has_weights = any(layout.transformer.glob("*.safetensors"))
    parameters = count_numbers(layout.transformer) if has_weights else count_parameters(config)
    text = config.get_text_config()
    size = batch_tokens(parameters, on_cpu=device.type == "cpu")
    stated = getattr(text, "max_position_embeddings", None)
    context = options.context or layout.max_tokens or (stated if isinstance(stated, int) else None)
    longest = max(size, context or 0)
    inner = int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size)
    numbers = _ACTIVATIONS * text.hidden_size + 2 * inner
    # The attention mask has texts × length² numbers. A batch of one text needs a mask only if the model's
    # layers have a sliding window.
    windowed = any(getattr(text, name, None) for name in _WINDOWS)
    masks = longest * longest if windowed else size * min(size, longest)
    passes = _BYTES[options.dtype] * (longest * numbers + masks)
    return EmbeddingMemoryPlan(
        device=str(device),
        dtype=options.dtype,
        parameters=parameters,
        dimensions=layout.dimensions,
        context=context,
        batch_tokens=size,
        weights=parameters * _BYTES[options.dtype],
        passes=passes,
        memory=free(device),
    )


def check_embedding_memory(
    folder: Path, options: EmbeddingOptions, free: Callable[[torch.device], int | None] = free_memory
) -> EmbeddingMemoryPlan:
    """Return the memory plan of an embedding model that fits; arguments as for :func:`plan_embedding`.

    Raises:
        CheckpointError: see :func:`load_embedder`.
        ConfigurationError: it does not fit; names the sizes, and options with which it fits.
    """
    plan = plan_embedding(folder, options, free)
    if plan.fits or plan.memory is None:
        return plan
    shorter = [options]
    if (plan.context or 0) > plan.batch_tokens:  # a shorter one than a batch saves nothing
        shorter.append(replace(options, context=plan.batch_tokens))
    half = [replace(each, dtype="bfloat16") for each in shorter if each.dtype == "float32"]
    tried = [*shorter[1:], *half]
    fitting = next((each for each in tried if plan_embedding(folder, each, lambda _: plan.memory).fits), None)
    if fitting is None:
        advice = "it fits in no data type; choose a smaller model, or free memory."
    else:
        names = ("context", "dtype")
        changed = {n: getattr(fitting, n) for n in names if getattr(fitting, n) != getattr(options, n)}
        advice = f"it fits with {' and '.join(f'{name} {value!r}' for name, value in changed.items())}."
    raise ConfigurationError(
        f"the embedding model's weights take {plan.weights / 2**20:.1f} MiB and its activations "
        f"{plan.passes / 2**20:.1f} MiB, but {plan.device} has {plan.memory / 2**20:.1f} MiB free; {advice}"
    )


def load_embedder(model: str | Path, options: EmbeddingOptions) -> Embedder:
    """Load an embedding model.

    Args:
        model: folder or hub id of a sentence-transformers checkpoint.
        options: the options for loading it.

    Raises:
        CheckpointError: the checkpoint cannot be loaded; one line that names the file.
        ConfigurationError: the device is not available, the memory is too small, or the context too large.
    """
    device = resolve_device(options.device)  # rejects an unavailable device before any file is read
    folder = resolve_checkpoint(model)
    plan = check_embedding_memory(folder, options)
    layout = read_layout(folder)
    tokenizer = TextTokenizer(layout)
    encoder = TextEncoder(layout, options.dtype, device)
    limit = encoder.limit(tokenizer.own_limit)
    _check_vocabulary(layout, tokenizer, encoder)
    if options.context is not None and options.context > limit:
        raise ConfigurationError(
            f"context is {options.context}; allowed is 1 to {limit}, the longest that {folder} supports."
        )
    return Embedder(
        encoder,
        tokenizer,
        limit=options.context or limit,
        batch_tokens=plan.batch_tokens,
        threads=options.threads or torch.get_num_threads(),
    )


def _check_vocabulary(layout: EmbeddingLayout, tokenizer: TextTokenizer, encoder: TextEncoder) -> None:
    """Raise CheckpointError if the tokenizer has ids beyond the model's vocabulary."""
    if tokenizer.highest >= encoder.vocabulary:
        raise CheckpointError(
            f"{layout.transformer}: the tokenizer has the token id {tokenizer.highest}, but the model's are "
            f"0 to {encoder.vocabulary - 1}; the two belong to different models."
        )
