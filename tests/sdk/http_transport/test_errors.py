"""The exceptions by which an HTTP attempt fails, while libraries are being imported."""

from __future__ import annotations

import sys
from types import ModuleType

import aiohttp
import httpx
import pytest

from specclient.http_transport.errors import transport_exceptions


def test_the_exceptions_are_those_of_the_libraries_that_are_imported() -> None:
    assert transport_exceptions("httpx") == (OSError, httpx.HTTPError, httpx.StreamError, aiohttp.ClientError)


@pytest.mark.parametrize("library", ["httpx", "aiohttp"])
def test_a_library_that_another_thread_is_importing_has_no_exceptions_yet(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, ModuleType(library))
    left = {"httpx": (aiohttp.ClientError,), "aiohttp": (httpx.HTTPError, httpx.StreamError)}[library]
    assert transport_exceptions("httpx") == (OSError, *left)
