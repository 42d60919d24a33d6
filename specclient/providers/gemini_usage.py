"""Turn Gemini's ``usageMetadata`` into the fields of OpenAI's usage; what is not told is left out.

https://ai.google.dev/api/generate-content#UsageMetadata: thoughts are counted beside the candidates, cached
tokens inside the prompt; a count that is zero is left out on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_READ = frozenset(
    {"promptTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount", "candidatesTokenCount"}
    | {"thoughtsTokenCount", "totalTokenCount", "promptTokensDetails", "candidatesTokensDetails"}
)
_MODALITIES = {"TEXT": "text_tokens", "IMAGE": "image_tokens", "AUDIO": "audio_tokens"}


def usage_fields(told: Any) -> dict[str, Any]:
    """Return the fields of a usage, empty where nothing is told that counts.

    A count is unknown, and never 0, where it is no whole number of at least 0, or rests on one that is not.
    What has no field in OpenAI's usage stays under Gemini's name.
    """
    if not isinstance(told, Mapping):
        return {}
    prompt = _sum(_count(told, "promptTokenCount"), _count(told, "toolUsePromptTokenCount", 0))
    completion = _completion(told, prompt)
    if prompt is None and completion is None:
        return {}
    fields = {name: value for name, value in told.items() if name not in _READ}
    cached = _count(told, "cachedContentTokenCount")
    inputs = _by_modality(told.get("promptTokensDetails"))
    if cached is not None and (prompt is None or cached <= prompt):
        inputs["cached_tokens"] = cached
    outputs = _by_modality(told.get("candidatesTokensDetails"))
    thoughts = _count(told, "thoughtsTokenCount")
    if thoughts is not None and (completion is None or thoughts <= completion):
        outputs["reasoning_tokens"] = thoughts
    known = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": _sum(prompt, completion),
    }
    fields |= {name: count for name, count in known.items() if count is not None}
    details = {"prompt_tokens_details": inputs, "completion_tokens_details": outputs}
    return fields | {name: counts for name, counts in details.items() if counts}


def _completion(told: Mapping[str, Any], prompt: int | None) -> int | None:
    """Return what was generated: candidates and thoughts, or what the prompt leaves of the total."""
    generated = _sum(_count(told, "candidatesTokenCount"), _count(told, "thoughtsTokenCount", 0))
    if generated is not None:
        return generated
    total = _count(told, "totalTokenCount")
    if total is None or prompt is None or total < prompt:
        return None
    return total - prompt


def _count(told: Mapping[str, Any], name: str, absent: int | None = None) -> int | None:
    value = told.get(name, absent)
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if whole else None


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _by_modality(details: Any) -> dict[str, int]:
    """Return the counts that OpenAI has a name for, of ``[{"modality": "TEXT", "tokenCount": 1}, …]``."""
    found = {}
    for entry in details if isinstance(details, list) else ():
        if isinstance(entry, Mapping):
            name = _MODALITIES.get(str(entry.get("modality")))
            count = _count(entry, "tokenCount")
            if name is not None and count is not None:
                found[name] = count
    return found
