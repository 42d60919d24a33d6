"""Settings and environment give the place of requests; names of models give their paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specclient.config import Settings
from specclient.errors import NotFoundError
from specclient.providers.configuration import endpoints
from specclient.providers.custom import Provider
from specclient.providers.endpoint import Endpoint
from specclient.providers.vertex.place import VertexPlace, dialect_of_model

BASE = "https://aiplatform.googleapis.com"


def _vertex(env: dict[str, str], *providers: Provider, **table: Any) -> Endpoint:
    settings = Settings.model_validate({"providers": {"vertex": table}} if table else {})
    return endpoints(settings, {"HOME": "/nowhere", "NO_GCE_CHECK": "true", **env}, providers=providers)[
        "vertex"
    ]


@pytest.mark.parametrize(
    ("env", "project", "location"),
    [
        ({}, None, "global"),
        ({"GOOGLE_CLOUD_PROJECT": "p-1", "GOOGLE_CLOUD_LOCATION": "eu"}, "p-1", "eu"),
        ({"GOOGLE_CLOUD_PROJECT": "p-1", "GOOGLE_CLOUD_REGION": "us-east5"}, "p-1", "us-east5"),
        ({"GOOGLE_CLOUD_LOCATION": "us", "GOOGLE_CLOUD_REGION": "us-east5"}, None, "us"),
        ({"ANTHROPIC_VERTEX_PROJECT_ID": "p-2", "CLOUD_ML_REGION": "us-east5"}, "p-2", "us-east5"),
    ],
)
def test_project_and_location_come_from_the_environment(
    env: dict[str, str], project: str | None, location: str
) -> None:
    place = _vertex(env).place
    assert place is not None
    assert (place.project, place.location, place.express) == (project, location, False)


def test_settings_precede_the_environment() -> None:
    env = {"GOOGLE_CLOUD_PROJECT": "p-env", "GOOGLE_CLOUD_LOCATION": "eu"}
    endpoint = _vertex(env, project="p-set", location="us")
    assert endpoint.place is not None
    assert (endpoint.place.project, endpoint.place.location) == ("p-set", "us")
    assert endpoint.base_url == "https://aiplatform.us.rep.googleapis.com"
    endpoint = _vertex(env, Provider(name="vertex", location="global"), project="p-set", location="us")
    assert endpoint.base_url == BASE


def test_credentials_are_expected_where_something_tells_of_them(tmp_path: Path) -> None:
    assert "set GOOGLE_CLOUD_PROJECT" in str(_vertex({}).lacks)
    for env in ({"GOOGLE_CLOUD_PROJECT": "p-1"}, {"GOOGLE_APPLICATION_CREDENTIALS": "/a.json"}):
        assert _vertex(env).lacks is None
    assert _vertex({}, credentials="/a.json").lacks is None
    (tmp_path / "application_default_credentials.json").touch()
    assert _vertex({"CLOUDSDK_CONFIG": str(tmp_path)}).lacks is None


def test_an_api_key_means_express_mode_unless_the_settings_name_a_project() -> None:
    endpoint = _vertex(
        {"VERTEX_API_KEY": "AQ.k", "GOOGLE_CLOUD_PROJECT": "p-1", "GOOGLE_CLOUD_LOCATION": "eu"}
    )
    assert endpoint.place is not None
    assert (endpoint.place.express, endpoint.base_url, endpoint.authorizer) == (True, BASE, None)
    assert endpoint.place.path(BASE, "gemini-2.5-flash", "x") == (
        "/v1beta1/publishers/google/models/gemini-2.5-flash:x"
    )
    endpoint = _vertex({"VERTEX_API_KEY": "AQ.k"}, project="p-1")
    assert endpoint.place is not None
    assert endpoint.place.path(BASE, "gemini-2.5-flash", "x").startswith("/v1beta1/projects/p-1/")


@pytest.mark.parametrize(
    ("env", "express"),
    [
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, True),
        ({"GOOGLE_GENAI_USE_ENTERPRISE": "1"}, True),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_PROJECT": "p-1"}, False),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "false"}, False),
        ({}, False),
    ],
)
def test_googles_key_is_used_where_google_genai_uses_it(env: dict[str, str], express: bool) -> None:
    endpoint = _vertex({"GOOGLE_API_KEY": "AIza", **env})
    assert endpoint.place is not None
    assert (endpoint.place.express, endpoint.key is not None) == (express, express)


def test_an_invalid_variable_is_reported_by_this_provider_alone() -> None:
    found = endpoints(Settings(), {"GOOGLE_CLOUD_LOCATION": "EU west"})
    assert "location is 'EU west'" in str(found["vertex"].lacks)
    assert found["openai"].lacks == "no key: set OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("model", "dialect", "path"),
    [
        ("gemini-2.5-flash", "gemini", "/v1beta1/{}/publishers/google/models/gemini-2.5-flash"),
        ("claude-opus-4@20250514", "anthropic", "/v1/{}/publishers/anthropic/models/claude-opus-4@20250514"),
        ("anthropic/claude-x", "anthropic", "/v1/{}/publishers/anthropic/models/claude-x"),
        ("google/gemma-3", "gemini", "/v1beta1/{}/publishers/google/models/gemma-3"),
        ("publishers/anthropic/models/c", "anthropic", "/v1/{}/publishers/anthropic/models/c"),
        ("endpoints/123", "gemini", "/v1beta1/{}/endpoints/123"),
        ("projects/q/locations/us/endpoints/1", "gemini", "/v1beta1/projects/q/locations/us/endpoints/1"),
        ("a b?c", "gemini", "/v1beta1/{}/publishers/google/models/a%20b%3Fc"),
    ],
)
def test_paths_of_models(model: str, dialect: str, path: str) -> None:
    place = VertexPlace(project="p-1", location="eu")
    assert dialect_of_model(model) == dialect
    assert place.path(BASE, model, "verb") == path.format("projects/p-1/locations/eu") + ":verb"
    assert place.path(f"{BASE}/v1", model, "verb") == path.partition("/v1")[2].partition("/")[2].join(
        ("/", ":verb")
    ).format("projects/p-1/locations/eu")


def test_models_of_other_publishers_are_named_in_the_error() -> None:
    for model in ("meta/llama-4", "publishers/mistralai/models/m", "google/../x"):
        with pytest.raises(NotFoundError, match="google and anthropic are served"):
            dialect_of_model(model)
