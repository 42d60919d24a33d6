"""Downloads of public URLs: complete or an error, and each error names the URL."""

from __future__ import annotations

import pytest
from loopback_server import OpenAIServer, broken_stream, reply

from specclient.errors import APIConnectionError
from specclient.http_transport import download as module
from specclient.http_transport.download import download


@pytest.fixture
def server():
    with OpenAIServer() as running:
        yield running


def test_bytes_are_returned_unchanged_and_redirects_are_followed(server: OpenAIServer) -> None:
    server.script(reply(301, b"", {"location": "/there"}), reply(200, b"\x00\xffwhole"))
    assert download(f"{server.url}/here") == b"\x00\xffwhole"
    assert [each.path for each in server.requests] == ["/here", "/there"]
    assert "authorization" not in server.requests[0].headers


def test_errors_name_the_url(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{server.url}/prices.json"
    server.script(reply(404, b"none"), broken_stream(b"half"), reply(200, b"x" * 11))
    with pytest.raises(APIConnectionError, match=f"{url} answered 404"):
        download(url)
    with pytest.raises(APIConnectionError, match=f"{url} could not be fetched"):
        download(url)
    monkeypatch.setattr(module, "_MAX_BYTES", 10)
    with pytest.raises(APIConnectionError, match="longer than 10 bytes"):
        download(url)


@pytest.mark.parametrize("url", ["", "no-url", "ftp://host/x", "http://", "http://[bad"])
def test_invalid_urls_raise(url: str) -> None:
    with pytest.raises(APIConnectionError, match="could not be fetched"):
        download(url)
