"""Turn what an endpoint cannot express into an error that names it, or into nothing where that is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specclient.errors import UnsupportedParameterError
from specclient.providers.endpoint import Endpoint
from specclient.types.request import Request

#: Values that ask for what happens anyway.
_USUAL: Mapping[str, Any] = {
    "frequency_penalty": 0,
    "logprobs": False,
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
    """Tell whether a parameter asks for anything: not as null, as its default, or as an empty collection."""
    if value is None or (name in _USUAL and value == _USUAL[name]):
        return False
    return value not in ([], {}) or name == _MEANT_EMPTY


def drops(request: Request, endpoint: Endpoint) -> bool:
    """Tell whether what ``endpoint`` cannot express is left out: the call's own word, else the endpoint's."""
    chosen = request.options.drop_params
    return endpoint.drop_params if chosen is None else chosen


def refuse_unsupported(request: Request, endpoint: Endpoint, names: Iterable[str], *, why: str = "") -> None:
    """Refuse the parameters of these names; do nothing where they are to be dropped, or where there are none.

    Args:
        names: as the caller wrote them.
        why: what the caller can do instead, or what is wrong with the values; a clause without a full stop.

    Raises:
        UnsupportedParameterError: naming the provider, the parameters and the way out.
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
