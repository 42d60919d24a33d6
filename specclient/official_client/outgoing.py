"""From a request of an HTTP library to a request of the pipeline."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from specclient.call.stored_methods import is_answered_here
from specclient.http_transport.clients.timeouts import DEFAULT_TIMEOUT_SECONDS, TimeoutSeconds
from specclient.official_client.credentials import RequestHeads, has_key
from specclient.official_client.origins import HomePath
from specclient.openai_http.endpoints import CALLS, endpoints_at
from specclient.openai_http.errors import ServingError, bad_request
from specclient.openai_http.json_body import json_object
from specclient.openai_http.request import (
    FORWARDED_HEADERS,
    IncomingCall,
    boolean_field,
    forwarded_headers,
    parse_call,
)
from specclient.openai_http.stored import stored_request
from specclient.providers import Endpoint
from specclient.resources.table.rows import Row, method_of
from specclient.routing.destinations import DestinationRegistry
from specclient.routing.router import AUTO
from specclient.types.api_method import ApiMethod
from specclient.types.request import OriginOptions, PerCallOptions, Request

_CALLS: Final = {(method.verb, method.path): method for method in CALLS}
#: Bodies come from this process, so their number of values has no limit.
_ANY = sys.maxsize
#: The provider of calls to what is stored in this process.
_ENGINE = "local"
_NAME = re.compile(rb'name="?(\w+)"?', re.IGNORECASE)
_BOUNDARY = re.compile(r'boundary="?([^";]+)"?', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OutgoingCall:
    """A request that the pipeline serves.

    Attributes:
        call: the request, parsed or as bytes, and how its result is encoded.
        is_raw: whether the response's bytes are passed on as they are.
        silence_s: seconds that an engine in this process may take for its next output; None for no limit, and
            for hosted providers, where the pipeline itself limits the time.
    """

    call: IncomingCall
    is_raw: bool = False
    silence_s: float | None = None

    @property
    def streams(self) -> bool:
        """Whether the response's body arrives in pieces."""
        return self.is_raw or self.call.request.stream


@dataclass(frozen=True, slots=True)
class _Received:
    """A request as the HTTP library hands it over.

    Attributes:
        body: its body.
        headers: its headers, names in lower case.
        home: the provider that it was addressed to, and the path there.
        origin: the options of the call for that provider.
        limits: its time limits; None for those of the transport's client.
        max_retries: the number of attempts after the first; None for the setting of the transport's client.
        destinations: the destinations that its model's name may refer to.
        keeps_body: whether the body is sent on as it is where nothing alters it. Not with budgets, which
            count what they read of it: a name that occurs twice in it would be read differently elsewhere.
    """

    body: bytes
    headers: Mapping[str, str]
    home: HomePath
    origin: OriginOptions
    limits: TimeoutSeconds | None
    max_retries: int | None
    destinations: DestinationRegistry
    keeps_body: bool = False

    @property
    def target(self) -> str:
        """The path and the query below the base URL."""
        return self.home.path + (f"?{self.home.query}" if self.home.query else "")

    def with_options(self, request: Request) -> Request:
        """Return a request of the pipeline with the options of this one."""
        options = replace(
            request.options, origin=self.origin, timeout=self.limits, max_retries=self.max_retries
        )
        return replace(request, options=options)


def outgoing_call(
    request: Any, body: bytes, home: HomePath, heads: RequestHeads, max_retries: int | None = None
) -> OutgoingCall | None:
    """Return a request of httpx or httpx2 as a call of the pipeline.

    Args:
        request: the library's request.
        body: its body.
        home: the provider that it was addressed to, and the path there.
        heads: reads the request's headers, for the transport's client.
        max_retries: the number of attempts after the first; None for the setting of the transport's client.

    Returns:
        The call; None if the provider's API is not OpenAI's and the path is none of OpenAI's calls.

    Raises:
        ServingError: the request is invalid, or has no key.
        NotFoundError: the model's provider is unknown.
    """
    endpoint, pipeline = home.endpoint, heads.core.pipeline
    destinations = pipeline.destinations
    method = _CALLS.get((request.method, home.path))
    if method is None and endpoint.dialect != "openai":
        return None
    phases = request.extensions.get("timeout")
    limits = _limits(**phases) if phases else None
    headers, origin = heads.read(request, home)
    received = _Received(
        body, headers, home, origin, limits, max_retries, destinations, pipeline.budgets is None
    )
    if method is not None:
        return _parsed(method, received)
    row = endpoints_at(home.path).get(request.method)
    if row is not None and row.metered and row.verb == "POST":
        billed = _billed_request(row, received)
        if billed.model or endpoint.name == destinations.default:
            _check_key(billed.model, received)
            return OutgoingCall(IncomingCall(received.with_options(billed)), is_raw=True)
    stored = stored_request(request.method, home.path, home.query, body, most_values=_ANY)
    if stored is not None and is_answered_here(stored, destinations, has_key=has_key(endpoint, origin)):
        return OutgoingCall(IncomingCall(replace(stored, provider=_ENGINE)))
    _check_key("", received)
    return OutgoingCall(IncomingCall(_unbilled_request(request.method, row, received)), is_raw=True)


