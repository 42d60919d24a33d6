"""Turn attention and projections of a transformers model into ones whose rows do not depend on their company.

Transformers lets a model's attention be exchanged by name, and hands the exchanged one each layer's window
and soft cap. Rows are attended to as in ``decoder``: each as a batch of its own, over whole blocks of the
cache. Projections get the kernels of ``linear``. What else a model computes row by row is left as it is;
whether its rows keep their bits is tried at load (``hf``).
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
    """A model's attention has a term that this one has not."""


@dataclass(frozen=True, slots=True)
class PassPositions:
    """Where the rows of the pass that is running stand, for masks that depend on the layer.

    Attributes:
        rows: ``[N]`` positions of the rows.
        columns: ``[L]`` positions of what the cache holds.
        windows: takes down what windows the layers name.
    """

    rows: Tensor
    columns: Tensor
    windows: set[int]


PASS_POSITIONS: ContextVar[PassPositions] = ContextVar("places")
"""Set around each pass: an attention layer is handed its mask and window, but no positions."""


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
    """Attend as :class:`transformers.AttentionInterface` has it.

    Args:
        module: the layer.
        query: ``[1, H, N, D]``.
        key: ``[1, KV, L, D]``; ``value`` alike.
        attention_mask: ``[1, 1, N, L]`` float, added to the scores.
        scaling: of the scores; 1 / √D by default.
        softcap: what the scores are squashed to by tanh (Gemma 2).
        sliding_window: positions seen by the layer, where not all.

    Returns:
        ``[1, N, H, D]``, and no weights.

    Raises:
        UnsupportedAttentionError: the layer adds sinks or a bias by position.
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
        # The query heads that share a key head stand as its rows, the N rows as the batch.
        q = query[0].transpose(0, 1).reshape(rows, groups, heads // groups, dim)
        k, v = key.expand(rows, -1, -1, -1), value.expand(rows, -1, -1, -1)
        out = _weigh(q, k, v, mask, scaling=scaling, softcap=softcap)
        return out.reshape(1, rows, heads, value.shape[-1]), None
    # Each query head with its own key head: the rows as one block.
    k, v = (t.repeat_interleave(heads // groups, dim=1).transpose(0, 1) for t in (key, value))
    out = _weigh(
        query.transpose(0, 1), k, v, mask[None].expand(heads, -1, -1), scaling=scaling, softcap=softcap
    )
    return out.permute(1, 2, 0, 3), None


def _weigh(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, scaling: float | None, softcap: float | None
) -> Tensor:
    """Return the values weighed by the softmax of the scores.

    Args:
        q: ``[B, G, R, D]``.
        keys: ``[B, G, L, D]``; ``values`` alike.
        mask: ``[B, L]``, or ``[B, R, L]``.
        scaling: of the scores.
        softcap: of the scores, before the mask.
    """
    mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
    if softcap is None:
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scaling)
    scores = q @ keys.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
    weights = torch.softmax(torch.tanh(scores / softcap) * softcap + mask, dim=-1, dtype=torch.float32)
    return weights.to(values.dtype) @ values


class RowStableProjection(nn.Module):
    """A linear layer by the kernel chosen for it; any leading shape.

    Attributes:
        weight: empty, of the layer's type: models ask a layer for the type it computes in.
    """

    def __init__(self, kernel: LinearKernel, weight: Tensor) -> None:
        super().__init__()
        self._kernel = kernel
        self.weight = nn.Parameter(weight.new_empty(0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in]`` to ``[..., out]``."""
        y = self._kernel(x.reshape(-1, x.shape[-1]))
        return y.view(*x.shape[:-1], y.shape[-1])


def exchange_attention(net: PreTrainedModel) -> bool:
    """Give a model :func:`attend`; return whether it lets its attention be exchanged."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    try:
        with quiet_transformers():
            net.set_attn_implementation(NAME)
    except (ValueError, ImportError):
        return False
    return True


def exchange_projections(net: nn.Module, choose: KernelChooser, quantize: str | None = None) -> None:
    """Give every linear layer below a module the kernel chosen for its shape, and quantise it if asked."""
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
    """Keep the library's progress bars and its report of the load off the terminal."""
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
    """Return the tree of the first nodes alone."""
    if count == len(tree):
        return tree
    first = TokenTree()
    for parent, token in zip(tree.parents[:count], tree.tokens[:count], strict=True):
        first.add(parent, token)
    return first


def visibility_mask(tree: TokenTree, root: int, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Return who sees whom in a pass of ``count`` rows from cache position ``start`` on.

    Returns:
        ``[N, L]`` bool over whole blocks of the cache, and the ``[L]`` positions of what stands there.
    """
    end = start + count
    columns = torch.arange(-(-end // POSITION_BLOCK) * POSITION_BLOCK)
    seen = columns[None, :] <= torch.arange(start, end)[:, None]
    if not tree.is_chain:
        first = max(start, root)
        seen[first - start :, root:end] = torch.from_numpy(tree.ancestors()[first - root :])
        columns[root + 1 : end] = root + torch.tensor(tree.depths())
    return seen, columns
