"""The usage of calls by path whose answers have a form of their own: OCR and reranking.

Mistral, "OCR": ``usage_info.pages_processed``. Cohere, "Rerank": ``meta.billed_units.search_units``.
OpenRouter, "Rerank": ``usage.search_units``. Jina, Voyage, vLLM: ``usage.total_tokens``.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from pydantic_core import from_json

from specclient.providers.reported_fields import count, fields_of
from specclient.providers.usage import charges_in
from specclient.types.inference_methods import OCR, RERANK
from specclient.types.request import Request
from specclient.types.usage import Usage, UsageUnit

__all__ = ["PATH_OPERATIONS", "path_usage"]

#: Operations whose answers :func:`path_usage` reads.
PATH_OPERATIONS: Final = frozenset({OCR.operation, RERANK.operation})
#: Parameters by which a document is read into fields, for which a page has a price of its own.
_ANNOTATIONS: Final = frozenset({"document_annotation_format", "bbox_annotation_format"})


def path_usage(request: Request, content: bytes) -> Usage | None:
    """Return the usage that an answer to OCR or reranking reports; None if it reports none.

    Args:
        content: the answer's JSON.
    """
    try:
        answer = from_json(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, Mapping):
        return None
    return _pages(request, answer) if request.operation == OCR.operation else _ranked(answer)


def _pages(request: Request, answer: Mapping[str, Any]) -> Usage | None:
    pages = count(fields_of(answer.get("usage_info")).get("pages_processed"))
    if pages is None:
        return None
    asked = {**request.params, **request.options.body}
    annotated = any(asked.get(name) is not None for name in _ANNOTATIONS)
    return Usage(units=(UsageUnit("annotated_page" if annotated else "page", Decimal(pages)),))


def _ranked(answer: Mapping[str, Any]) -> Usage | None:
    usage = fields_of(answer.get("usage"))
    billed = fields_of(fields_of(answer.get("meta")).get("billed_units"))
    searches = count(billed.get("search_units"))
    if searches is None:
        searches = count(usage.get("search_units"))
    units = () if searches is None else (UsageUnit("search_unit", Decimal(searches)),)
    tokens = count(usage.get("total_tokens", billed.get("input_tokens")))
    if tokens is None and not units:
        return None
    if units:  # billed by searches; the tokens beside them cost nothing
        return Usage(units=units, charges=charges_in(usage))
    return Usage(prompt=tokens, completion=0, charges=charges_in(usage))
