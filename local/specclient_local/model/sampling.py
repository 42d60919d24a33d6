"""Sampling transforms: logits to the distribution from which a request samples.

Temperature, top-k, top-p, min-p and typical-p apply in this order, as in ``transformers``. Each applies to
the renormalised distribution that the one before it leaves. Both the target's p and the draft's q are
transformed like this, and answers have the distribution of the target's transformed logits. Probabilities are
float64: the residual of two close distributions is a difference of nearly equal numbers, of which float32
keeps too few digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.model.native.argmax import native_argmax
from specclient_local.request.params import SamplingParams
from specclient_local.request.sequence import NO_TOKEN
from specclient_local.request.token_tree import Distribution
from specclient_local.request.validation import EmptyConstraintError

NOT_FINITE = "the model's logits are not finite; load with float32 or bfloat16."
"""Message of the error for logits that are NaN or infinite."""


def distributions(logits: Tensor, params: SamplingParams) -> list[Distribution]:
    """Return the N distributions of one request's logits ``[N, V]``; see :func:`all_distributions`.

    Raises:
        EngineError: a row's largest logit is NaN or infinite (as after a float16 overflow), or the request's
            logits processor allows no token.
    """
    found = all_distributions([logits], [params])[0]
    if isinstance(found, EngineError):
        raise found
    return found


def all_distributions(
    logits: Sequence[Tensor], params: Sequence[SamplingParams], *, guessed: bool = False
) -> list[list[Distribution] | EngineError]:
    """Return the distributions of several requests' logits, or the error of each request that has one.

    At temperature 0 a distribution is the one-hot of the largest logit, of equal ones the first: the limit of
    the softmax. The argmax of all rows is computed in one call.

    Args:
        logits: ``[N, V]`` per request.
        params: per request.
        guessed: whether a request's rows after the first are below drafted tokens and may never be reached.
            Such a row in which no token is allowed is ``NO_TOKEN``, an error only if a token is drawn from
            it.
    """
    best, values = _largest(logits)
    out: list[list[Distribution] | EngineError] = []
    begin = 0
    for rows, own in zip(logits, params, strict=True):
        end = begin + rows.shape[0]
        bad = logits_error(values[begin:end], guessed=guessed)
        out.append(_drawn_from(rows, best[begin:end], values[begin:end], own) if bad is None else bad)
        begin = end
    return out


def _drawn_from(
    logits: Tensor, best: list[int], largest: list[float], params: SamplingParams
) -> list[Distribution]:
    """Return the distributions of logits ``[N, V]``, given each row's argmax and largest logit."""
    rows: list[Distribution] = [*best]
    if params.temperature > 0.0:
        rows = list(probabilities(logits, params).cpu().numpy())
    return [NO_TOKEN if value == -math.inf else row for row, value in zip(rows, largest, strict=True)]


def greedy_tokens(logits: Tensor) -> list[int]:
    """Return the argmax of each row of ``[N, V]``, of equal logits the first: ``[N]``.

    Raises:
        EngineError: a row's largest logit is NaN or infinite.
    """
    best, values = _largest([logits])
    bad = logits_error(values, guessed=False)
    if bad is not None:
        raise bad
    return best


def _largest(logits: Sequence[Tensor]) -> tuple[list[int], list[float]]:
    """Return each row's argmax and largest logit. Of equal logits the first; NaN is larger than any
    number.
    """
    found = native_argmax(logits)
    if found is not None:
        return found
    together = logits[0] if len(logits) == 1 else torch.cat(list(logits))
    best = together.argmax(dim=-1)
    return best.tolist(), together.gather(-1, best[:, None]).flatten().tolist()


def logits_error(largest: Sequence[float], *, guessed: bool) -> EngineError | None:
    """Return the error for rows with these largest logits, or None.

    Args:
        largest: the largest logit of each row.
        guessed: see :func:`all_distributions`.
    """
    if all(map(math.isfinite, largest)):
        return None
    if any(math.isnan(value) or value == math.inf for value in largest):
        return EngineError(NOT_FINITE)
    return None if guessed and largest[0] > -math.inf else EmptyConstraintError()


def to_float64(logits: Tensor) -> Tensor:
    """Return logits in float64, on the CPU if they are on an MPS device, which has no float64."""
    return (logits.cpu() if logits.device.type == "mps" else logits).double()


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """Apply temperature, then top-k, top-p, min-p and typical-p, and normalise.

    Args:
        logits: ``[N, V]``; temperature must be above 0.

    Returns:
        ``[N, V]`` float64. Tokens that tie with the last one kept by top-k or typical-p stay too.
    """
    # The largest logit is subtracted first, so that a tiny temperature gives -inf and never inf - inf.
    scaled = to_float64(logits)
    scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / params.temperature
    if 0 < params.top_k < scaled.shape[-1]:
        kth = scaled.topk(params.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < kth, -torch.inf)
    p = torch.softmax(scaled, dim=-1)
    if params.top_p < 1.0:
        p = _nucleus(p, params.top_p)
    if params.min_p > 0.0:
        p = _normalised(p.masked_fill(p < params.min_p * p.amax(dim=-1, keepdim=True), 0.0))
    return _typical(p, params.typical_p) if params.typical_p < 1.0 else p


def _nucleus(p: Tensor, top_p: float) -> Tensor:
    """Keep the fewest most likely tokens that together reach ``top_p`` (nucleus sampling, arXiv
    1904.09751).
    """
    kept = torch.zeros_like(p)
    # All tokens less likely than (1 - top_p) / V together have less than 1 - top_p, so the others reach
    # top_p. Sorting only the others is far cheaper; half of the bound leaves room for rounding.
    least = 0.5 * (1.0 - top_p) / p.shape[-1]
    for row, out in zip(p, kept, strict=True):
        index = (row >= least).nonzero().squeeze(-1)
        ordered, order = row[index].sort(descending=True, stable=True)
        count = int((ordered.cumsum(0) - ordered < top_p).sum())
        out[index[order[:count]]] = ordered[:count]
    return _normalised(kept)


def _typical(p: Tensor, mass: float) -> Tensor:
    """Keep the tokens whose information is nearest to the entropy, until they reach ``mass`` together.

    Locally typical sampling (arXiv 2202.00666). The nearest token always stays.
    """
    entropy = torch.special.entr(p).sum(dim=-1, keepdim=True)
    distance = (-p.log() - entropy).abs()  # infinite for a token of probability zero
    ordered, order = distance.sort(dim=-1, stable=True)
    reached = p.gather(-1, order).cumsum(dim=-1)
    last = (reached < mass).sum(dim=-1, keepdim=True).clamp_(max=p.shape[-1] - 1)
    return _normalised(p.masked_fill(distance > ordered.gather(-1, last), 0.0))


def _normalised(p: Tensor) -> Tensor:
    return p / p.sum(dim=-1, keepdim=True)
