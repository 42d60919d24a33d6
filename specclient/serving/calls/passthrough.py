"""Passthrough of all other routes of the OpenAI API to the default provider, without decoding.

Requests about objects stored by this server are answered by :mod:`specclient.serving.calls.stored`. A call to
a model with a JSON body goes to the provider of its model. Routes that manage an organisation
(``client.admin``) are not passed through, because their key belongs to the operator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request as Form

from specclient.openai_http.endpoints import endpoints_at
from specclient.openai_http.errors import ServingError, bad_request, upstream_limit_headers
from specclient.openai_http.json_body import json_object
from specclient.openai_http.request import FORWARDED_HEADERS, boolean_field, forwarded_headers
from specclient.openai_http.response import JSON
from specclient.providers import Endpoint
from specclient.resources.table.rows import Row, method_of
from specclient.serving.calls.gate import CallGate
from specclient.serving.calls.stored import StoredCallHandler
from specclient.serving.exchange import ASGIMessage, HTTPExchange
from specclient.serving.keys.key import StoredKey
from specclient.serving.keys.limiter import check_route, with_labels
from specclient.types.api_method import ApiMethod
from specclient.types.request import PerCallOptions, Request

_PREFIX = "/v1"
#: Request headers that are forwarded, in addition to those of every call.
_PASSED = ("accept", "content-type", *FORWARDED_HEADERS)
#: Response headers that are returned, in addition to rate limits.
_RETURNED = ("content-disposition", "content-type")


@dataclass(frozen=True, slots=True)
class PassthroughHandler:
    """Passes requests through to a provider.

    Attributes:
        gate: checks and admits the calls.
        own: HTTP method of each path that this server serves itself.
    """

    gate: CallGate
    own: Mapping[str, str]

    async def __call__(self, exchange: HTTPExchange) -> None:
        """Send a request to the provider and stream the response back.

        Raises:
            ServingError: 404 or 405 if there is no such route or no provider for it.
        """
        body, stored = None, StoredCallHandler(self.gate)
        if stored.may_answer(exchange):
            body = await exchange.body()
            if await stored.answer(exchange, body):
                return
        row, path = self._row(exchange)
        exchange.entry.route = f"{_PREFIX}{row.path}"
        request = await self._request(exchange, row, path, body)
        if not request.method.metered:
            check_route(exchange.key, exchange.path)
            request = with_labels(request, exchange.key)
        else:
            request = self.gate.authorized(exchange, request, exchange.query)
        async with self.gate.admitted(exchange, request):
            async with await self.gate.pipeline.stream_bytes(request) as stream:
                body = stream.http
                returned = {name: body.headers[name] for name in _RETURNED if name in body.headers}
                kind = returned.pop("content-type", JSON)
                await exchange.start(body.status, kind, {**returned, **upstream_limit_headers(body.headers)})
                async for piece in stream:
                    await exchange.write(piece)
            await exchange.finish()

    def _row(self, exchange: HTTPExchange) -> tuple[Row, str]:
        """Return the table row of a route, and the path below the base URL as the client sent it."""
        verb, path = exchange.scope["method"], exchange.path.removeprefix(_PREFIX)
        rows = endpoints_at(path)
        verbs = {*rows, *([self.own[path]] if path in self.own else [])}
        if not verbs:
            raise ServingError(404, f"there is no route {verb} {_PREFIX}{path[:200]} on this server")
        if verb not in rows:
            allowed = ", ".join(sorted(verbs))
            raise ServingError(
                405,
                f"{verb} is not allowed on {_PREFIX}{path}; allowed: {allowed}",
                headers={"allow": allowed},
            )
        places = self.gate.pipeline.destinations
        place = places.get(places.default)
        if self.gate.catalogue.closed:
            raise ServingError(
                404, f"{verb} {_PREFIX}{path} is not served: this server only serves calls to its models"
            )
        if not isinstance(place, Endpoint) or not place.has_key:
            raise ServingError(
                404,
                f"{verb} {_PREFIX}{path} is passed to provider {places.default!r}, for which this server "
                f"has no key",
                code="provider_key_missing",
            )
        return rows[verb], path

    async def _request(self, exchange: HTTPExchange, row: Row, path: str, body: bytes | None) -> Request:
        method = replace(
            method_of(row, row.returns), path=path + (f"?{exchange.query}" if exchange.query else "")
        )
        headers = forwarded_headers(exchange.headers, _PASSED)
        body = await exchange.body() if body is None else body
        if row.metered and row.verb == "POST" and not row.files:
            parse = partial(_json_request, method, body, headers, self.gate.json_values)
            return await self.gate.off_loop.run(len(body), parse)
        raw = replace(method, params=frozenset(), query=frozenset(), files=frozenset())
        model, stream = "", False
        if row.metered:
            anew = self._encodes_anew(exchange.key)
            read = partial(_form_fields, exchange, body, method.files if anew else None)
            fields = await self.gate.off_loop.run_async(len(body), read)
            model = fields.pop("model", "")
            stream = fields.get("stream") in ("true", "True", "1")
            if anew:
                options = PerCallOptions(headers={**headers, "content-type": "multipart/form-data"})
                return Request(method, model, fields, stream=stream, options=options)
        return Request(
            raw, model, content=body or None, stream=stream, options=PerCallOptions(headers=headers)
        )

    def _encodes_anew(self, key: StoredKey | None) -> bool:
        """Return whether forms are encoded anew, so that the provider reads the model that was checked here.

        Without limits of the key and without aliases, the body is sent unchanged.
        """
        if self.gate.pipeline.destinations.aliases is not None:
            return True
        return key is not None and (key.confined or key.model_aliases is not None)


def _json_request(method: ApiMethod, body: bytes, headers: dict[str, str], most_values: int) -> Request:
    """Return the request to the provider of the call's model."""
    given = json_object(body, most_values)
    model = given.pop("model", None) or ""
    if not isinstance(model, str):
        raise bad_request("model", "model must be a string")
    stream = boolean_field(given.pop("stream", None), "stream") and method.event_type is not None
    return Request(method, model, given, stream=stream, options=PerCallOptions(headers=headers))


