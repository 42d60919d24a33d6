"""Calls by path that run a model, such as ``client.post("/chat/completions", …)``.

Libraries use such calls to send a body unchanged. They are served like calls of the path's method: routed by
their model, limited by budgets and recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from specclient.resources.base import build_request
from specclient.runtime.official_classes import official_namesakes
from specclient.types.api_method import ApiMethod
from specclient.types.inference_methods import (
    CHAT,
    COMPLETION,
    EMBEDDING,
    MODERATION,
    OCR,
    RERANK,
    RESPONSE,
)
from specclient.types.named import named
from specclient.types.request import PerCallOptions, Request

#: Methods that have no result type of this package, by the end of their path.
_OTHERS: Final = {method.path: method for method in (OCR, RERANK)}
_METHODS: Final = {method.path: method for method in (CHAT, COMPLETION, EMBEDDING, MODERATION, RESPONSE)}


def model_call(
    path: str, cast_to: Any, body: Any, options: PerCallOptions, *, stream: bool
) -> Request | None:
    """Return a call by path as a request of the path's method; None if it is not one.

    It is one if its body is an object with a model, and ``cast_to`` is the type of the method's result in
    this package or the `openai` package.

    Args:
        path: below the base URL.
        cast_to: the type of the result.
        body: the JSON body.
        options: the options of the call.
        stream: whether the response is streamed.
    """
    method = _METHODS.get("/" + path.strip("/"))
    if method is None or not isinstance(body, Mapping) or not isinstance(body.get("model"), str):
        return None
    if not _is_result_of(method, cast_to):
        return None
    body = {name: value for name, value in body.items() if name != "stream"}
    known = {name: value for name, value in body.items() if name in method.params or name == "model"}
    others = {name: value for name, value in body.items() if name not in known}
    request = build_request(method, {**known, **({"stream": True} if stream else {})})
    return replace(request, options=replace(options, body={**others, **options.body}))


def unit_call(path: str, response_type: Any, body: Any, options: PerCallOptions) -> Request | None:
    """Return a call by path of OCR or reranking as a metered request; None if it is not one.

    Args:
        path: below the base URL, or a complete URL.
        response_type: of the result, as in :class:`~specclient.types.api_method.ApiMethod`.
        body, options: as for :func:`model_call`; the body is sent unchanged but for the model's name.
    """
    method = _OTHERS.get("/" + path.partition("?")[0].rstrip("/").rpartition("/")[2])
    if method is None or not isinstance(body, Mapping) or not isinstance(body.get("model"), str):
        return None
    params = {name: value for name, value in body.items() if name != "model"}
    return Request(
        replace(method, path=path, response_type=response_type), body["model"], params, options=options
    )


def _is_result_of(method: ApiMethod, cast_to: Any) -> bool:
    kind = method.response_type
    kind = named(kind) if isinstance(kind, str) else kind
    return isinstance(cast_to, type) and (cast_to is kind or cast_to in official_namesakes(kind))
