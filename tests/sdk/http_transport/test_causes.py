"""Request and cause of connection errors are those of the OpenAI client, without keys."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest
from loopback_server import Behaviour, OpenAIServer, broken_stream, hang, raw, reset

import specclient

KEY = "sk-very-secret-key"
ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
HTTP_CLIENTS: dict[str, Callable[[], Any]] = {
    "aiohttp": lambda: None,
    "httpx": httpx.Client,
    "httpx2": httpx2.Client,
}
FAILURES: dict[str, Behaviour] = {
    "reset": reset,
    "closed": raw(),
    "no answer": hang,
    "body broken off": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"),
}


@pytest.fixture(params=HTTP_CLIENTS)
def http_client(request: pytest.FixtureRequest) -> Iterator[Any]:
    client = HTTP_CLIENTS[request.param]()
    yield client
    if client is not None:
        client.close()


def _failure(package: Any, url: str, **options: Any) -> Any:
    """Return the error of a call by a package's client."""
    client = package.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=0.5, **options)
    with client, pytest.raises(package.APIConnectionError) as caught:
        client.chat.completions.create(**ASK)
    return caught.value


def _check_like_openai(error: Any, like: Any) -> None:
    assert type(error).__name__ == type(like).__name__
    assert type(error.__cause__).__name__ == type(like.__cause__).__name__
    assert error.__cause__.request is error.request
    assert (error.request.method, str(error.request.url)) == (like.request.method, str(like.request.url))
    assert error.request.content
    for shown in (error, error.__cause__, error.request.headers, error.request.headers.raw):
        assert KEY not in f"{shown!r} {shown}"
    assert error.__cause__.__traceback__ is None


@pytest.mark.parametrize("kind", FAILURES)
def test_failed_calls_have_the_cause_of_the_openai_client(
    openai_server: OpenAIServer, http_client: Any, kind: str
) -> None:
    openai_server.script(FAILURES[kind], FAILURES[kind])
    like = _failure(openai, openai_server.base_url)
    error = _failure(specclient, openai_server.base_url, http_client=http_client, ledger="off")
    _check_like_openai(error, like)


def test_a_refused_connection_has_the_cause_of_the_openai_client(http_client: Any) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        error = _failure(specclient, url, http_client=http_client, ledger="off")
        _check_like_openai(error, _failure(openai, url))


def test_a_stream_that_breaks_off_has_a_cause(openai_server: OpenAIServer) -> None:
    openai_server.script(broken_stream(b'data: {"choices":[]}\n\n'))
    with specclient.OpenAI(
        base_url=openai_server.base_url, api_key=KEY, max_retries=0, ledger="off"
    ) as client:
        stream = client.chat.completions.create(**ASK, stream=True)
        with pytest.raises(specclient.APIConnectionError) as caught:
            list(stream)
    assert isinstance(caught.value.__cause__, httpx.TransportError)
    assert str(caught.value.request.url) == f"{openai_server.base_url}/chat/completions"


def test_a_retried_call_keeps_the_cause_of_its_last_attempt(openai_server: OpenAIServer) -> None:
    openai_server.script(reset, raw())
    with (
        specclient.OpenAI(
            base_url=openai_server.base_url, api_key=KEY, max_retries=1, ledger="off"
        ) as client,
        pytest.raises(specclient.APIConnectionError) as caught,
    ):
        client.chat.completions.create(**ASK)
    assert isinstance(caught.value.__cause__, httpx.RemoteProtocolError)
