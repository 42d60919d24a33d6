"""The common part of both clients: resources, and copies with changed options."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from specclient.client.core import ClientCore
from specclient.client.http_methods import HttpMethods
from specclient.client.option_attributes import OptionAttributes
from specclient.client.options import SHARED, checked_options, with_one_credential
from specclient.errors import ConfigurationError
from specclient.resources.base import ResourceCaller
from specclient.resources.resource_classes import class_of, names
from specclient.runtime.official_classes import SeenAsOfficial
from specclient.types.params import is_given

if TYPE_CHECKING:
    from specclient.call.pipeline import Pipeline
    from specclient.config import Settings
    from specclient.ledger.ledger import Ledger
    from specclient.routing.router import Router

Client = TypeVar("Client", bound="BaseClient")


class ClientResource:
    """A resource as an attribute of a client, made on first use.

    Unlike ``functools.cached_property``, it has no lock that a forked process could inherit locked.

    Args:
        name: the attribute.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.__doc__ = f"``client.{name}``."

    def __get__(self, client: BaseClient | None, owner: type) -> Any:
        if client is None:
            return self
        resource = class_of(self._name, is_async=client._is_async)(client._caller)
        client.__dict__[self._name] = resource
        return resource


def with_resources(client_class: type[Client]) -> type[Client]:
    """Add all resources to a class of clients as attributes."""
    for name in names():
        setattr(client_class, name, ClientResource(name))
    return client_class


class BaseClient(SeenAsOfficial, OptionAttributes, HttpMethods):
    """Base class of the synchronous and the asynchronous client."""

    @property
    def settings(self) -> Settings:
        """The configuration the client was made with."""
        return self._core.settings

    @property
    def ledger(self) -> Ledger:
        """The record of every call."""
        return self._core.shared.ledger

    def feedback(self, call_id: str, score: float) -> None:
        """Score the answer of a call, from which ``min_quality`` of policies learns; nothing is sent.

        The score is stored in the ledger, from which all processes that share it learn. A call that is not
        among the client's last 10,000, or was made by another process, is searched in the ledger: that reads
        a file or asks a database, so use ``asyncio.to_thread`` in an event loop.

        Args:
            call_id: ``meta.id`` of the answer.
            score: from 0 to 1, such as a grader's mark; True and False stand for a thumb up or down.

        Raises:
            ConfigurationError: another score, or a call that is unknown, or was not answered.
            LedgerError: the ledger has to be searched and cannot be read.
        """
        self._core.shared.qualities.feedback(call_id, score)

    def is_closed(self) -> bool:
        """Return whether the client is closed. A closed client reopens when it is used."""
        return self._core.closed

    @property
    def core(self) -> ClientCore:
        """The client's options, its pipeline, and the state that it shares with its copies."""
        return self._core

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that serves the client's requests."""
        return self._core.pipeline

    @property
    def router(self) -> Router:
        """The router, which chooses the destination of each request among ``router.destinations``."""
        return self._core.pipeline.router

    def copy(
        self,
        *,
        default_headers: Mapping[str, Any] | None = None,
        set_default_headers: Mapping[str, Any] | None = None,
        default_query: Mapping[str, object] | None = None,
        set_default_query: Mapping[str, object] | None = None,
        _extra_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Return a client with changed options that shares this client's connections, engines and ledger.

        Args:
            default_headers, default_query: added to those of this client.
            set_default_headers, set_default_query: replace those of this client.
            options: any other client option except ``budgets``, ``config``, ``ledger`` and
                ``ledger_durability``.

        Raises:
            ValueError: both forms of headers, or of the query, are given.
            TypeError: an option does not exist.
            ConfigurationError: an option belongs to the shared state.
        """
        changes = {k: v for k, v in {**options, **(_extra_kwargs or {})}.items() if is_given(v)}
        changes["default_headers"] = _merged(
            "headers", self._custom_headers, default_headers, set_default_headers
        )
        changes["default_query"] = _merged("query", self._custom_query, default_query, set_default_query)
        if named := SHARED & changes.keys():
            raise ConfigurationError(
                f"{sorted(named)[0]} cannot be changed in a copy, which shares it; make a new client"
            )
        kept = {k: v for k, v in changes.items() if v is not None or k in ("timeout", "max_retries")}
        for name, other in (("base_url", "data_residency"), ("data_residency", "base_url")):
            if name in kept and other not in kept:
                kept[other] = None
        return self._changed(with_one_credential(kept))

    with_options = copy

    def __deepcopy__(self, memo: Any) -> Self:
        """Return a copy that shares this client's connections, which cannot be copied."""
        return self.copy()

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        checked_options(type(self), changes)
        client = type(self).__new__(type(self))
        core = self._core
        client._begin(ClientCore({**core.options, **changes}, endpoint=core.endpoint, source=core))
        return client

    def _begin(self, core: ClientCore) -> None:
        """Set the core and the caller that serves the resources."""
        raise NotImplementedError

    @property
    def with_raw_response(self) -> Self:
        """This client; its methods return HTTP responses: ``.headers``, ``.status_code``, ``.parse()``."""
        return self._through(self._caller.raw())

    @property
    def with_streaming_response(self) -> Self:
        """This client with methods that return context managers of responses with an unread body."""
        streaming = self._caller.streaming()
        view: Self = streaming.view(self._through(streaming))
        return view

    def _client_source(self) -> Callable[[], Any]:
        """Return a function that returns this client or, once it is deleted, a new one with the same core.

        The function holds no reference to this client, so that an unused client is deleted at once.
        """
        reference, kind, core, own = weakref.ref(self), type(self), self._core, dict(vars(self))

        def client() -> Any:
            found = reference()
            if found is None:
                found = kind.__new__(kind)
                vars(found).update(own)
                found._begin(core)
            return found

        return client

    def _through(self, caller: ResourceCaller) -> Self:
        client = copy.copy(self)
        for name in [name for name in client.__dict__ if not name.startswith("_")]:
            del client.__dict__[name]  # cached resources, which use the old caller
        client._caller = caller
        return client


def _merged(
    what: str,
    current: Mapping[str, Any],
    added: Mapping[str, Any] | None,
    replacement: Mapping[str, Any] | None,
) -> dict[str, Any]:
    if added is not None and replacement is not None:
        raise ValueError(f"default_{what} and set_default_{what} cannot both be given; choose one")
    return dict(replacement) if replacement is not None else {**current, **(added or {})}
