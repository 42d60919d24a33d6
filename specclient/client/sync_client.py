"""Turn the asynchronous client into a synchronous one: the same core, on one event loop in the background."""

from __future__ import annotations

import sys
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from specclient.client.base_client import BaseClient
from specclient.client.bridge import Bridge, flush_at_exit
from specclient.client.core import ClientCore
from specclient.client.options import ClientOptions, checked_options
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


class OpenAI(BaseClient):
    """The synchronous client; options as :class:`specclient.client.async_client.AsyncOpenAI`'s."""

    beta: Beta
    chat: Chat
    completions: Completions
    embeddings: Embeddings
    models: Models
    moderations: Moderations
    responses: Responses

    _is_async = False

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        checked_options(type(self), options)
        self._begin(ClientCore(options))

    def _begin(self, core: ClientCore) -> None:
        self._core = core
        self._bridge = Bridge()
        self._caller = SyncCaller(core.pipeline, self._bridge, secret=lambda: core.webhook_secret)
        flush_at_exit(core.shared)

    @cached_property
    def costs(self) -> Costs:
        """What the calls in the ledger used and cost: of this client, and of all that share its ledger."""
        with import_lock:
            from specclient.resources.costs import Costs  # noqa: PLC0415 - only where they are read

        return Costs(lambda: self.ledger)

    def close(self) -> None:
        """Close connections, free the local engine and write what the ledger still holds."""
        if not sys.is_finalizing():  # then the exit has closed everything, and a finalizer calls
            self._bridge.run(self._core.shared.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
