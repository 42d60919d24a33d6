"""Turn acceptance, the cost of drafting and how busy a place is into how many tokens to draft at a time.

With each drafted token accepted with chance α, a verification of K of them gives (1 − α^(K+1)) / (1 − α)
tokens on average, for the time of K·c + 1 plain steps, c being what a drafted token costs beside a pass of
the target (Leviathan et al., arXiv 2211.17192, sections 3.1 and 3.3). How far load and the length of the
input bound K follows what was told of production: drafting that is cut as batches and inputs grow beat every
fixed depth (HyperCLOVA X, 2025), and at high load drafting costs more than it gains (vLLM's blog,
2024-10-17).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from specclient.types.route import PromptTask
from specclient.types.server_load import ServerLoad

__all__ = [
    "BOUNDS",
    "acceptance_probability",
    "best_depth",
    "break_even",
    "drafting_pays",
    "expected_tokens",
    "max_depth",
    "speedup",
]

#: Shallowest and deepest draft by task, in tokens: those that the client-side workflow's presets
#: (:data:`specclient.draft_target.presets.DEPTHS`) were taken from, which mean tokens there.
BOUNDS: Mapping[PromptTask, tuple[int, int]] = MappingProxyType(
    {"chat": (3, 4), "document": (5, 6), "code": (4, 5), "long_context": (2, 3)}
)
#: Of prompts that nobody told the task of.
_ANY = (3, 5)
#: Utilisation below which drafts grow, up to which they are whole, and from which there are none.
_IDLE, _EASY, _FULL = 0.2, 0.5, 0.8
#: Share of the cache up to which there is memory to spare, and from which there is none.
_SPARE, _PRESSED = 0.8, 0.9
#: Tokens of an answer from which on drafting is worth its start.
_LONG_ANSWER = 100
#: Tokens of a prompt from which on each doubling takes one token off a draft.
_LONG_PROMPT = 8192


def expected_tokens(alpha: float, depth: int) -> float:
    """Return the mean tokens that a verification gives, the target's own included.

    Args:
        alpha: chance that a drafted token is accepted, from 0 to 1; ``depth``: tokens drafted, K.
    """
    if alpha >= 1:
        return depth + 1.0
    return (1 - alpha ** (depth + 1)) / (1 - alpha)


def speedup(alpha: float, depth: int, cost_ratio: float) -> float:
    """Return how many times faster than plain decoding it is to draft so many tokens at a time.

    Args:
        cost_ratio: c: seconds that a drafted token takes for each that a pass of the target takes.
    """
    return expected_tokens(alpha, depth) / (depth * cost_ratio + 1)


def break_even(cost_ratio: float, depth: int = 1) -> float:
    """Return the least α with which drafting so many tokens does not lose; above 1 where none would do."""
    if speedup(1.0, depth, cost_ratio) < 1:
        return float("inf")
    return _where(lambda alpha: speedup(alpha, depth, cost_ratio), 1.0)


def acceptance_probability(accepted: float, drafted: float, steps: float) -> float:
    """Return the chance α behind counts of whole verifications.

    Tokens after the first refused one are drafted and never looked at, so the accepted share of drafted ones
    is less than α: with K drafted, it is (E(K) − 1) / K. This is its inverse.

    Args:
        accepted, drafted: tokens; ``steps``: verifications that had a draft.
    """
    depth = drafted / steps
    kept = min(accepted / steps, depth)
    return _where(lambda alpha: _kept(alpha, depth), kept)


def _kept(alpha: float, depth: float) -> float:
    return depth if alpha >= 1 else alpha * (1 - alpha**depth) / (1 - alpha)


def _where(function: Callable[[float], float], wanted: float) -> float:
    """Return where from 0 to 1 a function that grows reaches a value."""
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
    """Return the most tokens to draft at a time: more of them when idle, fewer with load and long prompts."""
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
    """Return the K that is fastest, 0 where drafting loses; the smaller of equal ones.

    Args:
        alpha, cost_ratio: as in :func:`speedup`.
        task, load, prompt_tokens: as far as they bound it; see :func:`max_depth`.
    """
    most = max_depth(task, load, prompt_tokens)
    if load is not None and drafting_pays(load.utilisation, None, load.cache_use) is False:
        return 0
    gains = [speedup(alpha, depth, cost_ratio) for depth in range(most + 1)]
    return gains.index(max(gains))


def drafting_pays(
    utilisation: float | None, output_tokens: float | None = None, memory: float | None = None
) -> bool | None:
    """Tell by the published rule of thumb whether to draft at all; None where it leaves that open.

    On below 50 % utilisation with answers of more than 100 tokens and memory to spare; off above 80 %, or
    where memory is short. In between, what was measured decides.

    Args:
        utilisation: share of what a place can do that it does, from 0 to 1; ``memory``: share that is taken;
            None where unknown, and then it stands against nothing.
        output_tokens: of the answer, likewise.
    """
    used, taken = utilisation or 0.0, memory or 0.0
    if used > _FULL or taken > _PRESSED:
        return False
    long_enough = output_tokens is None or output_tokens > _LONG_ANSWER
    return True if used < _EASY and taken < _SPARE and long_enough else None
