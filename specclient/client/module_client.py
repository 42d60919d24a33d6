"""Turn the settings of the module itself into a client: ``specclient.api_key = …``, ``specclient.chat…``."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from specclient.client.sync_client import OpenAI
from specclient.errors import OpenAIError

#: The options that stand on the module.
OPENAI_OPTIONS: Final = (
    "api_key",
    "admin_api_key",
    "organization",
    "project",
    "webhook_secret",
    "base_url",
    "timeout",
    "max_retries",
    "default_headers",
    "default_query",
    "http_client",
)
AZURE_OPTIONS: Final = ("api_version", "azure_endpoint", "azure_ad_token", "azure_ad_token_provider")
API_TYPES: Final = (None, "openai", "azure")

_lock = threading.Lock()
_made: tuple[dict[str, Any], OpenAI] | None = None


def resource(name: str, module: Mapping[str, Any]) -> Any:
    """Return a resource of the client that the module's settings describe.

    Args:
        module: the module's own names. Settings that change give a new client from the next use on.

    Raises:
        OpenAIError: for an ``api_type`` that there is none of.
    """
    return getattr(_client(module), name)


def reset() -> None:
    """Forget the client, so that the next use makes a new one."""
    global _made  # noqa: PLW0603 - what belongs to the module belongs to the process
    with _lock:
        _made = None


def _client(module: Mapping[str, Any]) -> OpenAI:
    global _made  # noqa: PLW0603 - as above
    chosen = {name: module.get(name) for name in (*OPENAI_OPTIONS, *AZURE_OPTIONS, "api_type")}
    with _lock:
        if _made is None or _made[0] != chosen:
            _made = chosen, _new(chosen)
        return _made[1]


def _new(chosen: Mapping[str, Any]) -> OpenAI:
    kind = chosen["api_type"] or os.environ.get("OPENAI_API_TYPE") or _guessed(chosen)
    if kind not in API_TYPES:
        raise OpenAIError(f"api_type is {kind!r}; it must be 'openai' or 'azure'")
    names = OPENAI_OPTIONS if kind != "azure" else (*OPENAI_OPTIONS, *AZURE_OPTIONS)
    options = {name: chosen[name] for name in names if chosen[name] is not None}
    if kind == "azure":
        from specclient.client.azure import AzureOpenAI  # noqa: PLC0415 - for those who use it

        return AzureOpenAI(**options)
    return OpenAI(**options)


def _guessed(chosen: Mapping[str, Any]) -> str:
    """Return whose settings are there: Azure's where only Azure's are."""
    openai = chosen["api_key"] or os.environ.get("OPENAI_API_KEY")
    azure = (
        chosen["azure_endpoint"]
        or chosen["azure_ad_token"]
        or chosen["azure_ad_token_provider"]
        or os.environ.get("AZURE_OPENAI_API_KEY")
        or os.environ.get("AZURE_OPENAI_AD_TOKEN")
    )
    if openai and azure and not chosen["base_url"]:
        raise OpenAIError(
            "the settings are OpenAI's and Azure's at once; say which are meant by specclient.api_type = "
            "'openai' or 'azure', or by the OPENAI_API_TYPE environment variable"
        )
    return "azure" if azure and not openai else "openai"
