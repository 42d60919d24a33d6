"""The key of a call in the response cache: a digest of all that the answer depends on.

A key covers the owner, the destination (or, for a routed call, the policy and the candidates), the
parameters, and the headers and query of the call. What cannot change the answer is left out, each with its
reason in :data:`LEFT_OUT` and :data:`HEADERS_LEFT_OUT`. Anything else, known or not, is a part of the key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from specclient.errors import OpenAIError
from specclient.providers import Endpoint
from specclient.routing.destinations import Destination, DestinationRegistry
from specclient.routing.router import Router
from specclient.runtime.json_slices import encode_in_slices
from specclient.types.backend import Backend
from specclient.types.params import is_given
from specclient.types.request import Request
from specclient.types.route import Decision

__all__ = ["HEADERS_LEFT_OUT", "LEFT_OUT", "DestinationMarks", "UnkeyableError", "request_digest"]

#: Changes with the format of keys, so that earlier answers are not found any more.
_VERSION = 2
#: Characters beyond which a text is a part of the key by its own digest: JSON takes four times as long.
_LONG = 2048
#: The deepest and longest containers in which such texts are looked for.
_DEPTH, _MEMBERS = 8, 1000
_SCANNED = frozenset({str, dict, list})
#: Parameters that are not a part of the key.
LEFT_OUT = frozenset(
    {
        "user",  # names the end user to the provider, for its abuse monitoring
        "safety_identifier",  # the same, by its newer name
        "prompt_cache_key",  # routes to a server that has the prompt in its cache: the price, not the answer
        "prompt_cache_retention",  # how long the provider keeps the prompt's state
        "metadata",  # labels of the caller
    }
)
#: A response of the Responses API repeats these parameters, so there they are a part of the answer.
_REPEATED = frozenset({"response"})
#: Headers that are not a part of the key. An ``authorization`` of the call is: its account may see other
#: models.
HEADERS_LEFT_OUT = frozenset(
    {
        "idempotency-key",  # lets the provider recognize a repeated request
        "traceparent",  # the caller's trace
        "tracestate",
        "user-agent",  # names the program
    }
)
#: Beginnings of such headers: those that name the caller's library, platform and attempt, and our own.
_PREFIXES_LEFT_OUT = ("x-stainless-", "x-specclient-")
# Options of a call that are not a part of the key: timeout, max_retries, follow_redirects and deadline_s
# limit or repeat the attempts; tags and session are labels; the permit is checked before; aliases are
# resolved in the route; written is the same body, and keeps_received the form in which chunks are held.

#: Destinations whose marks are remembered.
_MOST_MARKS = 1024


class UnkeyableError(Exception):
    """A parameter has no JSON form that is the same at every look, such as a generator."""


class DestinationMarks:
    """Texts that tell destinations apart: the same model name may be another model at another address."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, str], tuple[Destination, str]] = {}

    def mark(self, destination: Destination, model: str) -> str:
        """Return the mark of a model at a destination. The first time it may read files."""
        key = id(destination), "" if isinstance(destination, Endpoint) else model
        known = self._marks.get(key)
        if known is not None and known[0] is destination:
            return known[1]
        if isinstance(destination, Endpoint):
            mark = _endpoint_mark(destination)
        else:
            mark = _engine_mark(destination, model)
        if len(self._marks) >= _MOST_MARKS:
            self._marks.clear()
        self._marks[key] = destination, mark
        return mark

    def knows(self, destination: Destination, model: str) -> bool:
        """Return whether the mark is known, so that no file is read."""
        return isinstance(destination, Endpoint) or (id(destination), model) in self._marks


def _endpoint_mark(endpoint: Endpoint) -> str:
    return repr(
        (
            endpoint.base_url,
            endpoint.dialect,
            endpoint.deployment,
            endpoint.deployments,
            _headers(endpoint.headers),
            sorted(map(repr, endpoint.query.items())),
            endpoint.organization,
            endpoint.project,
            endpoint.place,
            endpoint.drop_params,
        )
    )


def _engine_mark(engine: Backend, model: str) -> str:
    """Return the mark of a model of an engine: its settings, and size and time of its checkpoint's files."""
    found = next((each for each in engine.models() if each.id == model), None)
    if found is None:
        return ""
    files: list[str] = []
    with suppress(OSError):
        folder = Path(found.target)
        if folder.is_dir():
            for file in sorted(folder.iterdir()):
                stat = file.stat()
                files.append(f"{file.name} {stat.st_size} {stat.st_mtime_ns}")
    return repr((found, files))


