"""Parsing of a call: the OpenAI request body, and its extension object ``specclient``.

The extension has these fields:

``policy``
    name of a configured policy, or an object with a policy's fields; requires ``"model": "auto"``.
``strategy``, ``draft``, ``depth``
    speculation by this server; see :class:`specclient.types.strategy.Strategy`.
``drop_params``
    true drops parameters that the provider does not support, instead of refusing the call.
``tags``
    tags of the call in the ledger.
``session``
    the conversation or agent run that the call belongs to; recorded in the ledger.
``cache``
    whether the response cache may answer; see :mod:`specclient.openai_http.cache_request`.
``meta``
    true adds cost, route and speculation to the response, as does the header ``x-specclient-meta: 1``.

All other fields (``draft_length``, ``method``, ``min_p``, ``regex``, …) go to the engine, which checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl

from specclient.errors import ConfigurationError
from specclient.openai_http.cache_request import CACHE_HEADER, cache_field, cache_header
from specclient.openai_http.errors import bad_request, shown
from specclient.openai_http.json_body import JSON_VALUES, json_object
from specclient.routing.router import AUTO
from specclient.runtime.short_repr import short_repr
from specclient.types.api_method import ApiMethod
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, MODERATION, RESPONSE
from specclient.types.permit import RoutePermit
from specclient.types.policy import Policy
from specclient.types.request import PerCallOptions, Request, WrittenBody
from specclient.types.strategy import Strategy

EXTENSION = "specclient"
META_HEADER = "x-specclient-meta"
#: Request headers that are forwarded to the provider.
FORWARDED_HEADERS = ("idempotency-key", "openai-beta", "traceparent", "tracestate")
_STRATEGY = {"strategy": "kind", "draft": "draft", "depth": "depth"}
_POLICY = tuple(field.name for field in fields(Policy))
_MOST_TAGS, _LONGEST_TAG = 16, 512
#: Routes in a list of a request's policy, and characters of each; such lists are remembered for later calls.
_MOST_ROUTES, _LONGEST_ROUTE = 64, 512
_ROUTES = ("allow", "deny", "fallbacks")
#: Most characters of a policy without its routes, or of a strategy.
_LONGEST_FIELD = 10_000


@dataclass(frozen=True, slots=True)
class IncomingCall:
    """A parsed call.

    Attributes:
        request: the request to send.
        meta: whether the response includes cost, route and speculation.
    """

    request: Request
    meta: bool = False


def parse_call(
    method: ApiMethod,
    body: bytes,
    headers: Mapping[str, str],
    query: str = "",
    permit: RoutePermit | None = None,
    *,
    most_values: int = JSON_VALUES,
    checked: bool = True,
    name_model: Callable[[str], str] | None = None,
    keep_written: bool = False,
    **options: Any,
) -> IncomingCall:
    """Parse a call.

    Args:
        method: the API method.
        body: the request body.
        headers: request headers; those in :data:`FORWARDED_HEADERS` are forwarded.
        query: query string, which is forwarded.
        permit: the routes that the call may be sent to.
        most_values: maximum number of JSON values in the body (:func:`json_object`).
        checked: whether messages, prompt or input are checked here. False leaves that to the provider.
        name_model: returns the pipeline's name of the model in the body; None for the same name.
        keep_written: whether endpoints that would get the same JSON get the body itself.
        options: further fields of :class:`PerCallOptions`.

    Raises:
        ServingError: 400; the message names the field and what is allowed.
    """
    given = json_object(body, most_values)
    model = _model(given.pop("model", None), required=method not in (MODERATION, RESPONSE))
    stream = boolean_field(given.pop("stream", None), "stream") and method.event_type is not None
    if not isinstance(given.get("stream_options") or {}, dict):
        raise bad_request(
            "stream_options", f"stream_options is {shown(given['stream_options'])}; it must be an object"
        )
    ours = given.pop(EXTENSION, None)
    check = _CONTENTS.get(method.name) if checked else None
    if check is not None:
        check(given)
    params = {name: value for name, value in given.items() if name in method.params}
    extra = {name: value for name, value in given.items() if name not in method.params}
    if keep_written and ours is None:
        options["written"] = WrittenBody(body, model, params, extra)
    given_options = PerCallOptions(
        headers=forwarded_headers(headers, FORWARDED_HEADERS),
        query=query_parameters(query) if query else {},
        body=extra,
        permit=permit,
        **options,
    )
    if name_model is not None:
        model = name_model(model)
    request = Request(method, model, params, stream=stream, options=given_options)
    return with_extension(IncomingCall(request, asks_meta(headers)), ours, headers)


def asks_meta(headers: Mapping[str, str]) -> bool:
    """Return whether the headers ask for cost, route and speculation in the response."""
    return headers.get(META_HEADER, "") not in ("", "0", "false")


def with_extension(call: IncomingCall, ours: object, headers: Mapping[str, str]) -> IncomingCall:
    """Return a call with the fields of the extension object applied, and the header about the cache.

    Args:
        call: the call of the API's own fields.
        ours: the value of ``specclient`` in the request's body; None without one.
        headers: request headers.

    Raises:
        ServingError: 400; the message names the field and what is allowed.
    """
    if CACHE_HEADER in headers:
        options = replace(call.request.options, cache=cache_header(headers))
        call = replace(call, request=replace(call.request, options=options))
    if ours is None:
        return call
    if not isinstance(ours, dict):
        raise bad_request(EXTENSION, f"specclient is {shown(ours)}; it must be an object")
    request, rest = call.request, dict(ours)
    policy, strategy, tags = _policy(rest, request.model), _strategy(rest), _tags(rest.pop("tags", None))
    session = _session(rest.pop("session", None))
    meta = boolean_field(rest.pop("meta", None), "specclient.meta") or call.meta
    drop = rest.pop("drop_params", None)
    if drop is not None:
        drop = boolean_field(drop, "specclient.drop_params")
    options = replace(request.options, tags=tags, session=session, drop_params=drop)
    if (cache := cache_field(rest.pop("cache", None))) is not None:
        options = replace(options, cache=cache)
    if rest:
        options = replace(options, body={**options.body, EXTENSION: rest})
    return replace(
        call, request=replace(request, policy=policy, strategy=strategy, options=options), meta=meta
    )


def forwarded_headers(headers: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the named headers that are present.

    Raises:
        ServingError: 400, a header has a character that is not printable ASCII.
    """
    found = {name: headers[name] for name in names if name in headers}
    for name, text in found.items():
        if not (text.isascii() and text.isprintable()):
            raise bad_request(
                None, f"header {name!r} has a character that is not printable ASCII", "invalid_header"
            )
    return found


