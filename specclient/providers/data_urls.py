"""``data:`` URLs, in which OpenAI's messages carry images, files and audio."""

from __future__ import annotations

import base64
from urllib.parse import unquote_to_bytes

from specclient.errors import BadRequestError


def parts_of_data_url(url: str, where: str) -> tuple[str, str]:
    """Return the media type of a ``data:`` URL (RFC 2397), and its data as base64.

    Args:
        url: the URL.
        where: its name in the error message.

    Raises:
        BadRequestError: it is no such URL.
    """
    head, comma, data = url.partition(",")
    if not comma or not head.lower().startswith("data:"):
        raise BadRequestError(f"{where} is not a data: URL; write data:MEDIA/TYPE;base64,…")
    media, *more = head[len("data:") :].split(";")
    if "base64" not in more:
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return media.lower() or "text/plain", data
