"""Parameters that an endpoint does not support: refused with an error, or dropped if that is set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specclient.errors import UnsupportedParameterError
from specclient.providers.endpoint import Endpoint
from specclient.types.request import Request

#: Default values, which request nothing.
_USUAL: Mapping[str, Any] = {
    "frequency_penalty": 0,
    "logprobs": False,
    "min_p": 0,
    "modalities": ["text"],
    "n": 1,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "store": False,
    "top_logprobs": 0,
    "verbosity": "medium",
}
_MEANT_EMPTY = "web_search_options"


def is_requested(name: str, value: Any) -> bool:
    """Return whether a parameter has an effect: it is not null, its default, or an empty collection."""
    if value is None or (name in _USUAL and value == _USUAL[name]):
        return False
    return value not in ([], {}) or name == _MEANT_EMPTY


def drops(request: Request, endpoint: Endpoint) -> bool:
    """Return whether unsupported parameters are dropped, by the call's option or else the endpoint's."""
    chosen = request.options.drop_params
    return endpoint.drop_params if chosen is None else chosen


def refuse_unsupported(request: Request, endpoint: Endpoint, names: Iterable[str], *, why: str = "") -> None:
    """Raise an error for unsupported parameters, unless they are dropped or there are none.

    Args:
        request: the request, with its option ``drop_params``.
        endpoint: the endpoint that does not support them.
        names: the parameters as the caller wrote them.
        why: an alternative, or what is wrong with the values; a clause without a full stop.

    Raises:
        UnsupportedParameterError: names the provider, the parameters and how to proceed.
    """
    names = list(names)
    if not names or drops(request, endpoint):
        return
    listed = ", ".join(repr(name) for name in names)
    error = UnsupportedParameterError(
        f"provider {endpoint.name!r} does not take {listed}{f': {why}' if why else ''}; leave "
        f"{'it' if len(names) == 1 else 'them'} out, or pass drop_params=True to have that done"
    )
    error.param = names[0]
    raise error
