"""The endpoint of Vertex AI: its address and authorisation, and the endpoint of each model's dialect."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import SecretStr

from specclient.errors import CredentialsError
from specclient.providers.endpoint import Endpoint
from specclient.providers.vertex.credentials import shared_credentials
from specclient.providers.vertex.place import (
    GLOBAL,
    LOCATION_ENV,
    PRICES,
    PROJECT_ENV,
    REGIONAL_PRICES,
    UNKNOWN_PROJECT,
    VertexPlace,
    dialect_of_model,
)
from specclient.types.wire import WireRequest

_BEARER = "authorization"
_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_TRUE = ("1", "true")
#: Variables of Cloud Run, App Engine, and a metadata server elsewhere.
_ON_GOOGLE_CLOUD = ("K_SERVICE", "GAE_SERVICE", "GCE_METADATA_HOST")


@dataclass(frozen=True, slots=True)
class GoogleAuthorizer:
    """Adds an access token to requests, and the project of the credentials where none is set.

    It is a :class:`specclient.providers.endpoint.Authorizer`.

    Attributes:
        place: the place of the requests.
        source: see :class:`specclient.providers.vertex.credentials.GoogleCredentials`.
        default_file: the file of the application default credentials, if the environment names one.
        hints: whether a setting indicates credentials, or a project for those of the machine.
    """

    place: VertexPlace
    source: Any = field(repr=False)
    hints: bool
    default_file: str | None = None

    @property
    def lacks(self) -> str | None:
        """The settings missing for a first attempt, as text; None if one may succeed."""
        if self.hints:
            return None
        return f"no Google Cloud project or credentials: set {PROJECT_ENV[0]}, or {_FILE}"

    async def __call__(self, request: WireRequest) -> WireRequest:
        """Return a request with an access token.

        Raises:
            CredentialsError: there is no token, or no project.
        """
        access = await shared_credentials(self.source, self.default_file).access()
        parts = urlsplit(request.url)
        if UNKNOWN_PROJECT in parts.path:
            if access.project is None:
                raise CredentialsError(
                    "the Google credentials have no project: set project under [providers.vertex] in "
                    f"specclient.toml, or {PROJECT_ENV[0]}"
                )
            path = parts.path.replace(UNKNOWN_PROJECT, quote(access.project, safe=":"), 1)
            request = replace(request, url=urlunsplit(parts._replace(path=path)))
        headers = {"authorization": f"Bearer {access.token}"}
        if access.quota_project and not any(
            name.lower() == "x-goog-user-project" for name in request.headers
        ):
            headers["x-goog-user-project"] = access.quota_project
        return request.with_headers(headers)


def placed_endpoint(endpoint: Endpoint, env: Mapping[str, str]) -> Endpoint:
    """Return the endpoint with its address and authorisation, from its settings and the environment.

    An API key in ``x-goog-api-key`` stands for its project (express mode), unless the settings name one. A
    key in ``authorization`` is an access token. Without a key, google-auth gives the tokens.
    """
    cloud = endpoint.cloud
    project = cloud.project or _first(env, PROJECT_ENV)
    if not _has_key(endpoint) and not project and _uses_google_api_key(env):
        endpoint = replace(endpoint, key=SecretStr(env["GOOGLE_API_KEY"]))
    has_key = _has_key(endpoint)
    express = has_key and endpoint.key_header != _BEARER and cloud.project is None
    location = cloud.location or (None if express else _first(env, LOCATION_ENV)) or GLOBAL
    place = VertexPlace(
        project=None if express else project,
        location=location,
        provider=endpoint.name,
        express=express,
        project_known=express or not has_key,
    )
    default_file = env.get(_FILE) or None
    hints = bool(cloud.credentials or default_file or project) or _has_credentials(env)
    base_url = place.base_url if "{" in endpoint.base_url and place.problem is None else endpoint.base_url
    prices = endpoint.price_provider
    return replace(
        endpoint,
        base_url=base_url,
        place=place,
        authorizer=None if has_key else GoogleAuthorizer(place, cloud.credentials, hints, default_file),
        price_provider=REGIONAL_PRICES if prices == PRICES and location != GLOBAL else prices,
    )


def endpoint_of_model(endpoint: Endpoint, model: str) -> Endpoint:
    """Return the endpoint for calls of a model, with the dialect of the model's publisher.

    Raises:
        NotFoundError: no dialect is known for the publisher.
    """
    dialect = dialect_of_model(model)
    known = endpoint.capabilities
    if known.prefill is None and dialect == "anthropic":
        known = replace(known, prefill="assistant")
    return replace(endpoint, dialect=dialect, capabilities=known)


def _has_key(endpoint: Endpoint) -> bool:
    return endpoint.key is not None or endpoint.key_source is not None


def _uses_google_api_key(env: Mapping[str, str]) -> bool:
    """Return whether the environment tells google-genai to use its key for Vertex AI."""
    named = env.get("GOOGLE_GENAI_USE_ENTERPRISE") or env.get("GOOGLE_GENAI_USE_VERTEXAI") or ""
    return named.lower() in _TRUE and bool(env.get("GOOGLE_API_KEY"))


def _first(env: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((value for name in names if (value := env.get(name, "").strip())), None)


def _has_credentials(env: Mapping[str, str]) -> bool:
    """Return whether the user has signed in by gcloud, or the machine is one of Google Cloud."""
    if _default_file(env).exists() or any(env.get(name) for name in _ON_GOOGLE_CLOUD):
        return True
    return env.get("NO_GCE_CHECK", "").lower() not in _TRUE and _is_googles()


@functools.cache
def _is_googles() -> bool:
    """Return whether the machine reports Google as its maker, the check that google-auth makes first."""
    try:
        return Path("/sys/class/dmi/id/product_name").read_text(encoding="utf-8").startswith("Google")
    except (OSError, ValueError):
        return False


def _default_file(env: Mapping[str, str]) -> Path:
    """Return the path of the credentials of ``gcloud auth application-default login``."""
    folder = env.get("CLOUDSDK_CONFIG")
    if not folder and sys.platform == "win32":
        folder = os.path.join(env.get("APPDATA", ""), "gcloud")  # noqa: PTH118
    root = Path(folder) if folder else Path(env.get("HOME") or "~").expanduser() / ".config" / "gcloud"
    return root / "application_default_credentials.json"
