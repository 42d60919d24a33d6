"""Removal of API keys from requests that are redirected to another origin.

httpx itself removes only Authorization.
"""

from __future__ import annotations

from typing import Any, Final

#: The extension of a request that holds the origin its keys are for. httpx copies it to redirected requests.
EXTENSION: Final = "specclient.origin"
_KEYS: Final = ("api-key", "x-api-key", "x-goog-api-key")


def origin(url: Any) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an httpx URL. The port is None if it is the scheme's default."""
    return url.scheme, url.host, url.port


def drop_keys_on_redirect(client: Any, *, is_async: bool) -> None:
    """Install a request hook that removes keys from redirected requests; safe to call twice.

    Args:
        client: a client of httpx or httpx2. Requests that a user sends with it directly are not changed.
    """
    hook = _drop_keys_async if is_async else _drop_keys
    hooks = client.event_hooks["request"]
    if hook not in hooks:
        hooks.append(hook)


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
