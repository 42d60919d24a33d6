"""The transformers model of an embedding checkpoint: token ids to pooled and finished vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING

from specclient.errors import CheckpointError
from specclient_local.embedding.layout import MAX_DIMENSIONS, EmbeddingLayout
from specclient_local.embedding.pooling import pool
from specclient_local.embedding.text_tokens import TextTokens
from specclient_local.embedding.vector_steps import load_step
from specclient_local.model.checkpoint_files import (
    check_files,
    checkpoint_errors,
    one_line,
    read_json,
    shown,
)
from specclient_local.model.hf.attention import quiet_transformers
from specclient_local.model.weights import check_values, count_numbers

#: Prefixes of parameters that the hidden states do not need; a checkpoint may lack them.
_UNUSED = ("pooler.",)
#: Tokens of a text for a model without a maximum of its own.
_DEFAULT_LIMIT = 8192


class TextEncoder:
    """Computes embeddings of token ids.

    Args:
        layout: the modules of the checkpoint.
        dtype: data type of computation, one of ``config.DTYPES``; pooling and later steps are in float32.
        device: device that it runs on.

    Attributes:
        vocabulary: number of token ids of the model.

    Raises:
        CheckpointError: the checkpoint is invalid; one line that names the file and the problem.
    """

    def __init__(self, layout: EmbeddingLayout, dtype: str, device: torch.device) -> None:
        self.layout, self.device = layout, device
        config = read_model_config(layout.transformer)
        self._net = _load_net(layout, config, dtype)
        self._net.to(device)  # type: ignore[arg-type]
        self._steps = [load_step(step, device) for step in layout.steps]
        self._positions = _position_rows(self._net)
        trained = getattr(config.get_text_config(), "max_position_embeddings", None)
        self._trained: int | None = trained if isinstance(trained, int) and trained > 0 else None
        embedding: Any = self._net.get_input_embeddings()
        self.vocabulary: int = embedding.num_embeddings
        self._padding = config.pad_token_id if isinstance(config.pad_token_id, int) else 0

    def limit(self, tokenizer_limit: int | None) -> int:
        """Return the maximum tokens of a text: the checkpoint's, else the smaller of model's and tokenizer's.

        Args:
            tokenizer_limit: the tokenizer's maximum; None if it states none.

        Raises:
            CheckpointError: the checkpoint states more than the model has positions for.
        """
        stated = self.layout.max_tokens
        if stated is None:
            known = [
                limit for limit in (tokenizer_limit, self._positions, self._trained) if limit is not None
            ]
            return min(known, default=_DEFAULT_LIMIT)
        if self._positions is not None and stated > self._positions:
            raise CheckpointError(
                f"{self.layout.length_file}: max_seq_length is {stated}, but the model has {self._positions} "
                "positions; the two belong to different models."
            )
        return stated

    @torch.inference_mode()
    def embed(self, texts: Sequence[TextTokens]) -> Tensor:
        """Return the embeddings of a batch, ``[B, dimensions]`` in float32 on the CPU."""
        lengths = torch.tensor([len(text.ids) for text in texts])
        longest = max(int(lengths.max()), 1)
        ids = torch.full((len(texts), longest), self._padding)
        for row, text in enumerate(texts):
            ids[row, : len(text.ids)] = torch.tensor(text.ids)
        mask = (torch.arange(longest) < lengths[:, None]).long()
        out = self._net(input_ids=ids.to(self.device), attention_mask=mask.to(self.device))
        prompts = torch.tensor([text.prompt for text in texts])
        vectors = pool(
            self.layout.pooling, out.last_hidden_state, lengths.to(self.device), prompts.to(self.device)
        )
        for step in self._steps:
            vectors = step(vectors)
        return vectors.cpu()


def read_model_config(folder: Path) -> PreTrainedConfig:
    """Read the configuration of a checkpoint's transformers model, without running code from it.

    Raises:
        CheckpointError: the file is invalid, or transformers has no encoder of this type.
    """
    check_files(folder)
    path = folder / "config.json"
    raw = read_json(path)
    kind = shown(raw.get("model_type"))
    with checkpoint_errors(path):
        try:
            with quiet_transformers():
                config: PreTrainedConfig = AutoConfig.from_pretrained(
                    folder, trust_remote_code=False, local_files_only=True
                )
        except Exception as error:  # the library raises many types of exceptions for broken files
            raise CheckpointError(
                f"{path}: transformers cannot read model_type {kind} ({type(error).__name__})"
                f"{', which would need trust_remote_code' if raw.get('auto_map') else ''}. Code from "
                "checkpoints is never run; choose a model that the library itself supports."
            ) from error
        if config.is_encoder_decoder or type(config) not in MODEL_MAPPING:
            raise CheckpointError(
                f"{path}: model_type {kind} is no encoder or decoder of texts; choose a model such as BERT, "
                "MPNet, XLM-R, ModernBERT or Qwen3."
            )
        _check_sizes(path, config.get_text_config())
    return config


def _check_sizes(path: Path, config: PreTrainedConfig) -> None:
    """Refuse sizes that no model has, before one is built from them."""
    bounds = (("num_hidden_layers", 2**10), ("vocab_size", 2**24), ("hidden_size", MAX_DIMENSIONS))
    for name, most in bounds:
        value = getattr(config, name, None)
        if not isinstance(value, int) or not 1 <= value <= most:
            raise CheckpointError(f"{path}: {name} is {shown(value)}; it must be from 1 to {most}.")


def count_parameters(config: PreTrainedConfig) -> int:
    """Return the number of a model's parameters, without its weights."""
    with torch.device("meta"), quiet_transformers():
        net: nn.Module = AutoModel.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    return sum(weight.numel() for weight in net.parameters())


