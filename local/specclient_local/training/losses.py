"""Distillation losses between a draft's and its target's logits, and the acceptance rates that follow.

The more a draft's distribution overlaps with the target's, the more of its tokens are accepted (Leviathan et
al., arXiv 2211.17192, theorem 3.5 and corollary 3.6). :mod:`specclient_local.decoding.verify` states the
rate.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.decoding.verify import expected_acceptance

Loss = Literal["kl", "hard", "tv"]
LOSSES: tuple[Loss, ...] = ("kl", "hard", "tv")


def distillation_loss(kind: Loss, draft: Tensor, target: Tensor) -> Tensor:
    """Return the mean loss over positions, a scalar of at least 0, in nats (``tv``: a probability).

    Args:
        kind: ``kl`` is the forward divergence KL(p ‖ q), which makes the draft cover the target's whole
            distribution (one of the divergences of DistillSpec, arXiv 2310.08461). ``hard`` is the
            cross-entropy with the target's most likely token, which is what greedy decoding needs. ``tv`` is
            the total-variation distance ½ Σ |p − q| (DistillSpec), which is least where the most drafted
            tokens are accepted at temperature 1 (corollary 3.6 above).
        draft: logits ``[N, V]`` with gradients.
        target: logits ``[N, V]``.
    """
    predicted = F.log_softmax(draft.float(), dim=-1)
    if kind == "hard":
        return F.nll_loss(predicted, target.argmax(dim=-1))
    wanted = torch.log_softmax(target.float(), dim=-1)
    if kind == "kl":
        return F.kl_div(predicted, wanted, reduction="batchmean", log_target=True)
    return (wanted.exp() - predicted.exp()).abs().sum(dim=-1).mean() / 2


def acceptance_chance(draft: Tensor, target: Tensor) -> Tensor:
    """Return the probability ``[N]`` that a token drawn from the draft is accepted at temperature 1.

    Args:
        draft, target: logits ``[N, V]``.
    """
    p, q = (torch.softmax(logits.float(), dim=-1) for logits in (target, draft))
    return expected_acceptance(p, q)


def replay_greedy(agrees: list[bool], drafted: int) -> tuple[int, int, int]:
    """Replay greedy speculation over a greedy answer of the target, without running either model.

    After a correct prefix, a greedy draft chain equals the target's answer up to the first disagreement.
    The draft's agreement at each position, given the target's tokens before it, therefore determines every
    round.

    Args:
        agrees: for each token of the answer, whether it is the draft's most likely token.
        drafted: drafted tokens per round.

    Returns:
        The number of rounds, the number of rounds whose first token is accepted, and the total of tokens.
    """
    at = rounds = first = tokens = 0
    while at + drafted < len(agrees):
        run = agrees[at : at + drafted]
        accepted = drafted if all(run) else run.index(False)
        rounds, first, tokens = rounds + 1, first + (accepted > 0), tokens + accepted + 1
        at += accepted + 1
    return rounds, first, tokens
