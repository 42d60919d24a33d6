"""Turn a provider's name into what is known of its endpoint: one frozen row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr

from specclient.errors import ConfigurationError
from specclient.providers.base import Endpoint
from specclient.providers.dialects import DIALECTS
from specclient.types.capabilities import UNKNOWN, Capabilities


@dataclass(frozen=True, slots=True)
class Preset:
    """What is known of a provider before its key is; a row of the table below, or a user's own.

    Attributes:
        name: the part of a model's name before ``/``.
        base_url: of its OpenAI-compatible API; self-hosted servers at their own default port.
        key_env: environment variables that may hold the key, in order.
        dialect: the language it speaks, a key of :data:`DIALECTS`.
        key_header, price_provider, capabilities, key_required, stream_usage: as in
            :class:`specclient.providers.Endpoint`.
    """

    name: str
    base_url: str
    key_env: tuple[str, ...] = ()
    price_provider: str | None = None
    capabilities: Capabilities = UNKNOWN
    key_required: bool = False
    stream_usage: bool = True
    dialect: str = "openai"
    key_header: str = "authorization"

    def key_in(self, environ: Mapping[str, str]) -> SecretStr | None:
        """Return the key that the environment holds, None without one."""
        return next((SecretStr(environ[name]) for name in self.key_env if environ.get(name)), None)

    def endpoint(
        self,
        *,
        key: SecretStr | None = None,
        base_url: str | None = None,
        organization: str | None = None,
        project: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Endpoint:
        """Return the endpoint, at another ``base_url`` where one is given.

        Raises:
            ConfigurationError: for a base URL, key or dialect that cannot be used.
        """
        if self.dialect not in DIALECTS:
            raise ConfigurationError(
                f"provider {self.name!r} names the dialect {self.dialect!r}; known are {', '.join(DIALECTS)}"
            )
        return Endpoint(
            name=self.name,
            base_url=base_url or self.base_url,
            speaks=self.dialect,
            key=key,
            headers=headers or {},
            query=query or {},
            organization=organization,
            project=project,
            key_env=self.key_env,
            key_required=self.key_required,
            stream_usage=self.stream_usage,
            capabilities=self.capabilities,
            key_header=self.key_header,
            price_provider=self.price_provider,
        )


def _hosted(
    name: str,
    base_url: str,
    *key_env: str,
    prices: str | None = None,
    prediction: bool = False,
    stream_usage: bool = True,
) -> Preset:
    return Preset(
        name,
        base_url,
        key_env,
        prices,
        Capabilities(prediction=prediction),
        key_required=True,
        stream_usage=stream_usage,
    )


def _local(name: str, port: int, *key_env: str) -> Preset:
    return Preset(name, f"http://127.0.0.1:{port}/v1", key_env, capabilities=Capabilities(prediction=False))


_GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"

# Base URLs: each vendor's API reference. ``prediction``: OpenAI "Predicted Outputs"; Mistral "Predicted
# outputs"; Fireworks "Using Predicted Outputs"; Cerebras "Predicted Outputs"; OpenRouter's request schema.
# Mistral answers 422 to ``stream_options`` and sends usage with its last chunk unasked.
_ROWS = (
    _hosted("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", prices="openai", prediction=True),
    _hosted("anthropic", "https://api.anthropic.com/v1/", "ANTHROPIC_API_KEY", prices="anthropic"),
    _hosted("gemini", _GEMINI, "GEMINI_API_KEY", "GOOGLE_API_KEY", prices="google"),
    _hosted(
        "mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        prices="mistral",
        prediction=True,
        stream_usage=False,
    ),
    _hosted("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", prices="deepseek"),
    _hosted(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        prices="fireworks",
        prediction=True,
    ),
    _hosted("together", "https://api-inference.together.ai/v1", "TOGETHER_API_KEY", prices="together"),
    _hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", prices="groq"),
    _hosted("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", prices="cerebras", prediction=True),
    _hosted("sambanova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    _hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY", prices="x-ai"),
    _hosted(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        prices="openrouter",
        prediction=True,
    ),
    _local("vllm", 8000, "VLLM_API_KEY"),
    _local("sglang", 30000, "SGLANG_API_KEY"),
    _local("llamacpp", 8080, "LLAMA_API_KEY"),
    _local("lmstudio", 1234, "LMSTUDIO_API_KEY"),
    _local("ollama", 11434, "OLLAMA_API_KEY"),
    _local("mlx", 8080),
    _local("tgi", 3000, "TGI_API_KEY"),
)

PRESETS: Mapping[str, Preset] = MappingProxyType({row.name: row for row in _ROWS})
"""Every provider known by name."""


def preset(name: str) -> Preset:
    """Return the row of ``name``.

    Raises:
        ConfigurationError: for a name that is not in the table, with those that are.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise ConfigurationError(f"no provider is named {name!r}; known are {', '.join(PRESETS)}") from None
