"""The headers of a caller's request that go to the provider it was addressed to, and to no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specclient.client.core import ClientCore
from specclient.official_client.origins import HomePath
from specclient.providers import Endpoint
from specclient.types.request import OriginOptions

#: The key of an official client that has none: requests are sent with the key of the settings.
NO_KEY: Final = "specclient-no-key"

#: Headers of one connection or one body, which the pipeline's own HTTP client sets.
_NOT_SENT = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-specclient-meta",
        "x-stainless-raw-response",
        "x-stainless-retry-count",
    }
)
#: Different heads of requests that are remembered.
_MOST_HEADS: Final = 64
_KEYS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
_OF_THE_BODY = ("accept", "content-type")
_ACCOUNT = ("openai-organization", "openai-project")


def origin_options(headers: Mapping[str, str], home: HomePath, core: ClientCore) -> OriginOptions:
    """Return the options of a call for the provider that it was addressed to.

    The caller's key is used there. The key of the settings is used instead if the caller has none, or if the
    transport was made with an ``api_key``, which is the default provider's.

    Args:
        headers: the request's headers, names in lower case.
        home: the provider.
        core: the core of the transport's client.
    """
    endpoint = home.endpoint
    if home.moved:
        of_body = {name: headers[name] for name in _OF_THE_BODY if name in headers}
        return OriginOptions(endpoint.name, of_body, endpoint.account)
    keys = {name: headers[name] for name in _KEYS if _has_key(headers.get(name))}
    if endpoint.name == core.settings.default_provider and core.options.get("api_key") is not None:
        keys = {}
    if endpoint.dialect == "openai":
        sent: dict[str, str | None] = {
            name: value for name, value in headers.items() if name not in _NOT_SENT and name not in _KEYS
        }
    else:
        sent = {}
    if not keys:
        return OriginOptions(endpoint.name, sent, endpoint.account)
    if endpoint.key_header not in keys and "authorization" in keys and endpoint.key_header != "authorization":
        keys[endpoint.key_header] = keys.pop("authorization").removeprefix("Bearer ")
    own = endpoint.key
    if own is not None and own.get_secret_value() in keys.get(endpoint.key_header, "").split():
        return OriginOptions(endpoint.name, {**sent, **keys}, endpoint.account)
    for name in _ACCOUNT:  # those of the settings belong to another key
        sent.setdefault(name, None)
    identity = (endpoint.base_url, *sorted(keys.items()), *(sent[name] for name in _ACCOUNT))
    return OriginOptions(endpoint.name, {**sent, **keys}, core.shared.account_mark(hash(identity)))


class RequestHeads:
    """Reads the headers of requests; those of a program's requests are mostly the same.

    Args:
        core: the core of the transport's client.
    """

    def __init__(self, core: ClientCore) -> None:
        self.core = core
        self._known: dict[Any, tuple[dict[str, str], OriginOptions, Endpoint]] = {}

    def read(self, request: Any, home: HomePath) -> tuple[Mapping[str, str], OriginOptions]:
        """Return the headers of a library's request, and the options of its call for a provider.

        Names are in lower case. The length of the body is left out.

        Args:
            request: the request.
            home: the provider that it was addressed to.
        """
        raw = [pair for pair in request.headers.raw if pair[0].lower() != b"content-length"]
        key = (id(home.endpoint), home.moved, *raw)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_HEADS:
                self._known.clear()
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
            options = origin_options(headers, home, self.core)
            # The endpoint is kept with it, so that its id stands for no other one. Options that are changed
            # later make another endpoint.
            found = self._known[key] = headers, options, home.endpoint
        return found[0], found[1]


def _has_key(value: str | None) -> bool:
    return bool(value) and value not in ("Bearer", "Bearer ", NO_KEY, f"Bearer {NO_KEY}")


def has_key(endpoint: Endpoint, options: OriginOptions | None) -> bool:
    """Return whether a call has a key for a provider, or needs none.

    Args:
        options: the caller's options for this provider; None if it was addressed to another one.
    """
    if endpoint.has_key:
        return True
    return options is not None and any(options.headers.get(name) for name in _KEYS)
