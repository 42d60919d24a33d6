"""Hooks of httpx clients for redirects: removal of API keys, and a limit on the bodies of redirects.

httpx itself removes only Authorization from requests to another origin, and reads bodies without a limit.
"""

from __future__ import annotations

from typing import Any, Final

from specclient.http_transport.clients import decoding

#: The extension of a request that holds the origin its keys are for. httpx copies it to redirected requests.
EXTENSION: Final = "specclient.origin"
_KEYS: Final = ("api-key", "x-api-key", "x-goog-api-key")


def origin(url: Any) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an httpx URL. The port is None if it is the scheme's default."""
    return url.scheme, url.host, url.port


def install_hooks(client: Any, *, is_async: bool) -> None:
    """Install the hooks; safe to call twice.

    Args:
        client: a client of httpx or httpx2. Requests that a user sends with it directly are not changed.
    """
    for event, hook in (
        ("request", _drop_keys_async if is_async else _drop_keys),
        ("response", _cut_body_async if is_async else _cut_body),
    ):
        hooks = client.event_hooks[event]
        if hook not in hooks:
            # The limit comes before the user's hooks, which may read the body.
            hooks.insert(0 if event == "response" else len(hooks), hook)


def _drop_keys(request: Any) -> None:
    expected = request.extensions.get(EXTENSION)
    if expected is None:
        return
    if request.url.userinfo:  # httpx has made a header of it, and aiohttp refuses requests with both
        request.url = request.url.copy_with(userinfo=b"")
    if expected != origin(request.url):
        for name in _KEYS:
            request.headers.pop(name, None)


async def _drop_keys_async(request: Any) -> None:
    _drop_keys(request)


def _cut_body(response: Any) -> None:
    _cut(response, is_async=False)


async def _cut_body_async(response: Any) -> None:
    _cut(response, is_async=True)


def _cut(response: Any, *, is_async: bool) -> None:
    if EXTENSION in response.request.extensions:
        library = type(response.request).__module__.partition(".")[0]
        decoding.cut_redirect(response, library, is_async=is_async)