def query_parameters(query: str) -> dict[str, str | list[str]]:
    """Return the parameters of a query. ``name[]`` is a list, which the encoder writes in the same form."""
    found: dict[str, str | list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name.endswith("[]"):
            found[name[:-2]] = [*found.get(name[:-2], []), value]
        else:
            found[name] = value
    return found


def _model(value: object, *, required: bool) -> str:
    if value is None and not required:
        return ""
    if not isinstance(value, str) or not value:
        what = "missing" if value is None else shown(value)
        raise bad_request(
            "model", f"model is {what}; it must be the name of a model; GET /v1/models lists the models"
        )
    return value


def boolean_field(value: object, name: str) -> bool:
    """Return a boolean field; False if it is missing.

    Raises:
        ServingError: 400, the value is not a boolean.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    raise bad_request(name, f"{name} is {shown(value)}; it must be true or false")


def _policy(ours: dict[str, Any], model: str) -> Policy | str | None:
    given = ours.pop("policy", None)
    if given is None:
        return None
    if model != AUTO:
        raise bad_request(
            "specclient.policy", f"a policy chooses the model, so model must be {AUTO!r}, not {model!r}"
        )
    if isinstance(given, str):
        return given
    if not isinstance(given, dict):
        raise bad_request(
            "specclient.policy",
            f"specclient.policy is {shown(given)}; it must be the name of a policy or an object",
        )
    others = [value for name, value in given.items() if name not in _ROUTES]
    _check_size("specclient.policy", others)
    unknown = given.keys() - set(_POLICY)
    if unknown:
        raise bad_request(
            "specclient.policy",
            f"specclient.policy has {sorted(unknown)[0]!r}; allowed are {', '.join(_POLICY)}",
        )
    for name in ("allow", "deny"):
        if not isinstance(given.get(name, []), list):
            raise bad_request(
                "specclient.policy", f"policy.{name} is {shown(given[name])}; it must be a list of routes"
            )
    for name in _ROUTES:
        routes = given.get(name)
        if isinstance(routes, list) and (
            len(routes) > _MOST_ROUTES
            or any(not isinstance(route, str) or len(route) > _LONGEST_ROUTE for route in routes)
        ):
            raise bad_request(
                "specclient.policy",
                f"policy.{name} has {len(routes)} routes; it may have at most {_MOST_ROUTES}, texts of at "
                f"most {_LONGEST_ROUTE} characters; name a configured policy for more",
            )
    try:
        return Policy(**given)
    except (ConfigurationError, TypeError) as error:
        raise bad_request("specclient.policy", str(error)) from None


def _strategy(ours: dict[str, Any]) -> Strategy | None:
    given = {field: ours.pop(name) for name, field in _STRATEGY.items() if ours.get(name) is not None}
    for name in _STRATEGY:
        ours.pop(name, None)  # null means unset
    if not given:
        return None
    _check_size("specclient.strategy", given)
    if not isinstance(given.get("draft", ""), str):
        raise bad_request(
            "specclient.draft",
            f"specclient.draft is {shown(given['draft'])}; it must be the name of a model",
        )
    try:
        return Strategy(**given)
    except (ConfigurationError, TypeError) as error:
        raise bad_request("specclient.strategy", str(error)) from None


def _check_size(name: str, value: object) -> None:
    """Refuse a field whose values would make a very long error message, which takes long to make."""
    if len(short_repr(value, _LONGEST_FIELD)) > _LONGEST_FIELD:
        raise bad_request(name, f"{name} is too large; it may have at most {_LONGEST_FIELD} characters")


def _tags(given: object) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > _MOST_TAGS:
        raise bad_request(
            "specclient.tags", f"specclient.tags must be an object of at most {_MOST_TAGS} strings"
        )
    for name, text in given.items():
        if not isinstance(text, str) or len(name) + len(text) > _LONGEST_TAG:
            raise bad_request(
                "specclient.tags",
                f"specclient.tags[{name[:40]!r}] must be a string of fewer than {_LONGEST_TAG} characters",
            )
    return given


def _session(given: object) -> str | None:
    if given is None or (isinstance(given, str) and 0 < len(given) < _LONGEST_TAG):
        return given
    raise bad_request(
        "specclient.session", f"specclient.session must be a string of 1 to {_LONGEST_TAG - 1} characters"
    )


def _check_messages(given: Mapping[str, Any]) -> None:
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request(
            "messages", f"messages is {shown(messages)}; it must be a non-empty array of objects"
        )
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise bad_request(
                f"messages[{place}]", f"messages[{place}] is {shown(message)}; it must be an object"
            )


def _check_prompt(given: Mapping[str, Any]) -> None:
    prompt = given.get("prompt")
    if not isinstance(prompt, str | list):
        raise bad_request(
            "prompt", f"prompt is {shown(prompt)}; it must be a string or an array of strings or token ids"
        )


def _check_input(given: Mapping[str, Any]) -> None:
    text = given.get("input")
    if not isinstance(text, str | list) or not text:
        raise bad_request(
            "input", f"input is {shown(text)}; it must be a string or an array of strings or token ids"
        )


_CONTENTS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    CHAT.name: _check_messages,
    COMPLETION.name: _check_prompt,
    EMBEDDING.name: _check_input,
}