def _load_net(layout: EmbeddingLayout, config: PreTrainedConfig, dtype: str) -> PreTrainedModel:
    folder = layout.transformer
    count_numbers(folder)  # names a file that is missing or truncated
    hidden = config.get_text_config().hidden_size
    if (
        not isinstance(hidden, int)
        or not 1 <= hidden <= MAX_DIMENSIONS
        or hidden != layout.pooling.hidden_size
    ):
        raise CheckpointError(
            f"{folder / 'config.json'}: hidden_size is {hidden}, but the pooling's config.json states "
            f"{layout.pooling.hidden_size}; the two belong to different models."
        )
    with quiet_transformers():
        try:
            loaded: Any = AutoModel.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        except Exception as error:  # as above
            raise CheckpointError(
                f"{folder}: the checkpoint cannot be loaded ({type(error).__name__}: {one_line(error)}); it "
                "needs whole *.safetensors; download it again."
            ) from error
    net: PreTrainedModel = loaded[0]
    _check_report(folder, loaded[1])
    check_values(folder, net.named_parameters())
    net.eval()  # type: ignore[no-untyped-call]
    net.requires_grad_(requires_grad=False)
    return net


def _check_report(folder: Path, report: Any) -> None:
    """Raise :class:`CheckpointError` for weights that the library initialised randomly."""
    for name, actual, expected in sorted(report.get("mismatched_keys", ())):
        raise CheckpointError(
            f"{folder}: tensor {name} has shape {list(actual)}, but config.json requires {list(expected)}; "
            "the two belong to different models."
        )
    missing = sorted(name for name in report.get("missing_keys", ()) if not name.startswith(_UNUSED))
    if missing:
        raise CheckpointError(
            f"{folder}: tensor {missing[0]} is missing ({len(missing)} in all); download it again."
        )


def _position_rows(net: PreTrainedModel) -> int | None:
    """Return the number of a model's learned positions; None if its positions are computed.

    Models like RoBERTa (XLM-R, MPNet) number positions from one after the padding's on.
    """
    for name, module in net.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith("position_embeddings"):
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - first
    return None
