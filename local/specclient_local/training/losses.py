"""Turn what a target and its draft say at the same places into a loss, and into acceptance.

At a place with target distribution p and draft distribution q, a token drawn from q is accepted with
probability Σ min(p, q) = 1 − TV(p, q) (Leviathan et al., arXiv 2211.17192, theorem 3.5 and corollary 3.6).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Loss = Literal["kl", "hard", "tv"]
LOSSES: tuple[Loss, ...] = ("kl", "hard", "tv")


def distillation_loss(kind: Loss, draft: Tensor, target: Tensor) -> Tensor:
    """Return the mean loss over places, a scalar of at least 0, in nats (``tv``: a probability).

    Args:
        kind: ``kl`` is the forward divergence KL(p ‖ q), which has the draft cover all that the target may
            say (of the divergences of DistillSpec, arXiv 2310.08461). ``hard`` is cross-entropy with the
            target's likeliest token, all that greedy decoding asks for. ``tv`` is the total-variation
            distance ½ Σ |p − q| (DistillSpec), the share of drafted tokens that is refused at temperature 1
            (corollary 3.6 above).
        draft: logits ``[N, V]`` with gradients.
        target: logits ``[N, V]``.
    """
    said = F.log_softmax(draft.float(), dim=-1)
    if kind == "hard":
        return F.nll_loss(said, target.argmax(dim=-1))
    wanted = torch.log_softmax(target.float(), dim=-1)
    if kind == "kl":
        return F.kl_div(said, wanted, reduction="batchmean", log_target=True)
    return (wanted.exp() - said.exp()).abs().sum(dim=-1).mean() / 2


def acceptance_chance(draft: Tensor, target: Tensor) -> Tensor:
    """Return the chance ``[N]`` that a token drawn from the draft is accepted: Σ min(p, q).

    Args:
        draft, target: logits ``[N, V]``.
    """
    p, q = (torch.softmax(logits.float(), dim=-1) for logits in (target, draft))
    return torch.minimum(p, q).sum(dim=-1)


def replay_greedy(agrees: list[bool], drafted: int) -> tuple[int, int, int]:
    """Replay greedy speculation over a greedy answer of the target, without running either model.

    A greedy chain from a right prefix follows the target until the two first disagree, so that agreement
    place by place, each after the target's own tokens, decides every round.

    Args:
        agrees: for each token of the answer, whether the draft would have said it.
        drafted: tokens a round.

    Returns:
        rounds, those whose first token is accepted, and tokens won in all of them.
    """
    at = rounds = first = tokens = 0
    while at + drafted < len(agrees):
        run = agrees[at : at + drafted]
        accepted = drafted if all(run) else run.index(False)
        rounds, first, tokens = rounds + 1, first + (accepted > 0), tokens + accepted + 1
        at += accepted + 1
    return rounds, first, tokens
