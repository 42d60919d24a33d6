"""The client behind the module-level API: ``specclient.api_key = …``, ``specclient.chat.completions…``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from specclient.client.sync_client import OpenAI
from specclient.errors import OpenAIError
from specclient.runtime.forks import import_lock

#: Client options that are attributes of the module.
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
BEDROCK_OPTIONS: Final = ("bedrock_token_provider",)
API_TYPES: Final = (None, "openai", "azure", "amazon-bedrock")

#: The options of the current client, and the client.
_current: tuple[dict[str, Any], OpenAI] | None = None


def resource(name: str, module: Mapping[str, Any]) -> Any:
    """Return a resource of the client that the module's options describe.

    Args:
        name: the resource: ``chat``.
        module: the module's global names. A changed option makes a new client on the next use.

    Raises:
        OpenAIError: ``api_type`` is unknown, or the options fit both OpenAI and Azure.
    """
    return getattr(_client(module), name)


def reset() -> None:
    """Forget the client; the next use makes a new one."""
    global _current  # noqa: PLW0603 - one client per process, as the module itself
    with import_lock:
        _current = None


def _client(module: Mapping[str, Any]) -> OpenAI:
    global _current  # noqa: PLW0603 - as above
    chosen = {
        name: module.get(name) for name in (*OPENAI_OPTIONS, *AZURE_OPTIONS, *BEDROCK_OPTIONS, "api_type")
    }
    with import_lock:  # a fork waits for it, so that it is free in the child
        if _current is None or _current[0] != chosen:
            _current = chosen, _new(chosen)
        return _current[1]


def _new(chosen: Mapping[str, Any]) -> OpenAI:
    kind = chosen["api_type"] or os.environ.get("OPENAI_API_TYPE") or _api_type(chosen)
    if kind not in API_TYPES:
        raise OpenAIError(f"api_type is {kind!r}; it must be 'openai', 'azure' or 'amazon-bedrock'")
    own = {"azure": AZURE_OPTIONS, "amazon-bedrock": BEDROCK_OPTIONS}.get(kind, ())
    options = {name: chosen[name] for name in (*OPENAI_OPTIONS, *own) if chosen[name] is not None}
    if kind == "amazon-bedrock":
        from specclient.client.bedrock import BedrockOpenAI  # noqa: PLC0415 - used by few

        options.pop("admin_api_key", None)
        return BedrockOpenAI(**options)
    if kind == "azure":
        from specclient.client.azure import AzureOpenAI  # noqa: PLC0415 - used by few

        return AzureOpenAI(**options)
    return OpenAI(**options)


def _api_type(chosen: Mapping[str, Any]) -> str:
    """Return ``azure`` if only Azure's options are set, else ``openai``.

    Raises:
        OpenAIError: options of both are set.
    """
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
            "the options of both OpenAI and Azure are set; choose one by specclient.api_type = 'openai' or "
            "'azure', or by the OPENAI_API_TYPE environment variable"
        )
    return "azure" if azure and not openai else "openai"
