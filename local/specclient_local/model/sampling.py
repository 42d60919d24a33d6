"""Turn logits into the probabilities a request samples from: temperature, top-k and top-p.

One transform makes the target's p and the draft's q: then the acceptance test compares like with
like, and the answer is distributed as the target's transformed logits say. Probabilities are
float64: the residual (p − q)+ of two close distributions is a difference of nearly equal numbers,
which in float32 keeps too few digits for its normalisation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.params import SamplingParams
from specclient_local.tree import Distribution

_NOT_FINITE = "the model's logits are not finite; load with float32 or bfloat16."


def distributions(logits: Tensor, params: SamplingParams) -> list[Distribution]:
    """Turn one request's logits ``[N, V]`` into N distributions on the host; see :func:`all_distributions`.

    Raises:
        EngineError: a row's largest logit is NaN or infinite, as after an overflow in float16.
    """
    found = all_distributions([logits], [params])[0]
    if isinstance(found, EngineError):
        raise found
    return found


def all_distributions(
    logits: Sequence[Tensor], params: Sequence[SamplingParams]
) -> list[list[Distribution] | EngineError]:
    """Turn several requests' logits, each ``[N, V]``, into distributions, or into what is wrong with them.

    At temperature 0 each is the one-hot of the largest logit (the first of equal ones): the limit of
    the softmax as the temperature falls. The largest of all requests' rows are found at once.
    """
    best, finite = _largest(logits[0] if len(logits) == 1 else torch.cat(list(logits)))
    out: list[list[Distribution] | EngineError] = []
    begin = 0
    for rows, own in zip(logits, params, strict=True):
        end = begin + len(rows)
        if not all(finite[begin:end]):
            out.append(EngineError(_NOT_FINITE))
        elif own.temperature == 0.0:
            out.append([*best[begin:end]])
        else:
            out.append(list(probabilities(rows, own).cpu().numpy()))
        begin = end
    return out


def greedy_tokens(logits: Tensor) -> list[int]:
    """Return the token of each row's largest logit, the first of equal ones; ``[N, V]`` to ``[N]``.

    Raises:
        EngineError: a row's largest logit is NaN or infinite.
    """
    best, finite = _largest(logits)
    if not all(finite):
        raise EngineError(_NOT_FINITE)
    return best


def _largest(logits: Tensor) -> tuple[list[int], list[bool]]:
    """Return each row's largest logit's token, and whether that logit is finite."""
    best = logits.argmax(dim=-1)  # counts NaN as the largest
    values = logits.gather(-1, best[:, None]).flatten().tolist()
    return best.tolist(), [math.isfinite(value) for value in values]


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """Apply temperature, then top-k, then top-p, and normalise.

    Args:
        logits: ``[..., V]``; temperature must be above 0.

    Returns:
        ``[..., V]`` float64. Tokens that tie with the k-th stay, so top-k may keep more than k.
    """
    # The largest is subtracted first: a tiny temperature then gives -inf, never inf - inf.
    scaled = logits.double()
    scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / params.temperature
    if 0 < params.top_k < scaled.shape[-1]:
        kth = scaled.topk(params.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < kth, -torch.inf)
    p = torch.softmax(scaled, dim=-1)
    return _nucleus(p, params.top_p) if params.top_p < 1.0 else p


def _nucleus(p: Tensor, top_p: float) -> Tensor:
    """Keep the fewest most likely tokens that reach ``top_p`` together (arXiv 1904.09751)."""
    kept = torch.zeros_like(p)
    # Tokens less likely than (1 - top_p) / V hold less than 1 - top_p all together: what comes before
    # them reaches top_p. Sorting the others is far cheaper; half the bound leaves room for rounding.
    least = 0.5 * (1.0 - top_p) / p.shape[-1]
    for row, out in zip(p.view(-1, p.shape[-1]), kept.view(-1, p.shape[-1]), strict=True):
        index = (row >= least).nonzero().squeeze(-1)
        ordered, order = row[index].sort(descending=True, stable=True)
        count = int((ordered.cumsum(0) - ordered < top_p).sum())
        out[index[order[:count]]] = ordered[:count]
    return kept / kept.sum(dim=-1, keepdim=True)
