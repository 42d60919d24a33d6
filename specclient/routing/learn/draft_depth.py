"""Draft depth: the best number of tokens to draft at a time, from acceptance, cost of drafting and load.

If each drafted token is accepted with probability α, a verification of K drafted tokens gives
(1 − α^(K+1)) / (1 − α) tokens on average, in the time of K·c + 1 plain steps, where c is the cost of a
drafted token relative to a pass of the target (Leviathan et al., arXiv 2211.17192, sections 3.1 and 3.3). The
bounds on K by load and input length follow reports from production: a depth that is reduced as batches and
inputs grow beat every fixed depth (HyperCLOVA X, 2025), and at high load drafting costs more than it gains
(vLLM's blog, 2024-10-17).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from specclient.types.criterion import PromptTask
from specclient.types.server_load import ServerLoad

__all__ = [
    "BOUNDS",
    "best_depth",
    "break_even",
    "drafting_pays",
    "estimated_acceptance",
    "expected_tokens",
    "max_depth",
    "speedup",
]

#: The least and greatest depth by task, in tokens. The presets of the client-side workflow
#: (:data:`specclient.draft_target.presets.DEPTHS`) have the same source.
BOUNDS: Mapping[PromptTask, tuple[int, int]] = MappingProxyType(
    {"chat": (3, 4), "document": (5, 6), "code": (4, 5), "long_context": (2, 3)}
)
#: The same for prompts of an unknown task.
_ANY = (3, 5)
#: The utilisation below which drafts are longer, up to which they are full, and above which there are none.
_IDLE, _EASY, _FULL = 0.2, 0.5, 0.8
#: The used share of the KV cache below which memory is spare, and above which it is short.
_SPARE, _PRESSED = 0.8, 0.9
#: Tokens of an answer above which drafting is worth its overhead.
_LONG_ANSWER = 100
#: Tokens of a prompt from which each doubling takes one token off the depth.
_LONG_PROMPT = 8192


def expected_tokens(alpha: float, depth: int) -> float:
    """Return the mean tokens of a verification, the target's own token included.

    Args:
        alpha: the probability that a drafted token is accepted, from 0 to 1.
        depth: drafted tokens, K.
    """
    if alpha >= 1:
        return depth + 1.0
    return (1 - alpha ** (depth + 1)) / (1 - alpha)


def speedup(alpha: float, depth: int, cost_ratio: float) -> float:
    """Return the speedup over plain decoding of drafting ``depth`` tokens at a time.

    Args:
        cost_ratio: c, the seconds of a drafted token over those of a pass of the target.
    """
    return expected_tokens(alpha, depth) / (depth * cost_ratio + 1)


def break_even(cost_ratio: float, depth: int = 1) -> float:
    """Return the least α with which drafting ``depth`` tokens is not slower; infinite if there is none."""
    if speedup(1.0, depth, cost_ratio) < 1:
        return float("inf")
    return _where(lambda alpha: speedup(alpha, depth, cost_ratio), 1.0)


def estimated_acceptance(accepted: float, drafted: float, steps: float) -> float:
    """Return the acceptance probability α that counts of verifications imply.

    Tokens after the first rejected one are never verified, so the accepted share of drafted tokens is less
    than α: for depth K it is (E(K) − 1) / K. This function is the inverse.

    Args:
        accepted, drafted: tokens.
        steps: verifications with a draft.
    """
    depth = drafted / steps
    kept = min(accepted / steps, depth)
    return _where(lambda alpha: _kept(alpha, depth), kept)


def _kept(alpha: float, depth: float) -> float:
    return depth if alpha >= 1 else alpha * (1 - alpha**depth) / (1 - alpha)


def _where(function: Callable[[float], float], wanted: float) -> float:
    """Return the argument from 0 to 1 at which an increasing function reaches a value."""
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if function(middle) < wanted:
            low = middle
        else:
            high = middle
    return high


def max_depth(
    task: PromptTask | None, load: ServerLoad | None = None, prompt_tokens: int | None = None
) -> int:
    """Return the greatest depth in tokens: greater when idle, smaller with load and long prompts."""
    shallow, most = _ANY if task is None else BOUNDS[task]
    doublings = 0
    while prompt_tokens is not None and prompt_tokens >= _LONG_PROMPT << doublings:
        doublings += 1
    most = max(most - doublings, shallow - 1)
    used = None if load is None else load.utilisation
    if used is None:
        return most
    if used < _IDLE:
        return most + 2
    left = (_FULL - used) / (_FULL - _EASY)
    return max(min(round(most * left), most), 0)


def best_depth(
    alpha: float,
    cost_ratio: float,
    *,
    task: PromptTask | None = None,
    load: ServerLoad | None = None,
    prompt_tokens: int | None = None,
) -> int:
    """Return the fastest depth K, 0 if drafting is slower; the smallest of equal ones.

    Args:
        alpha, cost_ratio: as in :func:`speedup`.
        task, load, prompt_tokens: bound the depth; see :func:`max_depth`.
    """
    most = max_depth(task, load, prompt_tokens)
    if load is not None and drafting_pays(load.utilisation, None, load.cache_use) is False:
        return 0
    gains = [speedup(alpha, depth, cost_ratio) for depth in range(most + 1)]
    return gains.index(max(gains))


def drafting_pays(
    utilisation: float | None, output_tokens: float | None = None, memory: float | None = None
) -> bool | None:
    """Return whether to draft, by the published rule of thumb; None where measurements should decide.

    Drafting is on below 50 % utilisation, with answers of more than 100 tokens and spare memory; it is off
    above 80 %, or if memory is short.

    Args:
        utilisation: the used share of the server's capacity, from 0 to 1; None where unknown, which rules out
            nothing.
        output_tokens: of the answer, None where unknown.
        memory: the used share of the KV cache, None where unknown.
    """
    used, taken = utilisation or 0.0, memory or 0.0
    if used > _FULL or taken > _PRESSED:
        return False
    long_enough = output_tokens is None or output_tokens > _LONG_ANSWER
    return True if used < _EASY and taken < _SPARE and long_enough else None
