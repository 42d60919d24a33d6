"""URL, headers and JSON body of requests to OpenAI-compatible endpoints. All functions are pure."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pydantic
import pydantic_core

from specclient.errors import BadRequestError, ConfigurationError
from specclient.providers import forms
from specclient.providers.endpoint import Endpoint
from specclient.runtime.json_slices import encode_in_slices
from specclient.types.api_method import ApiMethod
from specclient.types.params import is_given
from specclient.version import VERSION

#: Paths below the deployment's name on Azure
#: (https://learn.microsoft.com/azure/ai-services/openai/reference).
_DEPLOYED = frozenset(
    {
        "/completions",
        "/chat/completions",
        "/embeddings",
        "/audio/transcriptions",
        "/audio/translations",
        "/audio/speech",
        "/images/generations",
        "/images/edits",
    }
)
#: Characters that need no quoting in a path segment (RFC 3986, section 3.3).
_IN_A_SEGMENT = "!$&'()*+,;=:@"
_QUERY_VERBS = frozenset({"GET", "HEAD", "DELETE"})


def path_of(method: ApiMethod, places: Mapping[str, str], endpoint: Endpoint, model: str) -> str:
    """Return the path of a call with its placeholders filled in, and with Azure's deployment prefixed."""
    path = method.path
    if places:
        path = path.format_map(
            {name: quote(str(value), safe=_IN_A_SEGMENT) for name, value in places.items()}
        )
    deployment = endpoint.deployment or model
    if endpoint.deployments and deployment and path in _DEPLOYED:
        return f"/deployments/{quote(deployment, safe='')}{path}"
    return path


def model_in(body: Mapping[str, Any]) -> str:
    """Return the model in the body of a call by path, which is its deployment at Azure; '' without one."""
    model = body.get("model")
    return model if isinstance(model, str) else ""


def url_of(endpoint: Endpoint, path: str, query: Mapping[str, Any]) -> str:
    """Return the URL of a path. The path and query of the base URL are kept.

    Raises:
        ConfigurationError: the endpoint's base URL contains a placeholder.
    """
    elsewhere = path.startswith(("http://", "https://"))
    if not elsewhere and "{" in endpoint.base_url:
        raise ConfigurationError(f"provider {endpoint.name!r} has {endpoint.lacks}")
    base, path = (path, "") if elsewhere else (endpoint.base_url, path)
    if endpoint.query or query:
        return _joined(base, path, forms.query_text({**endpoint.query, **query}))
    return _joined_once(base, path)


def _joined(base_url: str, path: str, added: str = "") -> str:
    base = urlsplit(base_url)
    path, _, own = path.partition("?")
    query = "&".join(part for part in (base.query, own, added) if part)
    joined = base.path.rstrip("/") + (path if not path or path.startswith("/") else f"/{path}")
    return urlunsplit((base.scheme, base.netloc, joined, query, ""))


#: Cached, because most calls go to the same few URLs.
_joined_once = functools.lru_cache(maxsize=256)(_joined)


