"""Attention and projections for transformers models whose rows do not depend on the batch size.

Transformers models can be given another attention function by name, which receives each layer's window and
soft cap. Rows are computed as in ``eager_passes``: each as its own batch, over whole blocks of the cache.
Projections use the kernels of ``linear_kernels``. The model's other row-wise operations are unchanged;
whether their results are bit-identical is tested when the model is loaded (``hf.pass_mode``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging as library_logging

from specclient_local.model.kv_cache import POSITION_BLOCK
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST, KernelChooser, LinearKernel
from specclient_local.model.quantization import quantize_weight
from specclient_local.request.token_tree import TokenTree

NAME = "specclient_rows"


class UnsupportedAttentionError(Exception):
    """A model's attention has a term that :func:`attend` does not support."""


@dataclass(frozen=True, slots=True)
class PassPositions:
    """Positions of the rows of the current pass, for masks that depend on the layer.

    Attributes:
        rows: ``[N]`` positions of the rows.
        columns: ``[L]`` positions of the cache's entries.
        windows: collects the sliding windows that layers pass to :func:`attend`.
    """

    rows: Tensor
    columns: Tensor
    windows: set[int]


PASS_POSITIONS: ContextVar[PassPositions] = ContextVar("pass_positions")
"""Set for each pass, because attention functions receive the mask and the window, but no positions."""


def attend(  # noqa: PLR0917 - the library's signature
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention with the signature of :class:`transformers.AttentionInterface`.

    Args:
        module: the layer; not used.
        query: ``[1, H, N, D]``.
        key: ``[1, KV, L, D]``.
        value: ``[1, KV, L, D]``.
        attention_mask: ``[1, 1, N, L]`` float, added to the scores.
        scaling: factor of the scores; 1 / √D by default.
        softcap: bound of the scores, applied by tanh (Gemma 2).
        sliding_window: positions that the layer attends to; None for all.

    Returns:
        ``[1, N, H, D]``, and None in place of the attention weights.

    Raises:
        UnsupportedAttentionError: the layer uses attention sinks or a position bias.
    """
    del module
    if kwargs.get("s_aux") is not None or kwargs.get("position_bias") is not None:
        raise UnsupportedAttentionError
    mask = attention_mask[0, 0, :, : key.shape[2]]
    if sliding_window is not None:
        places = PASS_POSITIONS.get()
        places.windows.add(sliding_window)
        behind = places.columns[None, : mask.shape[1]] <= places.rows[:, None] - sliding_window
        mask = mask.masked_fill(behind, -torch.inf)
    _, heads, rows, dim = query.shape
    groups = key.shape[1]
    if rows <= MAX_ROWS_PER_REQUEST:
        # The query heads that share a key head become its rows; the N rows become the batch.
        q = query[0].transpose(0, 1).reshape(rows, groups, heads // groups, dim)
        k, v = key.expand(rows, -1, -1, -1), value.expand(rows, -1, -1, -1)
        out = _weigh(q, k, v, mask, scaling=scaling, softcap=softcap)
        return out.reshape(1, rows, heads, value.shape[-1]), None
    # One block of rows, with the key heads repeated for each query head.
    k, v = (t.repeat_interleave(heads // groups, dim=1).transpose(0, 1) for t in (key, value))
    out = _weigh(
        query.transpose(0, 1), k, v, mask[None].expand(heads, -1, -1), scaling=scaling, softcap=softcap
    )
    return out.permute(1, 2, 0, 3), None


def _weigh(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, scaling: float | None, softcap: float | None
) -> Tensor:
    """Return the values weighted by the softmax of the scores.

    Args:
        q: ``[B, G, R, D]``.
        keys: ``[B, G, L, D]``.
        values: ``[B, G, L, D]``.
        mask: ``[B, L]`` or ``[B, R, L]``, added to the scores.
        scaling: factor of the scores; 1 / √D by default.
        softcap: bound of the scores, applied before the mask.
    """
    mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
    if softcap is None:
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scaling)
    scores = q @ keys.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
    weights = torch.softmax(torch.tanh(scores / softcap) * softcap + mask, dim=-1, dtype=torch.float32)
    return weights.to(values.dtype) @ values


class RowStableProjection(nn.Module):
    """A linear layer that uses a given kernel.

    Attributes:
        weight: an empty tensor of the layer's dtype, because models read the dtype from it.
    """

    def __init__(self, kernel: LinearKernel, weight: Tensor) -> None:
        super().__init__()
        self._kernel = kernel
        self.weight = nn.Parameter(weight.new_empty(0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in]`` to ``[..., out]``."""
        y = self._kernel(x.reshape(-1, x.shape[-1]))
        return y.view(*x.shape[:-1], y.shape[-1])


def exchange_attention(net: PreTrainedModel) -> bool:
    """Replace a model's attention by :func:`attend`; return False if the model does not support that."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    try:
        with quiet_transformers():
            net.set_attn_implementation(NAME)
    except (ValueError, ImportError):
        return False
    return True


def exchange_projections(net: nn.Module, choose: KernelChooser, quantize: str | None = None) -> None:
    """Replace every linear layer in a module by one with the kernel chosen for its shape.

    Args:
        net: the module; changed in place.
        choose: chooses the kernels.
        quantize: format that weights are quantised to; None keeps them.
    """
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                weight = child.weight.detach()
            elif type(child) is Conv1D:
                weight = child.weight.detach().t().contiguous()
            else:
                continue
            held = weight if quantize is None else quantize_weight(weight, quantize)
            bias = None if child.bias is None else child.bias.detach()
            setattr(parent, name, RowStableProjection(choose(held, bias), weight))


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress the progress bars and load reports of transformers."""
    shown, level = library_logging.is_progress_bar_enabled(), library_logging.get_verbosity()
    library_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    library_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        library_logging.set_verbosity(level)
        if shown:
            library_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def first_nodes(tree: TokenTree, count: int) -> TokenTree:
    """Return a tree of the first ``count`` nodes."""
    if count == len(tree):
        return tree
    first = TokenTree()
    for parent, token in zip(tree.parents[:count], tree.tokens[:count], strict=True):
        first.add(parent, token)
    return first


def visibility_mask(tree: TokenTree, root: int, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Return the attention mask of a pass.

    Args:
        tree: the tree below ``root``; its nodes are in order in the cache.
        root: cache position of the tree's root.
        start: cache position of the pass's first row.
        count: N, the number of rows.

    Returns:
        The mask ``[N, L]``, bool over whole blocks of the cache, and the positions ``[L]`` of the cache's
        entries.
    """
    end = start + count
    columns = torch.arange(-(-end // POSITION_BLOCK) * POSITION_BLOCK)
    seen = columns[None, :] <= torch.arange(start, end)[:, None]
    if not tree.is_chain:
        first = max(start, root)
        seen[first - start :, root:end] = torch.from_numpy(tree.ancestors()[first - root :])
        columns[root + 1 : end] = root + torch.tensor(tree.depths())
    return seen, columns
