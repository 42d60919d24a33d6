"""Requests to other hosts are passed on or refused."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import httpx
import openai
import pytest
from loopback_server import OpenAIServer

import specclient

ASK: Any = [{"role": "user", "content": "Say something about foxes."}]
Connect = Callable[..., openai.OpenAI]


def test_another_host_is_passed_on_or_refused(connect: Connect, library: ModuleType) -> None:
    with OpenAIServer() as other:
        client = connect(library, official={"base_url": other.base_url})
        client.chat.completions.create(model="m-large", messages=ASK)
        assert other.requests[-1].headers["authorization"] == "Bearer sk-caller"
        assert other.requests[-1].headers["x-stainless-retry-count"] == "0"
        strict = connect(library, strict=True, official={"base_url": other.base_url})
        with pytest.raises(openai.PermissionDeniedError, match="strict=True") as caught:
            strict.chat.completions.create(model="m-large", messages=ASK)
        assert caught.value.code == "foreign_host"
        assert len(other.requests) == 1


def test_a_given_inner_transport_serves_other_hosts(connect: Connect) -> None:
    inner = httpx.MockTransport(lambda request: httpx.Response(200, text=str(request.url)))
    with httpx.Client(transport=specclient.transport(inner=inner)) as client:
        assert client.get("https://other.test/a").text == "https://other.test/a"
