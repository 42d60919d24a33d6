"""Conversion of Gemini's ``usageMetadata`` to the fields of OpenAI's usage. Unknown counts are left out.

https://ai.google.dev/api/generate-content#UsageMetadata: the count of the candidates excludes thoughts, the
count of the prompt includes cached tokens, and counts of zero are omitted on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.providers.reported_fields import count

_READ = frozenset(
    {"promptTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount", "candidatesTokenCount"}
    | {"thoughtsTokenCount", "totalTokenCount", "promptTokensDetails", "candidatesTokensDetails"}
    | {"cacheTokensDetails"}
)
_MODALITIES = {"TEXT": "text_tokens", "IMAGE": "image_tokens", "AUDIO": "audio_tokens"}


def usage_fields(metadata: Any) -> dict[str, Any]:
    """Return the fields of a usage; an empty dict if neither the prompt nor the completion has a count.

    An invalid count (negative, or not a whole number), and any sum with one, is unknown, not 0. Fields
    without an equivalent in OpenAI's usage keep Gemini's name.
    """
    if not isinstance(metadata, Mapping):
        return {}
    prompt = _sum(count(metadata.get("promptTokenCount")), count(metadata.get("toolUsePromptTokenCount", 0)))
    completion = _completion(metadata, prompt)
    if prompt is None and completion is None:
        return {}
    fields = {name: value for name, value in metadata.items() if name not in _READ}
    cached = count(metadata.get("cachedContentTokenCount"))
    inputs: dict[str, Any] = dict(_by_modality(metadata.get("promptTokensDetails")))
    if cached is not None and (prompt is None or cached <= prompt):
        inputs["cached_tokens"] = cached
    if media := _by_modality(metadata.get("cacheTokensDetails")):
        inputs["cached_tokens_details"] = media
    outputs = _by_modality(metadata.get("candidatesTokensDetails"))
    thoughts = count(metadata.get("thoughtsTokenCount"))
    if thoughts is not None and (completion is None or thoughts <= completion):
        outputs["reasoning_tokens"] = thoughts
    known = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": _sum(prompt, completion),
    }
    fields |= {name: value for name, value in known.items() if value is not None}
    details = {"prompt_tokens_details": inputs, "completion_tokens_details": outputs}
    return fields | {name: counts for name, counts in details.items() if counts}


def _completion(metadata: Mapping[str, Any], prompt: int | None) -> int | None:
    """Return the number of generated tokens: candidates plus thoughts, or the total minus the prompt."""
    generated = _sum(
        count(metadata.get("candidatesTokenCount")), count(metadata.get("thoughtsTokenCount", 0))
    )
    if generated is not None:
        return generated
    total = count(metadata.get("totalTokenCount"))
    if total is None or prompt is None or total < prompt:
        return None
    return total - prompt


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _by_modality(details: Any) -> dict[str, int]:
    """Return the counts with an OpenAI name, from ``[{"modality": "TEXT", "tokenCount": 1}, …]``."""
    found = {}
    for entry in details if isinstance(details, list) else ():
        if isinstance(entry, Mapping):
            name = _MODALITIES.get(str(entry.get("modality")))
            tokens = count(entry.get("tokenCount"))
            if name is not None and tokens is not None:
                found[name] = tokens
    return found