def request_digest(
    request: Request, decision: Decision | None, owner: str, router: Router, marks: DestinationMarks
) -> str:
    """Return the key of a request, in hexadecimal.

    Args:
        decision: the route of a named model; None for a routed call, whose answer may come from any
            candidate. Such an answer is used for calls with the same policy and candidates alone.
        owner: whose answers the call may use.

    Raises:
        UnkeyableError: a parameter has no fixed JSON form.
    """
    options = request.options
    native, origin = options.native, options.origin
    is_native = native is not None and native.translation is request.params
    parts = [
        (_VERSION, owner, request.method.name, request.stream, options.drop_params),
        _destination(request, decision, router, marks),
        repr(request.strategy),
        _headers(options.headers),
        None if origin is None else (origin.provider, _headers(origin.headers)),
        sorted(options.query.items()),
        # A provider of the dialect gets the request as it was written, which the translation may simplify.
        (native.dialect, _of_answer(native.body), _headers(native.headers), native.query)
        if native is not None and is_native
        else None,
        *_params(request),
    ]
    long_texts: list[tuple[tuple[int, ...], str]] = []
    try:
        found = _without_long_texts(parts, (), long_texts)
        text = encode_in_slices(_ENCODER, [found, long_texts])
    except (TypeError, ValueError, RecursionError) as error:
        raise UnkeyableError(str(error)) from None
    return hashlib.sha256(text.encode()).hexdigest()


def _without_long_texts(value: Any, path: tuple[int, ...], found: list[tuple[tuple[int, ...], str]]) -> Any:
    """Return a value with an empty text for each long one; the value itself if it has none.

    Args:
        path: the places that lead to the value; no two values of a request have one path.
        found: gets the path and the digest of each long text, so that the result with ``found`` differs for
            any two values that differ.
    """
    kind = type(value)
    if kind is str:
        if len(value) <= _LONG:
            return value
        found.append((path, hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()))
        return ""
    if (kind is not dict and kind is not list) or len(value) > _MEMBERS or len(path) >= _DEPTH:
        return value
    changed: Any = None
    for n, (name, each) in enumerate(value.items() if kind is dict else enumerate(value)):
        if type(each) in _SCANNED:
            without = _without_long_texts(each, (*path, n), found)
            if without is not each:
                changed = value.copy() if changed is None else changed
                changed[name] = without
    return value if changed is None else changed


def _destination(request: Request, decision: Decision | None, router: Router, marks: DestinationMarks) -> Any:
    places = router.destinations
    if decision is not None:
        place = places.of_model(decision.provider, decision.model)
        return decision.provider, decision.model, marks.mark(place, decision.model)
    policy, permit = router.policy_of(request), request.options.permit
    listed = policy.fallbacks if isinstance(policy.fallbacks, tuple) else ()
    routes = router.candidates if permit is None else permit.usable(router.candidates)
    more = listed if permit is None else permit.usable(listed)
    return (
        request.model,
        repr(policy),
        [[route, _route_mark(route, places, marks)] for route in (*routes, *more)],
    )


def _route_mark(route: str, places: DestinationRegistry, marks: DestinationMarks) -> str:
    provider, _, model = route.partition("/")
    try:
        return marks.mark(places.of_model(provider, model), model)
    except OpenAIError:  # a candidate that cannot be used, as when the engine is not installed
        return ""


def _params(request: Request) -> Iterable[Any]:
    """Yield names and values of the parameters, by name. Nested members keep their order.

    Servers write tools and schemas into the prompt in the order in which they come.
    """
    left_out = frozenset[str]() if request.operation in _REPEATED else LEFT_OUT
    for given in (request.params, request.options.body):
        names = sorted(given.keys() - left_out)
        yield names
        for name in names:
            value = given[name]
            yield int(value) if type(value) is float and value.is_integer() else value


def _of_answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a body in a vendor's dialect without labels, and without what the key has."""
    return {name: body[name] for name in sorted(body.keys() - {"metadata", "model", "stream"})}


def _headers(headers: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return the headers that are a part of the key; None for one that is omitted on purpose."""
    return sorted(
        (name.lower(), str(value) if value is not None and is_given(value) else None)
        for name, value in headers.items()
        if not (name.lower() in HEADERS_LEFT_OUT or name.lower().startswith(_PREFIXES_LEFT_OUT))
    )


def _plain(value: Any) -> Any:
    """Return a JSON form of a value, but not of one that can be read only once."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple | set | frozenset):
        return sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
    if isinstance(value, Iterable) and not (hasattr(value, "__next__") or hasattr(value, "read")):
        if isinstance(value, bytes | bytearray | memoryview):
            raise TypeError("bytes have no JSON form")
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__} has no fixed JSON form")


_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=_plain)
