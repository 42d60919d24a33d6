"""Turn the name of a dialect into the dialect: imported when the first endpoint that speaks it is used."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

from specclient.errors import ConfigurationError

if TYPE_CHECKING:
    from specclient.providers.endpoint import Dialect

_HOMES = {
    "openai": "specclient.providers.openai.dialect:OpenAIDialect",
    "anthropic": "specclient.providers.anthropic.dialect:AnthropicDialect",
    "gemini": "specclient.providers.gemini.dialect:GeminiDialect",
}

DIALECTS = tuple(_HOMES)
"""Every language an endpoint can name."""


_SERVED = {"anthropic": frozenset({"chat"}), "gemini": frozenset({"chat", "embedding"})}


def unsupported_operation(name: str, operation: str) -> str | None:
    """Say in words that a dialect has no call of an operation; None where it has.

    Args:
        name: of the dialect; one that is not listed is OpenAI's, with all of them.
        operation: as :class:`specclient.types.api_method.ApiMethod` has it.
    """
    served = _SERVED.get(name)
    if served is None or operation in served:
        return None
    return f"its API is {name.capitalize()}'s, which serves {' and '.join(sorted(served))} alone"


@functools.cache
def dialect(name: str) -> Dialect:
    """Return the dialect of a name.

    Raises:
        ConfigurationError: there is none, with those there are.
    """
    if name not in _HOMES:
        raise ConfigurationError(f"no dialect is named {name!r}; known are {', '.join(DIALECTS)}")
    module, _, found = _HOMES[name].partition(":")
    made: Dialect = getattr(importlib.import_module(module), found)()
    return made
