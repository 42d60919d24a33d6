"""Checks of parameters that an endpoint does not accept together with a predicted output."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from specclient.errors import UnsupportedParameterError
from specclient.providers.endpoint import Endpoint
from specclient.providers.openai.quirks import NO_QUIRKS, Quirks, quirks_apply
from specclient.providers.presets.registry import PRESETS
from specclient.providers.unsupported import drops, is_requested, refuse_unsupported
from specclient.types.request import Request

_PENALTIES = ("presence_penalty", "frequency_penalty")
_WAYS_OUT = {"max_completion_tokens": "pass max_tokens in its place"}


def conflicting_params(request: Request, names: Iterable[str], quirks: Quirks = NO_QUIRKS) -> list[str]:
    """Return the parameters, as the caller wrote them, that an endpoint refuses together with a prediction.

    Args:
        request: the request. Default values do not conflict.
        names: the refused parameters by the endpoint's own names (``Capabilities.prediction_conflicts``).
        quirks: the endpoint's, which rename OpenAI's parameters. Those in ``extra_body`` keep their names.
    """
    own = request.options.body
    given = {quirks.renamed.get(name, name): name for name in request.params if name not in own}
    given |= {name: name for name in own}
    values = {**request.params, **own}
    return [given[name] for name in names if name in given and _conflicts(given[name], values[given[name]])]


def refusal(where: str, found: list[str]) -> UnsupportedParameterError:
    """Return the error for a prediction together with the parameters ``found``, which ``where`` rejects."""
    out = "; ".join(_WAYS_OUT[name] for name in found if name in _WAYS_OUT)
    error = UnsupportedParameterError(
        f"{where} refuses 'prediction' together with {', '.join(map(repr, found))}: "
        f"{out + '; or ' if out else ''}leave one of them out, or pass drop_params=True to have the "
        "prediction left out"
    )
    error.param = found[0]
    return error


def checked_prediction_body(body: Mapping[str, Any], request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """Return a body without a prediction that the endpoint is known to refuse.

    If parameters may be dropped, the prediction is dropped, because it does not change the response.

    Raises:
        UnsupportedParameterError: names the provider and the parameters that cannot be combined.
    """
    known = endpoint.capabilities
    if known.prediction is False:
        refuse_unsupported(request, endpoint, ("prediction",), why=_where_accepted())
    else:
        quirks = endpoint.quirks if quirks_apply(request) else NO_QUIRKS
        found = conflicting_params(request, known.prediction_conflicts, quirks)
        if not found:
            return dict(body)
        if not drops(request, endpoint):
            raise refusal(f"provider {endpoint.name!r}", found)
    return {name: value for name, value in body.items() if name != "prediction"}


@functools.cache
def _where_accepted() -> str:
    """Return a clause of an error message with the known providers that accept predictions."""
    *names, last = (row.name for row in PRESETS.values() if row.capabilities.prediction)
    return f"models of {', '.join(names)} and {last} do"


def _conflicts(name: str, value: Any) -> bool:
    """Return whether a parameter conflicts with a prediction. Penalties conflict only above 0."""
    lowered = name in _PENALTIES and isinstance(value, int | float) and value <= 0
    return not lowered and is_requested(name, value)
