"""Responses of the transport before they become objects of an HTTP library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from specclient.types.call import Call

#: Headers that describe the body as it was sent; the body here is decompressed, and may be encoded anew.
_OF_THE_BODY = frozenset(
    {"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"}
)


class TransportHead(NamedTuple):
    """Status and headers of a response."""

    status: int
    headers: list[tuple[str, str]]


class TransportAnswer(NamedTuple):
    """A complete response.

    Attributes:
        head: status and headers.
        content: the body.
        call: the record of the call; None if there is none.
    """

    head: TransportHead
    content: bytes
    call: Call | None


def upstream_headers(
    headers: Iterable[tuple[str, str]], *, without: Mapping[str, str] | Set[str] = frozenset()
) -> list[tuple[str, str]]:
    """Return the headers of an upstream that are passed on.

    Args:
        headers: names and values.
        without: lower-case names to leave out.
    """
    return [
        (name, value)
        for name, value in headers
        if (lower := name.lower()) not in _OF_THE_BODY and lower not in without
    ]


def call_headers(call: Call) -> dict[str, str]:
    """Return the headers that state a call's route and, where known, its cost and acceptance rate."""
    headers = {"x-specclient-route": call.route.chosen}
    if call.cached:
        headers["x-specclient-cache"] = "hit"
    if call.cost.total is not None and call.status != "open":
        headers["x-specclient-cost"] = f"{call.cost.total:f}"
    if call.speculation is not None and call.speculation.acceptance_rate is not None:
        headers["x-specclient-acceptance"] = f"{call.speculation.acceptance_rate:.4f}"
    return {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}
