"""Official clients whose calls go through the pipeline."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from specclient.client.async_client import AsyncOpenAI
from specclient.client.base_client import BaseClient
from specclient.client.options import OPTION_NAMES
from specclient.client.sync_client import OpenAI
from specclient.errors import ConfigurationError
from specclient.official_client.credentials import NO_KEY
from specclient.official_client.records import CallListener
from specclient.official_client.transport import AsyncPipelineTransport, PipelineTransport, checked_client
from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    import openai

T = TypeVar("T", PipelineTransport, AsyncPipelineTransport)

#: Options of both packages' clients that configure the official one: it sends them with each request.
_OFFICIAL: Final = frozenset(
    {
        "admin_api_key",
        "api_key",
        "default_headers",
        "default_query",
        "organization",
        "project",
        "timeout",
        "webhook_secret",
        "websocket_base_url",
    }
)
#: Options that configure both: where requests go, and how often they are repeated.
_SHARED: Final = frozenset({"base_url", "data_residency", "max_retries"})
_OURS: Final = OPTION_NAMES - _OFFICIAL - _SHARED


def openai_client(
    *,
    client: BaseClient | None = None,
    on_call: CallListener | None = None,
    strict: bool = False,
    inner: Any = None,
    **options: Any,
) -> openai.OpenAI:
    """Return an ``openai.OpenAI`` whose calls go through the pipeline.

    Its base URL is that of the default provider, and its key the provider's from the settings, unless they
    are given. Closing it closes its pipeline, unless ``client`` is given.

    Args:
        client, on_call, strict, inner: see :func:`specclient.transport`.
        options: the options of ``openai.OpenAI`` and of :class:`specclient.OpenAI`. ``max_retries`` is the
            number of attempts that the pipeline makes after the first.

    Raises:
        ConfigurationError: an option is invalid, or the `openai` package is not installed.
    """
    package = openai_package()
    made, chosen = _transport_and_options(
        PipelineTransport, client, options, on_call=on_call, strict=strict, inner=inner
    )
    http_client = package.DefaultHttpxClient(transport=made)
    official: openai.OpenAI = package.OpenAI(http_client=http_client, **chosen)
    return official


def async_openai_client(
    *,
    client: BaseClient | None = None,
    on_call: CallListener | None = None,
    strict: bool = False,
    inner: Any = None,
    **options: Any,
) -> openai.AsyncOpenAI:
    """Return an ``openai.AsyncOpenAI`` whose calls go through the pipeline; see :func:`openai_client`."""
    package = openai_package()
    made, chosen = _transport_and_options(
        AsyncPipelineTransport, client, options, on_call=on_call, strict=strict, inner=inner
    )
    http_client = package.DefaultAsyncHttpxClient(transport=made)
    official: openai.AsyncOpenAI = package.AsyncOpenAI(http_client=http_client, **chosen)
    return official


def openai_package() -> Any:
    """Import the `openai` package.

    Raises:
        ConfigurationError: it is not installed.
    """
    with import_lock:
        try:
            return importlib.import_module("openai")
        except ModuleNotFoundError:
            raise ConfigurationError("the openai package is not installed; pip install openai") from None


def _transport_and_options(
    kind: type[T], client: BaseClient | None, options: Mapping[str, Any], **chosen: Any
) -> tuple[T, dict[str, Any]]:
    """Return the transport of an official client, and that client's other options.

    Args:
        kind: the class of the transport.
        client: see :func:`specclient.transport`.
        options: those of both packages' clients.
        chosen: further options of the transport.
    """
    core = _core(OpenAI if kind is PipelineTransport else AsyncOpenAI, client, options)
    made = kind(core, owned=client is None, max_retries=options.get("max_retries"), **chosen)
    return made, _official(core, options)


def _core(
    kind: type[OpenAI | AsyncOpenAI], client: BaseClient | None, options: Mapping[str, Any]
) -> BaseClient:
    """Return the client whose pipeline serves the calls: the given one, or one made of our options."""
    if options.get("http_client") is not None:
        raise ConfigurationError(
            "http_client cannot be given, because this function makes it; pass specclient.transport() as the "
            "transport of yours instead"
        )
    ours = {name: value for name, value in options.items() if name in _OURS}
    checked_client(client, ours)
    if client is not None:
        return client
    return kind(**ours, **{name: options[name] for name in _SHARED if name in options})


def _official(core: BaseClient, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the official client."""
    official = {name: value for name, value in options.items() if name not in _OURS}
    default = core.core.default
    if official.get("base_url") is None and official.get("data_residency") is None:
        if default.lacks is not None and "{" in default.base_url:
            raise ConfigurationError(f"the default provider {default.name!r} has {default.lacks}")
        official["base_url"] = default.base_url
    if official.get("api_key") is None:
        own = default.key
        official["api_key"] = NO_KEY if own is None else own.get_secret_value()
    return official
