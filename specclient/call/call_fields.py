"""The fields of ``Call``: those copied from the request, and the source of each in a call with sub-calls.

A call without sub-calls is recorded by :class:`specclient.call.recorder.CallRecorder`, and one with sub-calls
by :func:`specclient.call.subcalls.parent_record`. Both take their request's fields from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Literal

from specclient.types.request import Request

__all__ = ["MERGE_RULES", "MergeRule", "request_fields"]

#: How the record of a call with sub-calls gets a field: ``request``, from :func:`request_fields`; ``own``,
#: from the call itself; ``final``, from its last sub-call on its route; ``merged``, computed from all
#: sub-calls; ``parts``, only in the records of its sub-calls, so that the field keeps its default.
MergeRule = Literal["request", "own", "final", "merged", "parts"]

#: The rule of each field of ``Call``. A new field needs an entry here.
MERGE_RULES: Mapping[str, MergeRule] = {
    "id": "own",
    "started_at": "own",
    "operation": "request",
    "model": "request",
    "route": "own",
    "streamed": "request",
    "served_model": "final",
    "status": "own",
    "error": "own",
    "http_status": "merged",
    "usage": "merged",
    "speculation": "final",  # unless the call counted its own
    "cost": "merged",
    "attempts": "merged",
    "ttft_s": "own",
    "latency_s": "own",
    "engine_s": "merged",
    "request_id": "final",
    "tags": "request",
    "parent": "parts",
    "strategy": "own",
    "strategy_reason": "own",
    "parts": "own",
    "purpose": "parts",
    "pair": "final",
    "metadata": "request",
    "session": "request",
    "lost_attempts": "parts",
    "counts": "final",
    "cached": "parts",
    "saved": "parts",
    "in_progress": "parts",
}


def request_fields(request: Request) -> dict[str, Any]:
    """Return the fields of ``Call`` that repeat the request, by name."""
    options = request.options
    return {
        "operation": request.operation,
        "model": request.model,
        "streamed": request.stream,
        "tags": dict(options.tags),
        "metadata": _labels(request.params.get("metadata")),
        "session": options.session,
    }


def _labels(metadata: object) -> Mapping[str, str]:
    """Return a request's ``metadata`` as OpenAI defines it: 16 strings of up to 512 characters by name."""
    if metadata is None or not isinstance(metadata, Mapping):
        return {}
    first = islice(metadata.items(), 16)
    return {k: v for k, v in first if isinstance(k, str) and isinstance(v, str) and len(v) <= 512}
