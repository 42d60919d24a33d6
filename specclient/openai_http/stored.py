"""Parsing of calls to what may be stored here: ``responses`` by their ids, and ``conversations``."""

from __future__ import annotations

import re
from urllib.parse import unquote

from specclient.call.stored_methods import STORED_METHODS
from specclient.openai_http.endpoints import endpoints_at
from specclient.openai_http.json_body import JSON_VALUES, json_object
from specclient.openai_http.request import EXTENSION, boolean_field, query_parameters
from specclient.resources.table.rows import Row, method_of
from specclient.types.request import PerCallOptions, Request

__all__ = ["stored_request"]

_PLACE = re.compile(r"\\\{\w+\\\}")
_BOOLEANS = {"true": True, "false": False}


def stored_request(
    verb: str, path: str, query: str, body: bytes, *, most_values: int = JSON_VALUES
) -> Request | None:
    """Return the call of one of :data:`STORED_METHODS`; None for any other path.

    Its result is JSON.

    Args:
        verb: the HTTP method.
        path: the path below the base URL, percent-encoded.
        query: the query without the question mark.
        body: the body.
        most_values: maximum number of JSON values in the body (:func:`json_object`).

    Raises:
        ServingError: 400, the body is no object, or ``stream`` is no boolean.
    """
    row = endpoints_at(path).get(verb)
    if row is None or row.name not in STORED_METHODS:
        return None
    params = {**query_parameters(query), **(json_object(body, most_values) if body else {})}
    stream = params.pop("stream", None)
    streams = boolean_field(_BOOLEANS.get(stream, stream) if isinstance(stream, str) else stream, "stream")
    extension = params.pop(EXTENSION, None)
    method = method_of(row, "object")
    return Request(
        method,
        params={name: value for name, value in params.items() if name in method.params},
        path_params=_path_params(row, path),
        stream=streams and method.event_type is not None,
        options=PerCallOptions(body={} if extension is None else {EXTENSION: extension}),
    )


def _path_params(row: Row, path: str) -> dict[str, str]:
    """Return the values of a row's placeholders in a path that matches it."""
    found = re.fullmatch(_PLACE.sub("([^/]+)", re.escape(row.path)), path)
    assert found is not None
    return dict(zip(row.places, map(unquote, found.groups()), strict=True))