def _parsed(method: ApiMethod, received: _Received) -> OutgoingCall:
    """Return a call to a model in any provider's API, or of an engine in this process."""
    destinations = received.destinations
    call = parse_call(
        method,
        received.body,
        received.headers,
        received.home.query,
        most_values=_ANY,
        checked=False,
        name_model=lambda name: model_name(name, received.home, destinations),
        keep_written=received.keeps_body,
        origin=received.origin,
        timeout=received.limits,
        max_retries=received.max_retries,
    )
    model = call.request.model
    is_auto = destinations.resolve(model) == AUTO
    if is_auto or destinations.split(model)[0] not in destinations.backend_names():
        _check_key(model, received)
        return OutgoingCall(call)
    silence_s = None if received.limits is None else received.limits.read
    return OutgoingCall(call, silence_s=silence_s)


def model_name(model: str, home: HomePath, destinations: DestinationRegistry) -> str:
    """Return the model of a request as the pipeline's name for it.

    At the default provider, names mean what they mean in the SDK, except that an unknown provider's name is a
    part of the model's. At any other provider, names are its own, as with the SDK's ``base_url``, except
    ``auto`` and those of engines in this process.

    Raises:
        ServingError: the request has no model, and its provider is not the default one.
    """
    name, head = home.endpoint.name, model.partition("/")[0]
    if destinations.owns_names:
        return model
    if name == destinations.default:
        known = head == model or destinations.known(head) or destinations.resolve(model) != model
        return model if known else f"{name}/{model}"
    if model == AUTO or (head != model and head in destinations.backend_names()):
        return model
    if not model:
        raise bad_request("model", f"model is missing; a request to {home.endpoint.address} must name it")
    return f"{name}/{model}"


def _billed_request(row: Row, received: _Received) -> Request:
    """Return a billed request whose response is passed on as bytes, such as speech or images.

    A form is sent unchanged to the provider that it was addressed to. JSON goes to the provider of its model.
    """
    method = replace(method_of(row, row.returns), path=received.target)
    if row.files and received.headers.get("content-type", "").startswith("multipart/"):
        fields = _form_fields(received.body, received.headers["content-type"])
        model = fields.get("model", "")
        if model and not received.destinations.owns_names:
            model = f"{received.home.endpoint.name}/{model}"
        method = replace(method, params=frozenset(), query=frozenset(), files=frozenset())
        streams = fields.get("stream") in ("true", "True", "1")
        return Request(method, model, content=received.body or None, stream=streams)
    given = json_object(received.body or b"{}", _ANY)
    model = given.pop("model", None) or ""
    if not isinstance(model, str):
        raise bad_request("model", "model must be a string")
    streams = boolean_field(given.pop("stream", None), "stream") and method.event_type is not None
    if model:
        model = model_name(model, received.home, received.destinations)
    headers = forwarded_headers(received.headers, ("accept", *FORWARDED_HEADERS))
    return Request(method, model, given, stream=streams, options=PerCallOptions(headers=headers))


def _unbilled_request(verb: str, row: Row | None, received: _Received) -> Request:
    """Return a request on which no model works, such as a file's, to the provider of its URL."""
    if row is None:
        method = ApiMethod(name=verb.lower(), verb=verb, path=received.target)
    else:
        nothing: frozenset[str] = frozenset()
        method = replace(
            method_of(row, row.returns),
            path=received.target, params=nothing, query=nothing, files=nothing, metered=False,
        )  # fmt: skip
    options = PerCallOptions(
        headers=received.origin.headers, timeout=received.limits, max_retries=received.max_retries
    )
    content, provider = received.body or None, received.home.endpoint.name
    return Request(method, content=content, provider=provider, options=options)


def _check_key(model: str, received: _Received) -> None:
    """Check that there is a key for the provider that a named model goes to.

    Raises:
        ServingError: 401, there is none.
    """
    if received.destinations.resolve(model) == AUTO:
        return
    home = received.home.endpoint
    place = received.destinations.get(received.destinations.split(model)[0]) if model else home
    if not isinstance(place, Endpoint) or has_key(place, received.origin if place is home else None):
        return
    raise ServingError(
        401,
        f"there is no key for provider {place.name!r}: set {' or '.join(place.key_env)} in the environment"
        + (", or give the client an api_key" if place is home else ""),
        code="provider_key_missing",
    )


@functools.lru_cache(maxsize=64)
def _limits(
    connect: float | None = DEFAULT_TIMEOUT_SECONDS.connect,
    read: float | None = DEFAULT_TIMEOUT_SECONDS.read,
    write: float | None = DEFAULT_TIMEOUT_SECONDS.write,
    pool: float | None = DEFAULT_TIMEOUT_SECONDS.pool,
) -> TimeoutSeconds:
    body = None if read is None else max(read, DEFAULT_TIMEOUT_SECONDS.body or 0.0)
    return TimeoutSeconds(connect, read, write, pool, body)


def _form_fields(body: bytes, content_type: str) -> dict[str, str]:
    """Return the short texts of a multipart form by name; files are left out."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        return {}
    fields = {}
    for part in body.split(b"--" + found[1].strip().encode("latin-1")):
        head, _, content = part.partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if name is not None and b"filename" not in head:
            fields[name[1].decode("ascii")] = content.removesuffix(b"\r\n").decode("utf-8", "replace")
    return fields
