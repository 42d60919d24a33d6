"""Scores of given tokens: log-probabilities, ranks and alternatives."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specclient_local.model.sampling import greedy_tokens
from specclient_local.request.sequence import TokenScore

_ROWS = 32
"""Rows processed at once; bounds the additional memory."""


@torch.inference_mode()
def token_scores(logits: Tensor, tokens: Sequence[int], top: int) -> list[TokenScore]:
    """Score one token per row, in float32.

    Equal logits rank by id, as in greedy decoding: rank 1 is the token that greedy decoding selects.

    Args:
        logits: ``[N, V]``, of the positions that predict the tokens.
        tokens: ``[N]`` token ids to score.
        top: number of alternatives per token.

    Raises:
        EngineError: a row's largest logit is NaN or infinite.
    """
    scores: list[TokenScore] = []
    for begin in range(0, len(tokens), _ROWS):
        scores += _scores(logits[begin : begin + _ROWS].float(), tokens[begin : begin + _ROWS], top)
    return scores


def _scores(logits: Tensor, tokens: Sequence[int], top: int) -> list[TokenScore]:
    best = torch.tensor(greedy_tokens(logits), device=logits.device)
    logprobs = torch.log_softmax(logits, dim=-1)
    index = torch.tensor(tokens, device=logits.device)[:, None]
    own = logits.gather(-1, index)
    before = torch.arange(logits.shape[-1], device=logits.device) < index
    ranks = 1 + ((logits > own) | ((logits == own) & before)).sum(dim=-1)
    return [
        TokenScore(*score)
        for score in zip(
            tokens,
            logprobs.gather(-1, index).flatten().tolist(),
            ranks.tolist(),
            _alternatives(logprobs, best, top),
            strict=True,
        )
    ]


def _alternatives(logprobs: Tensor, best: Tensor, top: int) -> list[tuple[tuple[int, float], ...]]:
    """Return each row's ``top`` most likely tokens, ties in order of id; the first is the argmax."""
    if top == 1:  # ``topk`` resolves ties arbitrarily
        ids, values = best[:, None], logprobs.gather(-1, best[:, None])
    else:
        values, ids = logprobs.topk(min(top, logprobs.shape[-1]), dim=-1)
    rows = zip(ids.tolist(), values.tolist(), strict=True)
    return [tuple(sorted(zip(*row, strict=True), key=lambda pair: (-pair[1], pair[0]))) for row in rows]
