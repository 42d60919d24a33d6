"""Turn options into a working client: builds the parts of the pipeline and owns their lifetime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from anyio import to_thread

from specclient.config import Settings, load
from specclient.costs.prices import Prices
from specclient.pipeline import Pipeline
from specclient.providers.configured import endpoints
from specclient.resources.chat import AsyncChat
from specclient.resources.completions import AsyncCompletions
from specclient.resources.models import AsyncModels
from specclient.routing.estimates import Estimates
from specclient.routing.places import Places
from specclient.routing.router import Router
from specclient.transport.http import Transport
from specclient.types.call import Call
from specclient.types.route import Policy

if TYPE_CHECKING:
    from specclient.costs.ledger import Ledger
    from specclient.costs.rows import Row


#: Seconds that the end of a program waits for the ledger.
FLUSH_S = 2.0


class ClientOptions(TypedDict, total=False):
    """What a client takes; every option may be left out.

    Those of the OpenAI client: ``api_key``, ``organization``, ``project``, ``base_url``, ``timeout``,
    ``max_retries``, ``default_headers``, ``default_query`` (of the default provider), ``http_client``.

    Ours: ``config`` (a path, or :class:`Settings`; searched for otherwise), ``ledger`` (a path or URL, or
    ``"off"``), ``policy`` and ``candidates`` (of calls with ``model="auto"``).
    """

    api_key: str | None
    organization: str | None
    project: str | None
    base_url: str | None
    timeout: Any
    max_retries: int
    default_headers: Mapping[str, str] | None
    default_query: Mapping[str, object] | None
    http_client: Any
    config: str | Path | Settings | None
    ledger: str | None
    policy: Policy | str | None
    candidates: Sequence[str] | None


class AsyncOpenAI:
    """The asynchronous client; see :class:`ClientOptions`.

    Making one reads the configuration and nothing else: connections, the ledger and the local engine
    are opened by the first call that needs them.

    Raises:
        ConfigurationError: for an option, file or environment variable that cannot be used.
    """

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        unknown = options.keys() - ClientOptions.__annotations__.keys()
        if unknown:
            raise TypeError(
                f"{type(self).__name__}() got an unexpected keyword argument {sorted(unknown)[0]!r}"
            )
        settings = _settings(options)
        prices = Prices(settings)
        places = Places(
            settings,
            endpoints(
                settings,
                os.environ,
                api_key=options.get("api_key"),
                base_url=options.get("base_url"),
                organization=options.get("organization"),
                project=options.get("project"),
                headers=options.get("default_headers"),
                query=options.get("default_query"),
            ),
            settings.default_provider,
            owns_names=options.get("base_url") is not None,
        )
        self.settings = settings
        self._estimates = Estimates(_Past(self))
        router = Router(
            settings,
            places,
            self._estimates,
            prices,
            candidates=options.get("candidates") or settings.candidates,
            policy=_policy(settings, options.get("policy")),
        )
        self._transport = Transport(
            http_client=options.get("http_client"),
            timeout=options.get("timeout"),
            max_retries=options.get("max_retries", 2),
            kind=settings.transport,
        )
        self.pipeline = Pipeline(router, self._transport, prices, (self._account,), prepare=self._open_ledger)
        self.chat = AsyncChat(self.pipeline)
        self.completions = AsyncCompletions(self.pipeline)
        self.models = AsyncModels(self.pipeline)

    @cached_property
    def ledger(self) -> Ledger:
        """The record of every call; the database toolkit is imported when it is first needed."""
        from specclient.costs.ledger import Ledger  # noqa: PLC0415 - keeps `import specclient` light

        return Ledger(self.settings.ledger)

    def _open_ledger(self) -> None:
        """Import what the ledger needs, and refuse a setting that cannot name one."""
        _ = self.ledger

    async def _account(self, call: Call) -> None:
        self._estimates.observe(call)
        await self.ledger.record(call)

    def flush(self) -> None:
        """Write what the ledger still holds; for the end of a program."""
        if "ledger" in self.__dict__:
            self.ledger.flush(FLUSH_S)

    async def close(self) -> None:
        """Close connections, free the local engine and write what the ledger still holds."""
        await self._transport.aclose()
        await self.pipeline.router.places.aclose()
        if "ledger" in self.__dict__:
            await to_thread.run_sync(self.ledger.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _settings(options: ClientOptions) -> Settings:
    config = options.get("config")
    ledger = options.get("ledger")
    if isinstance(config, Settings):
        return config if ledger is None else config.model_copy(update={"ledger": ledger})
    return load(config, ledger=ledger)


def _policy(settings: Settings, policy: Policy | str | None) -> Policy:
    return settings.policy_named(policy) if isinstance(policy, str) else policy or Policy()


class _Past:
    """A client's ledger as its estimates read it: opened when they first ask."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[Row]:
        return self._client.ledger.rows(since, until, limit=limit)
