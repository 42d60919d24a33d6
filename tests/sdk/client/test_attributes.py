"""Attributes of clients and resources that mocks and integrations of the `openai` package read."""

from __future__ import annotations

import gc
import weakref
from typing import Any
from unittest.mock import MagicMock, create_autospec

import httpx
import openai
import pytest

import specclient
from specclient.client.base_client import ClientResource

KEYS = {"api_key": "key", "base_url": "http://localhost:1/v1"}


@pytest.mark.parametrize("name", ["OpenAI", "AsyncOpenAI", "AzureOpenAI"])
def test_a_mock_with_a_client_class_as_its_spec_has_all_resources(name: str) -> None:
    theirs = MagicMock(spec=getattr(openai, name))
    ours = MagicMock(spec=getattr(specclient, name))
    public = [one for one in dir(theirs) if not one.startswith(("_", "assert_", "qs"))]
    assert {one for one in public if not hasattr(ours, one)} <= UNKNOWN
    ours.chat.completions.create.return_value = "answer"
    assert ours.chat.completions.create(model="m", messages=[]) == "answer"
    with pytest.raises(AttributeError):
        ours.nothing_like_it  # noqa: B018


#: Attributes of the `openai` package's clients that are its own plumbing.
UNKNOWN = {"custom_auth", "platform_headers"}


def test_an_autospec_of_a_client_checks_the_arguments_of_its_methods() -> None:
    client = create_autospec(specclient.OpenAI(**KEYS), instance=True)
    client.files.retrieve("file-1")
    client.files.retrieve.assert_called_once_with("file-1")
    with pytest.raises(TypeError):
        client.files.retrieve("file-1", "file-2")


def test_a_class_of_clients_has_its_resources_and_no_others() -> None:
    assert isinstance(specclient.OpenAI.chat, ClientResource)
    assert "vector_stores" in dir(specclient.AsyncOpenAI)
    with pytest.raises(AttributeError, match="'OpenAI' object has no attribute 'nothing_like_it'"):
        specclient.OpenAI(**KEYS).nothing_like_it  # noqa: B018


@pytest.mark.parametrize("client_class", [specclient.OpenAI, specclient.AsyncOpenAI])
def test_every_resource_knows_its_client(client_class: Any) -> None:
    client = client_class(**KEYS)
    for resource in (client.chat.completions, client.files, client.beta.threads.runs):
        assert resource._client is client
    assert client.with_raw_response.files._client is client
    copied = client.with_options(timeout=3)
    assert copied.files._client is copied
    assert client._base_url == client.base_url == httpx.URL("http://localhost:1/v1/")
    client._base_url = "http://localhost:2/v1"
    assert client.base_url == httpx.URL("http://localhost:2/v1/")


@pytest.mark.parametrize("client_class", [specclient.OpenAI, specclient.AsyncOpenAI])
def test_a_resource_without_its_client_has_another_one_over_the_same_core(client_class: Any) -> None:
    client = client_class(**KEYS)
    files, reference, core = client.files, weakref.ref(client), client.core
    del client
    gc.collect()
    assert reference() is None
    assert type(files._client) is client_class
    assert files._client.core is core
    assert files._client.base_url == httpx.URL("http://localhost:1/v1/")


def test_the_http_client_can_be_read_and_replaced() -> None:
    plain = specclient.OpenAI(**KEYS)
    assert isinstance(plain._client, httpx.Client)
    assert plain._client is plain._client
    assert not plain._client.is_closed
    assert plain._client.timeout == plain.timeout
    assert isinstance(specclient.AsyncOpenAI(**KEYS)._client, httpx.AsyncClient)
    with httpx.Client() as given:
        assert specclient.OpenAI(**KEYS, http_client=given)._client is given
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.path)
        return httpx.Response(200, json={"object": "list", "data": []})

    with httpx.Client(transport=httpx.MockTransport(answer)) as other:
        plain._client = other
        assert plain.models.list().data == []
    assert seen == ["/v1/models"]


def test_strict_response_validation_is_accepted() -> None:
    assert specclient.OpenAI(**KEYS)._strict_response_validation is False
    assert specclient.OpenAI(**KEYS, _strict_response_validation=True)._strict_response_validation is True