async def _form_fields(exchange: HTTPExchange, body: bytes, files: Collection[str] | None) -> dict[str, Any]:
    """Return the fields of a form as parameters of a call; ``model`` is a text.

    Args:
        files: the names of the parameters that hold files: their parts must be files, and all others texts.
            None leaves the files out and refuses nothing but an ambiguous model.
    """

    async def replay() -> ASGIMessage:
        return {"type": "http.request", "body": body}

    try:
        async with Form(exchange.scope, replay).form() as form:
            fields: dict[str, Any] = {}
            for key, value in form.multi_items():
                name, is_text = key.removesuffix("[]"), isinstance(value, str)
                if (name == "model" or files is not None) and is_text == (name in (files or ())):
                    form_part = "text" if is_text else "a file"
                    raise bad_request(
                        name[:80], f"the form's part {name[:80]!r} is {form_part}, which it must not be"
                    )
                if not is_text and files is None:
                    continue
                content: Any = value if isinstance(value, str) else await _file_part(value)
                if name in fields or name != key:
                    earlier = fields.get(name, [])
                    content = [*(earlier if isinstance(earlier, list) else [earlier]), content]
                fields[name] = content
            times = sum(key.removesuffix("[]") == "model" for key, _ in form.multi_items())
    except HTTPException as error:
        raise bad_request(None, f"the form cannot be read: {error.detail}") from None
    if times > 1 or exchange.headers.get("content-type", "").lower().count("boundary=") > 1:
        raise bad_request("model", "the form is ambiguous; it must have one boundary and one model")
    if isinstance(fields.get("model"), list):
        raise bad_request("model", "model[] is a list; it must be one model")
    return fields


async def _file_part(part: UploadFile) -> tuple[str, bytes, str]:
    """Return a file of a form as the encoder takes it: name, content and type."""
    return part.filename or "file", await part.read(), part.content_type or "application/octet-stream"