def parts_of(method: ApiMethod, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a call for the query, and those for the body."""
    if method.verb in _QUERY_VERBS:
        return dict(params), {}
    if not method.query:
        return {}, dict(params)
    query = {name: value for name, value in params.items() if name in method.query}
    return query, {name: value for name, value in params.items() if name not in method.query}


def headers_of(
    endpoint: Endpoint, method: ApiMethod, added: Mapping[str, Any], *, json_body: bool
) -> dict[str, str]:
    """Return headers by lower-case name: defaults, then the method's, endpoint's and call's; None omits one.

    ``accept`` is JSON for streams of events, too, as the OpenAI client sends it.

    Raises:
        ConfigurationError: the key is missing, or a value cannot be sent.
    """
    headers: dict[str, Any] = {
        "accept": "application/json",
        "content-type": "application/json" if json_body else None,
        "user-agent": user_agent(),
        "openai-organization": endpoint.organization,
        "openai-project": endpoint.project,
        **_credentials(endpoint, method),
    }
    for name, value in (*method.headers.items(), *endpoint.headers.items(), *added.items()):
        omitted = value is None or not is_given(value)
        headers[name.lower()] = None if omitted else _checked_header(name, value)
    if not json_body and headers["content-type"] == "multipart/form-data":
        headers["content-type"] = None  # the HTTP library adds the boundary
    _check_credentials(endpoint, method, headers, added)
    return {name: value for name, value in headers.items() if value is not None}


def counts_retries(added: Mapping[str, Any]) -> bool:
    """Return whether the header with the number of earlier attempts is added: unless the caller sets it."""
    return not any(name.lower() == "x-stainless-retry-count" for name in added)


def brings_key(endpoint: Endpoint, method: ApiMethod, added: Mapping[str, Any]) -> bool:
    """Return whether a request brings its key: in the caller's headers, or as a call of ``client.admin``."""
    if _is_admin(method):
        return True
    carriers = (
        {endpoint.key_header} if endpoint.authorizer is None else {endpoint.key_header, "authorization"}
    )
    return any(name.lower() in carriers for name in (*endpoint.headers, *added))


def _is_admin(method: ApiMethod) -> bool:
    return method.name.startswith("admin.")


def _credentials(endpoint: Endpoint, method: ApiMethod) -> dict[str, str]:
    key = endpoint.admin_key if _is_admin(method) else endpoint.key
    if key is None:
        return {}
    text = key.get_secret_value()
    return key_headers(endpoint, text)


def key_headers(endpoint: Endpoint, key: str) -> dict[str, str]:
    """Return the header that carries a key."""
    if endpoint.key_header == "authorization":
        return {"authorization": f"Bearer {key}"}
    return {endpoint.key_header: key}


def _checked_header(name: str, value: Any) -> str:
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if not (text.isascii() and text.isprintable()):
        raise ConfigurationError(f"header {name!r} contains a line break or a character outside ASCII")
    return text


def _check_credentials(
    endpoint: Endpoint, method: ApiMethod, headers: Mapping[str, Any], added: Mapping[str, Any]
) -> None:
    admin = _is_admin(method)
    fresh = endpoint.key_source is not None or endpoint.authorizer is not None  # before each attempt
    if not endpoint.key_required or (fresh and not admin):
        return
    carriers = ("authorization", "api-key", endpoint.key_header)
    if any(headers.get(name) for name in carriers):
        return
    if any(name.lower() in carriers for name in added):
        return  # removed on purpose: the request is sent without a key
    if admin:
        raise ConfigurationError(
            f"no admin key for provider {endpoint.name!r}: set OPENAI_ADMIN_KEY in the environment, or pass "
            "admin_api_key; client.admin takes no other key"
        )
    variables = " or ".join(endpoint.key_env)
    raise ConfigurationError(
        f"no key for provider {endpoint.name!r}: set {variables} in the environment, or pass the key"
    )


def user_agent() -> str:
    """Return the ``User-Agent`` header of requests to servers."""
    return f"specclient/{VERSION}"


def json_of(body: Any) -> bytes:
    """Return a body as JSON.

    Raises:
        BadRequestError: a parameter has no JSON form. The message names it and the reason.
    """
    try:
        try:
            return _to_json(body)
        except TypeError:  # perhaps for a NOT_GIVEN inside, which the OpenAI client leaves out
            return _to_json(_given_values(body))
    except (TypeError, ValueError, RecursionError) as error:
        for name, value in body.items() if isinstance(body, Mapping) else ():
            try:
                _to_json(value)
            except (TypeError, ValueError, RecursionError) as cause:
                raise BadRequestError(
                    f"parameter {name!r} cannot be sent as JSON: {_reason(cause)}"
                ) from cause
        raise BadRequestError(f"the request cannot be sent as JSON: {_reason(error)}") from error


def decoded(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as decoded JSON, because messages may be response objects or any mappings.

    Raises:
        BadRequestError: see :func:`json_of`.
    """
    encoded = json_of(params)
    result: dict[str, Any]
    try:
        result = pydantic_core.from_json(encoded)  # 3 to 10 times as fast as json.loads for numbers
    except ValueError:  # more than 200 levels of nesting
        result = json.loads(encoded)
    return result


def _to_json(value: Any) -> bytes:
    return encode_in_slices(_ENCODER, value).encode()


def _given_values(value: Any) -> Any:
    """Return JSON values without the members and items that are not given."""
    if isinstance(value, Mapping):
        return {name: _given_values(each) for name, each in value.items() if is_given(each)}
    if isinstance(value, list | tuple):
        return [_given_values(each) for each in value if is_given(each)]
    return value


def plain_value(value: Any) -> Any:
    """Return a JSON-serializable form of ``value``: of a response object, a mapping, a date, …."""
    if isinstance(value, pydantic.BaseModel):
        parsed = getattr(value, "__api_exclude__", None)  # fields that this package has added to a response
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=parsed)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain_value)


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeError):
        return "it contains half of a surrogate pair, which is not a character"
    if isinstance(error, ValueError) and "float" in str(error):
        return "NaN and infinity have no JSON form"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
