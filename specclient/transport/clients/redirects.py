"""Turn a redirect to another origin into a request without keys; httpx takes out Authorization alone."""

from __future__ import annotations

from typing import Any, Final

#: Under which a request carries the origin that its keys are for; httpx hands it on through redirects.
EXTENSION: Final = "specclient.origin"
_KEYS: Final = ("api-key", "x-api-key", "x-goog-api-key")


def origin(url: Any) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL of httpx's; a port that the scheme implies is None."""
    return url.scheme, url.host, url.port


def drop_keys_on_redirect(client: Any, *, is_async: bool) -> None:
    """Have a client ask :func:`_drop_keys` about each request it sends; safe to call twice.

    Args:
        client: of httpx or httpx2; a user's own sends its other requests as before.
    """
    hook = _adrop_keys if is_async else _drop_keys
    hooks = client.event_hooks["request"]
    if hook not in hooks:
        hooks.append(hook)


def _drop_keys(request: Any) -> None:
    meant = request.extensions.get(EXTENSION)
    if meant is None:
        return
    if request.url.userinfo:  # httpx has made its header of it; aiohttp would refuse to have both
        request.url = request.url.copy_with(userinfo=b"")
    if meant != origin(request.url):
        for name in _KEYS:
            request.headers.pop(name, None)


async def _adrop_keys(request: Any) -> None:
    _drop_keys(request)
