"""Draft pairs: assumptions about two models as draft and target, before any call.

A pair's acceptance and cost ratio are assumed until its own calls are measured. Without published figures,
they follow from the family and the ratio of the sizes; see :func:`pair_facts`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from specclient.routing.choose.quality_tiers import tier_of
from specclient.routing.learn.priors import ACCEPTANCE
from specclient.types.criterion import PromptTask

__all__ = ["CLIENT_SIDE_PAIRS", "KNOWN_PAIRS", "DraftPairFacts", "pair_facts", "with_measurements"]


@dataclass(frozen=True, slots=True)
class DraftPairFacts:
    """A draft and its target.

    Attributes:
        target, draft: names of checkpoints or routes; in :data:`KNOWN_PAIRS`, prefixes of names.
        same_tokenizer: whether both share a vocabulary, which token verification needs; None where unknown.
        family: the model family.
        size_ratio: parameters of the draft over those of the target; None where either is not public.
        quality: the target's tier, from 0 to 1; see :func:`specclient.routing.choose.quality_tiers.tier_of`.
        acceptance: by task, the share of drafted tokens that the target accepts.
        cost_ratio: by task, the seconds of a drafted token over those of a pass of the target; None if it
            must be measured.
    """

    target: str
    draft: str
    same_tokenizer: bool | None = None
    family: str = ""
    size_ratio: float | None = None
    quality: float | None = None
    acceptance: Mapping[PromptTask, float] = field(default_factory=lambda: ACCEPTANCE)
    cost_ratio: Mapping[PromptTask, float] | None = None


def _rates(chat: float, code: float, document: float, long_context: float) -> Mapping[PromptTask, float]:
    return MappingProxyType({"chat": chat, "code": code, "document": document, "long_context": long_context})


def _cost(size_ratio: float) -> Mapping[PromptTask, float]:
    """Return the assumed cost of a drafted token in passes of the target, by task.

    Reading the weights dominates a step of either model, so the cost is near the ratio of the sizes; the
    overhead of starting a pass is its minimum. The KV cache of a long context, which the target reads in
    every pass, makes drafting relatively cheaper.
    """
    base = max(size_ratio * 1.25, 0.03)
    return MappingProxyType({"chat": base, "code": base, "document": base, "long_context": base * 0.8})


#: Share of tokens kept by drafts of the target's own family: a tenth of its size and a twentieth.
_TENTH = _rates(0.65, 0.78, 0.72, 0.66)
_TWENTIETH = _rates(0.58, 0.72, 0.66, 0.6)


def _row(
    target: str, draft: str, family: str, sizes: tuple[float, float], rates: Mapping[PromptTask, float]
) -> DraftPairFacts:
    ratio = sizes[1] / sizes[0]
    return DraftPairFacts(target, draft, True, family, ratio, tier_of(target), rates, _cost(ratio))


#: Pairs of well-known families that serving guides recommend, parameters in billions from their model cards.
#: The figures lie between those that were published: 0.53 to 0.75 with drafts of a 140th of the size
#: (Leviathan et al., arXiv 2211.17192, table 2), 2.28 mean accepted tokens with a 68M draft of Vicuna-7B
#: (Spec-Bench), 1.5 times with a 0.5B draft of Llama-3-70B on chats (vLLM, 2024-10-17), 3.55 times with a 1B
#: draft of Llama-3.3-70B (NVIDIA, TensorRT-LLM). Code is accepted more than chat in all of them.
KNOWN_PAIRS: tuple[DraftPairFacts, ...] = (
    _row("llama-3.3-70b", "llama-3.2-1b", "llama-3", (70.6, 1.24), _TWENTIETH),
    _row("llama-3.1-70b", "llama-3.2-1b", "llama-3", (70.6, 1.24), _TWENTIETH),
    _row("llama-3.1-70b", "llama-3.1-8b", "llama-3", (70.6, 8.03), _TENTH),
    _row("llama-3.3-70b", "llama-3.1-8b", "llama-3", (70.6, 8.03), _TENTH),
    _row("llama-3.1-405b", "llama-3.1-8b", "llama-3", (405.0, 8.03), _TWENTIETH),
    _row("llama-3.1-8b", "llama-3.2-1b", "llama-3", (8.03, 1.24), _TENTH),
    _row("qwen2.5-72b", "qwen2.5-1.5b", "qwen2.5", (72.7, 1.54), _TWENTIETH),
    _row("qwen2.5-32b", "qwen2.5-1.5b", "qwen2.5", (32.5, 1.54), _TWENTIETH),
    _row("qwen2.5-32b", "qwen2.5-0.5b", "qwen2.5", (32.5, 0.49), _TWENTIETH),
    _row("qwen2.5-14b", "qwen2.5-0.5b", "qwen2.5", (14.8, 0.49), _TWENTIETH),
    _row("qwen2.5-7b", "qwen2.5-0.5b", "qwen2.5", (7.62, 0.49), _TWENTIETH),
    _row("qwen2.5-coder-32b", "qwen2.5-coder-1.5b", "qwen2.5", (32.5, 1.54), _TENTH),
    _row("qwen2.5-coder-7b", "qwen2.5-coder-0.5b", "qwen2.5", (7.62, 0.49), _TENTH),
    _row("qwen3-32b", "qwen3-1.7b", "qwen3", (32.8, 1.7), _TWENTIETH),
    _row("qwen3-32b", "qwen3-0.6b", "qwen3", (32.8, 0.6), _TWENTIETH),
    _row("qwen3-14b", "qwen3-0.6b", "qwen3", (14.8, 0.6), _TWENTIETH),
    _row("qwen3-8b", "qwen3-0.6b", "qwen3", (8.2, 0.6), _TENTH),
    _row("gemma-2-27b", "gemma-2-2b", "gemma-2", (27.2, 2.6), _TENTH),
    _row("gemma-3-27b", "gemma-3-1b", "gemma-3", (27.4, 1.0), _TWENTIETH),
    _row("gemma-3-12b", "gemma-3-1b", "gemma-3", (12.2, 1.0), _TENTH),
    _row("vicuna-13b", "vicuna-68m", "vicuna", (13.0, 0.068), _rates(0.5, 0.55, 0.55, 0.5)),
    _row("vicuna-7b", "vicuna-68m", "vicuna", (6.74, 0.068), _rates(0.5, 0.55, 0.55, 0.5)),
    _row("chinchilla-70b", "chinchilla-4b", "chinchilla", (70.0, 4.0), _rates(0.7, 0.8, 0.72, 0.7)),
    DraftPairFacts(
        "demo-target", "demo-draft", True, "bundled", None, tier_of("local/demo"), ACCEPTANCE,
        MappingProxyType({"chat": 0.12, "code": 0.12, "document": 0.12, "long_context": 0.12}),
    ),
)  # fmt: skip

#: DeepSeek-V3.2 without reasoning, as DeepSeek's own endpoint names it.
_CHAT = "deepseek/deepseek-chat"

#: The pairs of the client-side workflow, by purpose. Models have the names of their vendors' own endpoints,
#: so that two API keys suffice. Gateways may use other names (``deepseek-v3.2``, ``claude-sonnet-4``); set
#: those in a ``[pairs.NAME]`` table of the configuration, or with ``draft`` and ``target``. The vocabularies
#: differ, so tokens cannot verify each other; the models agree about as often as any two that answer the same
#: question.
CLIENT_SIDE_PAIRS: Mapping[str, DraftPairFacts] = MappingProxyType(
    {
        name: DraftPairFacts(target, _CHAT, False, "", None, tier_of(target), _rates(0.3, 0.45, 0.5, 0.45))
        for name, target in {
            "cost": "gemini/gemini-2.5-flash",
            "quality": "openai/gpt-4.1",
            "balanced": "anthropic/claude-sonnet-4-0",
        }.items()
    }
)

_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)([bm])(?![a-z])")
_FAMILY = re.compile(r"[a-z]+(?:[-_]?\d+(?:\.\d+)?(?![\d.]*[bm](?![a-z])))?")


def pair_facts(target: str, draft: str) -> DraftPairFacts:
    """Return the facts of a pair: its row, else assumptions from the family and sizes in the names.

    Args:
        target, draft: routes, hub ids or folders.
    """
    names = _bare(target), _bare(draft)
    found = [row for row in KNOWN_PAIRS if names[0].startswith(row.target) and names[1].startswith(row.draft)]
    if found:
        return max(found, key=lambda row: len(row.target) + len(row.draft))
    for row in CLIENT_SIDE_PAIRS.values():
        if (row.target, row.draft) == (target, draft):
            return row
    return _guessed(target, draft, *names)


def with_measurements(
    row: DraftPairFacts, acceptance: float | Mapping[PromptTask, float] | None, cost_ratio: float | None
) -> DraftPairFacts:
    """Return a pair with measurements in place of assumptions.

    Args:
        row: the assumptions.
        acceptance: measured, for all tasks or by task; other tasks keep their assumptions.
        cost_ratio: measured, for all tasks.
    """
    measured = (
        acceptance if isinstance(acceptance, Mapping | None) else dict.fromkeys(row.acceptance, acceptance)
    )
    rates = {**row.acceptance, **(measured or {})}
    costs = row.cost_ratio if cost_ratio is None else dict.fromkeys(rates, cost_ratio)
    return replace(row, acceptance=rates, cost_ratio=costs)


def _guessed(target: str, draft: str, name: str, drafting: str) -> DraftPairFacts:
    families = [
        match[0].rstrip("-_") if (match := _FAMILY.match(each)) else each for each in (name, drafting)
    ]
    same = families[0] == families[1] and families[0] != ""
    sizes = _billions(name), _billions(drafting)
    ratio = sizes[1] / sizes[0] if sizes[0] and sizes[1] else None
    return DraftPairFacts(
        target,
        draft,
        same_tokenizer=True if same else None,
        family=families[0] if same else "",
        size_ratio=ratio,
        quality=tier_of(target),
        acceptance=(_TENTH if ratio is not None and ratio > 0.06 else _TWENTIETH)
        if same
        else _rates(0.3, 0.45, 0.5, 0.45),
        cost_ratio=None if ratio is None or ratio >= 1 else _cost(ratio),
    )


def _billions(name: str) -> float | None:
    found = _SIZE.search(name)
    return None if found is None else float(found[1]) / (1 if found[2] == "b" else 1000)


def _bare(name: str) -> str:
    """Return a model's name as in the rows: in lower case, without its owner and a leading ``meta-``."""
    return name.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-")
