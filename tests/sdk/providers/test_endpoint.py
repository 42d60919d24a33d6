"""Invalid base URLs and keys raise when an endpoint is made, without showing a secret."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from specclient.errors import ConfigurationError
from specclient.providers import Preset
from specclient.providers.dialects import dialect_of
from specclient.providers.endpoint import Endpoint, checked_base_url
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request
from specclient.types.wire import WireRequest


@pytest.mark.parametrize(
    ("url", "way_out"),
    [
        ("api.openai.com/v1", "'https://api.openai.com/v1'"),
        ("localhost:8000/v1", "'http://localhost:8000/v1'"),
        ("127.0.0.1:8000", "'http://127.0.0.1:8000'"),
        ("", "such as 'https://api.openai.com/v1'"),
        ("/v1", "such as 'https://"),
        ("ftp://host/v1", "such as 'https://"),
        ("http://", "such as 'https://"),
        ("http://host:port/v1", "not a URL"),
        ("http://[::1/v1", "not a URL"),
    ],
)
def test_the_error_of_an_invalid_base_url_suggests_a_valid_one(url: str, way_out: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        checked_base_url(url)
    assert way_out in str(caught.value)
    assert repr(url) in str(caught.value)


@pytest.mark.parametrize("url", ["http://user:hunter2@host/v1", "https://hunter2@host/v1"])
def test_a_password_in_a_base_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="'host' contains a user name or password") as caught:
        checked_base_url(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hun/ter2@host/v1",
        "http://user:hun?ter2@host/v1",
        "http://user:hun#ter2@host/v1",
        "http://user:hun@ter2@host/v1",
        "http://user:a@hun/ter2@host/v1",
        "http://user:[hunter2@host/v1",
        "user:hunter2@host/v1",
        "ftp://user:hunter2@host/v1",
    ],
)
def test_no_part_of_an_unescaped_password_is_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        checked_base_url(url)
    assert "hun" not in str(caught.value)
    assert "ter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://[::1]:8000/v1", "https://host/a/b?c=d", "HTTP://host"])
def test_valid_base_urls_are_stripped_of_blanks(url: str) -> None:
    assert checked_base_url(f" {url}\n") == url


def test_keys_are_stripped_and_an_empty_key_is_none() -> None:
    assert Preset("x", "http://h").endpoint(key=SecretStr(" k\n")).key == SecretStr("k")
    assert Preset("x", "http://h").endpoint(key=SecretStr("  ")).key is None


@pytest.mark.parametrize("key", ["sk-1\nsk-2", "sk-…", "a\0b"])
def test_a_key_that_is_invalid_in_a_header_raises(key: str) -> None:
    with pytest.raises(ConfigurationError, match="key of provider 'x'") as caught:
        Preset("x", "http://h").endpoint(key=SecretStr(key))
    assert key not in str(caught.value)


def test_an_endpoints_repr_shows_no_secret() -> None:
    endpoint = Endpoint(
        name="x",
        base_url="http://h",
        key=SecretStr("sk-secret"),
        headers={"api-key": "sk-secret"},
        query={"key": "sk-secret"},
    )
    assert "sk-secret" not in repr(endpoint)


class Signer:
    """Authorises requests, once it has credentials."""

    def __init__(self, lacks: str | None = None) -> None:
        self.lacks = lacks

    async def __call__(self, request: WireRequest) -> WireRequest:
        return request


def test_an_authorizer_takes_the_place_of_a_key() -> None:
    def cloud(**fields: Any) -> Endpoint:
        return Endpoint(name="c", base_url="http://h", key_required=True, key_env=("C_KEY",), **fields)

    assert (cloud().has_key, cloud().lacks) == (False, "no key: set C_KEY")
    unready = cloud(authorizer=Signer("no credentials: log in"))
    assert (unready.has_key, unready.lacks) == (False, "no credentials: log in")
    ready = cloud(authorizer=Signer())
    assert (ready.has_key, ready.lacks) == (True, None)


def test_requests_are_authorized_unless_they_have_a_key() -> None:
    signer = Signer("tried anyway, as credentials may be on the network")

    def authorize(endpoint: Endpoint, **headers: str) -> Any:
        request = Request(CHAT, "c/m", {"messages": []}, options=PerCallOptions(headers=headers))
        return dialect_of(endpoint).encode(request, endpoint, "m").authorize

    endpoint = Endpoint(name="c", base_url="http://h", key_required=True, authorizer=signer)
    assert authorize(endpoint) is signer
    assert authorize(endpoint, Authorization="Bearer mine") is None
    assert authorize(replace(endpoint, key=SecretStr("k"))) is None
    fresh = authorize(replace(endpoint, key_source=lambda: "k"))
    assert fresh not in (None, signer)
