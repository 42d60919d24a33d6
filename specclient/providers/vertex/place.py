"""The place of requests in Vertex AI: host, project, location, and the paths of models.

https://cloud.google.com/vertex-ai/generative-ai/docs/learn/locations (hosts),
https://cloud.google.com/vertex-ai/docs/reference/rest (paths). API versions are those of the vendors' SDKs:
``v1beta1`` for Google's models (google-genai), ``v1`` for Anthropic's (anthropic).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from specclient.errors import ConfigurationError, NotFoundError

#: Environment variables of the project and of the location, in the order in which they are read: those of
#: google-genai and google-auth, then those of the anthropic package.
PROJECT_ENV: Final = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID")
LOCATION_ENV: Final = ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION")

#: The ids of prices (``price_provider``) in and outside the location ``global``.
PRICES: Final = "vertex"
REGIONAL_PRICES: Final = "vertex-regional"

GLOBAL: Final = "global"
#: Locations that are several regions.
MULTI_REGIONS: Final = frozenset({"us", "eu"})
#: Stands for a project that only the credentials know; see :class:`.credentials.GoogleAuthorizer`.
UNKNOWN_PROJECT: Final = "{project}"
#: ``anthropic_version`` in the body of Anthropic's requests.
ANTHROPIC_VERSION: Final = "vertex-2023-10-16"

#: The dialect of each publisher's models.
_DIALECTS: Final[Mapping[str, str]] = {"google": "gemini", "anthropic": "anthropic"}
_VERSIONS: Final[Mapping[str, str]] = {"google": "v1beta1", "anthropic": "v1"}
_LOCATION = re.compile(r"[a-z][a-z0-9-]{0,62}")
#: A project's id, its number, or an id in a domain (``example.com:my-project``).
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{1,126}")
_HAS_VERSION = re.compile(r"/v[0-9][a-z0-9]*/?$")
_IN_A_NAME = "@:-._~"


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexPlace:
    """The project and location of an endpoint's requests.

    Attributes:
        project: the project's id; None if only the credentials know it.
        provider: the endpoint's name, for errors.
        location: ``global``, a multi-region (``us``, ``eu``) or a region (``europe-west4``).
        express: whether an API key stands for the project ("Vertex AI in express mode"): paths then begin
            with the publisher.
        project_known: whether a request may be sent without a project, because the credentials may have one,
            or express mode needs none.
    """

    project: str | None
    location: str
    provider: str = "vertex"
    express: bool = False
    project_known: bool = True

    @property
    def problem(self) -> str | None:
        """The defect of the project or the location, as text; None if there is none."""
        table = f"under [providers.{self.provider}] in specclient.toml"
        if not _LOCATION.fullmatch(self.location):
            return (
                f"location is {self.location!r}; it must be 'global', 'us', 'eu' or a region such as "
                f"'us-central1': set location {table}, or {LOCATION_ENV[0]}"
            )
        if self.project is None and not self.project_known:
            return f"an access token needs a project: set project {table}, or {PROJECT_ENV[0]}"
        if self.project is not None and not _PROJECT.fullmatch(self.project):
            return (
                f"project is {self.project!r}; it must be the id of a Google Cloud project: set project "
                f"{table}, or {PROJECT_ENV[0]}"
            )
        return None

    @property
    def base_url(self) -> str:
        """The URL of the location's host, without a version."""
        if self.location == GLOBAL:
            return "https://aiplatform.googleapis.com"
        if self.location in MULTI_REGIONS:
            return f"https://aiplatform.{self.location}.rep.googleapis.com"
        return f"https://{self.location}-aiplatform.googleapis.com"

    @property
    def parent(self) -> str:
        """The path of project and location; empty in express mode."""
        if self.express:
            return ""
        return f"/projects/{self.project or UNKNOWN_PROJECT}/locations/{self.location}"

    def path(self, base_url: str, model: str, verb: str) -> str:
        """Return the path of a call to a model, below a base URL with or without a version of the API.

        Args:
            base_url: the endpoint's.
            model: a name (``gemini-2.5-flash``, ``claude-sonnet-4-5@20250929``), one with its publisher
                (``anthropic/claude-…``), or the path of a resource (``publishers/…``, ``projects/…``).
            verb: such as ``generateContent``.

        Raises:
            ConfigurationError: the project or location is invalid, or express mode does not serve the model.
            NotFoundError: no dialect is known for the model's publisher.
        """
        if self.problem is not None:
            raise ConfigurationError(f"provider {self.provider!r}: {self.problem}")
        publisher, resource = _resource_of(model)
        if self.express and publisher != "google":
            raise ConfigurationError(
                f"provider {self.provider!r} has an API key alone (express mode), which serves Google's "
                f"models and not {model!r}: set project under [providers.{self.provider}] in specclient.toml"
            )
        parent = "" if resource.startswith("projects/") else self.parent
        return f"{self.version(base_url, publisher)}{parent}/{quote(resource, safe='/' + _IN_A_NAME)}:{verb}"

    def resource_name(self, name: str) -> str:
        """Return the full name of a resource of the project, such as ``cachedContents/ID``."""
        if self.express or self.project is None or name.startswith("projects/"):
            return name
        return f"{self.parent[1:]}/{name}"

    def version(self, base_url: str, publisher: str) -> str:
        """Return the path of the version of a publisher's API; empty if the base URL ends in one."""
        return "" if _HAS_VERSION.search(urlsplit(base_url).path) else f"/{_VERSIONS[publisher]}"


def dialect_of_model(model: str) -> str:
    """Return the dialect of a model.

    Raises:
        NotFoundError: no dialect is known for its publisher.
    """
    return _DIALECTS[_resource_of(model)[0]]


def _resource_of(model: str) -> tuple[str, str]:
    """Return the publisher of a model, and its path below the project and location.

    Tuned models are endpoints of a project (``endpoints/ID``), and speak Google's dialect.
    """
    head, slash, rest = model.partition("/")
    if not slash:
        publisher, resource = ("anthropic" if model.startswith("claude") else "google"), ""
    elif head == "projects":
        publisher, resource = _publisher_in(rest) or "google", model
    elif head == "publishers":
        publisher, resource = rest.partition("/")[0], model
    elif head in ("models", "endpoints"):
        publisher, resource = "google", model
    else:
        publisher, resource = head, f"publishers/{head}/models/{rest}"
    if publisher not in _DIALECTS or ".." in model:
        raise NotFoundError(
            f"Vertex AI's models of {' and '.join(_DIALECTS)} are served, not {model!r}; for others, define "
            "a provider with the base_url of Vertex AI's OpenAI-compatible API, https://LOCATION-aiplatform."
            "googleapis.com/v1/projects/PROJECT/locations/LOCATION/endpoints/openapi"
        )
    return publisher, resource or f"publishers/{publisher}/models/{model}"


def _publisher_in(path: str) -> str | None:
    found = re.search(r"/publishers/([^/]+)/", path)
    return None if found is None else found[1]
