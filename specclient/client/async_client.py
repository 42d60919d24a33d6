"""The asynchronous client, `AsyncOpenAI`."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from specclient.client.base_client import BaseClient, with_resources
from specclient.client.core import ClientCore
from specclient.client.options import ClientOptions, checked_options, with_option_names
from specclient.resources.callers import AsyncCaller
from specclient.runtime.event_loop import check_asyncio
from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    from specclient.resources.beta import AsyncBeta
    from specclient.resources.chat import AsyncChat
    from specclient.resources.completions import AsyncCompletions
    from specclient.resources.costs import AsyncCosts
    from specclient.resources.embeddings import AsyncEmbeddings
    from specclient.resources.models import AsyncModels
    from specclient.resources.moderations import AsyncModerations
    from specclient.resources.responses import AsyncResponses


@with_resources
class AsyncOpenAI(BaseClient):
    """The asynchronous client; its options are :class:`specclient.client.options.ClientOptions`.

    The constructor reads the configuration only. Connections, the ledger and the local engine are opened by
    the first call that needs them.

    Raises:
        ConfigurationError: an option, the configuration file or an environment variable is invalid.
        TypeError: an option does not exist.
    """

    beta: AsyncBeta
    chat: AsyncChat
    completions: AsyncCompletions
    embeddings: AsyncEmbeddings
    models: AsyncModels
    moderations: AsyncModerations
    responses: AsyncResponses

    _is_async = True
    official_name = "AsyncOpenAI"

    @with_option_names(ClientOptions)
    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        checked_options(type(self), options)
        self._begin(ClientCore(options))

    def _begin(self, core: ClientCore) -> None:
        self._core = core
        self._caller = AsyncCaller(
            core.pipeline, secret=lambda: core.webhook_secret, client=self._client_source()
        )

    @cached_property
    def costs(self) -> AsyncCosts:
        """Reports on usage and cost of all calls in the ledger, including those of other clients."""
        with import_lock:
            from specclient.resources.costs import AsyncCosts  # noqa: PLC0415 - 1.2 MB that few programs use

        return AsyncCosts(lambda: self.ledger)

    async def close(self) -> None:
        """Close the connections, unload the local engine and write pending ledger rows."""
        check_asyncio()
        await self._core.shared.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
