"""Checks of parameters that an endpoint does not accept together with a predicted output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specclient.errors import UnsupportedParameterError
from specclient.providers.endpoint import Endpoint
from specclient.providers.unsupported import drops, is_requested, refuse_unsupported
from specclient.types.request import Request

#: Parameters that OpenAI rejects together with ``prediction`` ("Predicted Outputs"; Azure lists the same).
OPENAI_CONFLICTS = (
    "n",
    "logprobs",
    "presence_penalty",
    "frequency_penalty",
    "audio",
    "modalities",
    "max_completion_tokens",
    "tools",
)
_TAKE_PREDICTIONS = (
    "models of openai, azure, mistral, fireworks, cerebras, openrouter and specclient serve do"
)
_PENALTIES = ("presence_penalty", "frequency_penalty")
_WAYS_OUT = {"max_completion_tokens": "pass max_tokens in its place"}


def conflicting_params(request: Request, names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that a request, or its ``extra_body``, sets to non-default values."""
    given = {**request.params, **request.options.body}
    return [name for name in names if _conflicts(name, given.get(name))]


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
        refuse_unsupported(request, endpoint, ("prediction",), why=_TAKE_PREDICTIONS)
    elif found := conflicting_params(request, known.prediction_conflicts):
        if not drops(request, endpoint):
            raise refusal(f"provider {endpoint.name!r}", found)
    else:
        return dict(body)
    return {name: value for name, value in body.items() if name != "prediction"}


def _conflicts(name: str, value: Any) -> bool:
    """Return whether a parameter conflicts with a prediction. Penalties conflict only above 0."""
    lowered = name in _PENALTIES and isinstance(value, int | float) and value <= 0
    return not lowered and is_requested(name, value)
