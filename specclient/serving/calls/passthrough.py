"""Turn any other route of the OpenAI API into the same one at the default provider, bytes in and bytes out.

A call on which a model works and whose body is JSON goes to the provider that its model names. What manages
an organisation (``client.admin``) is not passed on: its key is the operator's own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request as Form

from specclient.client.async_client import AsyncOpenAI
from specclient.providers import Endpoint
from specclient.resources.table.index import children_of, roots, rows_of
from specclient.resources.table.rows import Row, method_of
from specclient.serving.admission import AdmissionQueue
from specclient.serving.calls.request import FORWARDED_HEADERS, boolean_field, forwarded_headers, json_object
from specclient.serving.catalogue import ModelCatalogue, has_key
from specclient.serving.errors import ServingError, bad_request, upstream_limit_headers
from specclient.serving.exchange import JSON, ASGIMessage, HTTPExchange
from specclient.serving.keys.limiter import KeyLimiter, authorized_request, check_route
from specclient.types.api_method import ApiMethod
from specclient.types.request import PerCallOptions, Request

_PREFIX = "/v1"
_NOT_PASSED = frozenset({"admin"})
#: Headers of a client that go on, beside those of any call.
_PASSED = ("accept", "content-type", *FORWARDED_HEADERS)
#: Headers of an answer that come back, beside what it says of limits.
_RETURNED = ("content-disposition", "content-type")
_PLACE = re.compile(r"\{\w+\}")
_STEPS = frozenset({".", ".."})


@dataclass(frozen=True, slots=True)
class PassthroughHandler:
    """What passes requests on.

    Attributes:
        own: the verb of each path that this server serves itself.
    """

    client: AsyncOpenAI
    catalogue: ModelCatalogue
    turns: AdmissionQueue
    gate: KeyLimiter
    own: Mapping[str, str]

    async def __call__(self, talk: HTTPExchange) -> None:
        """Pass a request on.

        Raises:
            ProblemError: 404 or 405 where there is nothing to pass it on to.
        """
        row, path = self._row(talk)
        talk.entry.route = f"{_PREFIX}{row.path}"
        request = await self._request(talk, row, path)
        if not request.method.metered:
            check_route(talk.key, talk.path)
        else:
            request = authorized_request(request, talk.key, self.client.pipeline.destinations)
            self.catalogue.check(request)
            talk.entry.model, talk.entry.streamed = request.model, request.stream
        async with self.gate.paced(talk, request), talk.while_there(), self.turns.turn(talk.entry):
            async with await self.client.pipeline.stream_bytes(request) as stream:
                body = stream.http
                returned = {name: body.headers[name] for name in _RETURNED if name in body.headers}
                kind = returned.pop("content-type", JSON)
                await talk.begin(body.status, kind, {**returned, **upstream_limit_headers(body.headers)})
                async for piece in stream:
                    await talk.more(piece)
            await talk.end()

    def _row(self, talk: HTTPExchange) -> tuple[Row, str]:
        """Return the row of a route, and the path below the base URL as the client wrote it."""
        verb, path = talk.scope["method"], talk.path.removeprefix(_PREFIX)
        rows = endpoints_at(path)
        verbs = {*rows, *([self.own[path]] if path in self.own else [])}
        if not verbs:
            raise ServingError(404, f"there is no route {verb} {_PREFIX}{path[:200]} on this server")
        if verb not in rows:
            allowed = ", ".join(sorted(verbs))
            raise ServingError(
                405, f"{verb} is not allowed on {_PREFIX}{path}; {allowed} is", headers={"allow": allowed}
            )
        places = self.client.pipeline.destinations
        place = places.get(places.default)
        if self.catalogue.closed:
            raise ServingError(404, f"{verb} {_PREFIX}{path} is not served: this server has models alone")
        if not isinstance(place, Endpoint) or not has_key(place):
            raise ServingError(
                404,
                f"{verb} {_PREFIX}{path} is passed on to provider {places.default!r}, which has no key where "
                "this server runs",
                code="provider_key_missing",
            )
        return rows[verb], path

    async def _request(self, talk: HTTPExchange, row: Row, path: str) -> Request:
        method = replace(method_of(row, row.gives), path=path + (f"?{talk.query}" if talk.query else ""))
        headers = forwarded_headers(talk.headers, _PASSED)
        body = await talk.body()
        if row.metered and row.verb == "POST" and not row.files:
            return _routed(method, body, headers)
        raw = replace(method, params=frozenset(), query=frozenset(), files=frozenset())
        model, stream = "", False
        if row.metered:
            model, stream = await _in_form(talk, body)
        return Request(
            raw, model, content=body or None, stream=stream, options=PerCallOptions(headers=headers)
        )


def _routed(method: ApiMethod, body: bytes, headers: dict[str, str]) -> Request:
    """Return a call as one to the provider that its model names."""
    given = json_object(body)
    model = given.pop("model", None) or ""
    if not isinstance(model, str):
        raise bad_request("model", "model must be a text")
    stream = boolean_field(given.pop("stream", None), "stream") and method.event_type is not None
    return Request(method, model, given, stream=stream, options=PerCallOptions(headers=headers))


async def _in_form(talk: HTTPExchange, body: bytes) -> tuple[str, bool]:
    """Return the model that a form names, and whether it asks for a stream; the form goes on as it is."""

    async def again() -> ASGIMessage:
        return {"type": "http.request", "body": body}

    try:
        async with Form(talk.scope, again).form() as form:
            model, stream = form.get("model"), form.get("stream")
            times = len(form.getlist("model"))
    except HTTPException as error:
        raise bad_request(None, f"the form cannot be read: {error.detail}") from None
    if times > 1 or talk.headers.get("content-type", "").lower().count("boundary=") > 1:
        raise bad_request(
            "model", "the form may be read in several ways; it must have one boundary and one model"
        )
    name = model if isinstance(model, str) else ""
    return name, stream in ("true", "True", "1")


def endpoints_at(path: str) -> dict[str, Row]:
    """Return the rows at a path, by their verbs; of several, the one with the fewest placeholders."""
    found: dict[str, Row] = {}
    for pattern, row in _patterns():
        match = pattern.fullmatch(path)
        if match and not any(_STEPS & set(re.split(r"[/\\]", unquote(part))) for part in match.groups()):
            found.setdefault(row.verb, row)
    return found


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], Row], ...]:
    every = (row for row in _every(sorted(roots() - _NOT_PASSED)) if "?" not in row.path)
    rows = sorted(every, key=lambda row: len(row.places))
    return tuple((re.compile(_pattern(row.path)), row) for row in rows)


def _pattern(path: str) -> str:
    return "([^/]+)".join(re.escape(part) for part in _PLACE.split(path))


def _every(resources: list[str]) -> Iterator[Row]:
    for name in resources:
        yield from rows_of(name).values()
        yield from _every([f"{name}.{child}" for child in sorted(children_of(name))])
