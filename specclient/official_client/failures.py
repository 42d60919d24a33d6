"""Failures of calls as the official client expects them: a response with a status, or an exception.

The pipeline has made all attempts when a call fails, so that no failure is to be retried. Responses say so by
``x-should-retry: false``. If the `openai` package made the request, a failed connection raises that package's
own exception: it passes those on (since version 2.30), and retries those of its HTTP library.
"""

from __future__ import annotations

import sys
from typing import Any

from specclient.errors import APIConnectionError, APIStatusError, APITimeoutError, CircuitOpenError
from specclient.http_transport.library_types import library_of
from specclient.http_transport.retry import ADVICE_HEADER
from specclient.official_client.answer import TransportAnswer, TransportHead, call_headers, upstream_headers
from specclient.openai_http.errors import serving_error_of
from specclient.openai_http.response import JSON
from specclient.providers import Endpoint
from specclient.routing.destinations import DestinationRegistry
from specclient.types.call import Call

#: A header of every request of the official client.
_OFFICIAL = "x-stainless-lang"


def is_connection_failure(error: Exception) -> bool:
    """Return whether a call failed without a response, which the official client raises as an exception."""
    return isinstance(error, APIConnectionError) and not isinstance(error, CircuitOpenError)


def connection_exception(error: APIConnectionError, request: Any) -> Exception:
    """Return the exception that the sender of a request expects for a connection that failed.

    Args:
        error: the pipeline's error.
        request: the request of httpx or httpx2.
    """
    is_timeout = isinstance(error, APITimeoutError)
    openai = sys.modules.get("openai")
    failure: Exception
    if openai is not None and _OFFICIAL in request.headers:
        if is_timeout:
            failure = openai.APITimeoutError(request=request)
        else:
            failure = openai.APIConnectionError(message=error.message, request=request)
    else:
        kind = (
            ("ReadTimeout" if error.sent else "ConnectTimeout")
            if is_timeout
            else ("ReadError" if error.sent else "ConnectError")
        )
        failure = getattr(library_of(request), kind)(error.message, request=request)
    failure.__cause__ = error
    return failure


def failure_answer(error: Exception, call: Call | None, destinations: DestinationRegistry) -> TransportAnswer:
    """Return the response of a failed call: that of an upstream with OpenAI's API unchanged, else one made.

    Args:
        error: what the pipeline raised.
        call: the record of the call; None if it was not sent.
        destinations: the destinations of the client.
    """
    added = {ADVICE_HEADER: "false"}
    if call is not None:
        added |= call_headers(call)
    response = error.response if isinstance(error, APIStatusError) else None
    if response is not None and has_openais_api(call, destinations):
        headers = [*upstream_headers(response.headers.multi_items(), without=added), *added.items()]
        return TransportAnswer(TransportHead(response.status_code, headers), response.content, call)
    made = serving_error_of(error)
    headers = [*{"content-type": JSON, **made.headers, **added}.items()]
    if isinstance(error, APIStatusError) and error.request_id:
        headers.append(("x-request-id", error.request_id))
    return TransportAnswer(TransportHead(made.status, headers), made.body(), call)


def has_openais_api(call: Call | None, destinations: DestinationRegistry) -> bool:
    """Return whether a call's provider has OpenAI's API; those of calls without a model have."""
    if call is None:
        return True
    endpoint = destinations.endpoints.get(call.provider)
    return isinstance(endpoint, Endpoint) and endpoint.dialect == "openai"
