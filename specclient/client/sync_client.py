"""The synchronous client, `OpenAI`: the asynchronous core, run on one event loop by its callers' threads."""

from __future__ import annotations

import sys
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from specclient.client.background_loop import flush_at_exit
from specclient.client.base_client import BaseClient, with_resources
from specclient.client.bridge import Bridge
from specclient.client.core import ClientCore
from specclient.client.options import ClientOptions, checked_options, with_option_names
from specclient.resources.callers import SyncCaller
from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    from specclient.resources.beta import Beta
    from specclient.resources.chat import Chat
    from specclient.resources.completions import Completions
    from specclient.resources.costs import Costs
    from specclient.resources.embeddings import Embeddings
    from specclient.resources.models import Models
    from specclient.resources.moderations import Moderations
    from specclient.resources.responses import Responses


@with_resources
class OpenAI(BaseClient):
    """The synchronous client; takes the options of :class:`specclient.client.async_client.AsyncOpenAI`."""

    beta: Beta
    chat: Chat
    completions: Completions
    embeddings: Embeddings
    models: Models
    moderations: Moderations
    responses: Responses

    _is_async = False
    official_name = "OpenAI"

    @with_option_names(ClientOptions)
    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        checked_options(type(self), options)
        self._begin(ClientCore(options))

    def _begin(self, core: ClientCore) -> None:
        self._core = core
        self._bridge = Bridge()
        self._caller = SyncCaller(
            core.pipeline, self._bridge, secret=lambda: core.webhook_secret, client=self._client_source()
        )
        flush_at_exit(core.shared)

    @cached_property
    def costs(self) -> Costs:
        """Reports on usage and cost of all calls in the ledger, including those of other clients."""
        with import_lock:
            from specclient.resources.costs import Costs  # noqa: PLC0415 - 1.2 MB that few programs use

        return Costs(lambda: self.ledger)

    def close(self) -> None:
        """Close the connections, unload the local engine and write pending ledger rows."""
        if not sys.is_finalizing():  # called by a finalizer after the exit handlers closed everything
            self._bridge.run(self._core.shared.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
