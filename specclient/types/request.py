"""One call on its way in: frozen, before and after a route has been chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specclient.types.api_method import ApiMethod
from specclient.types.route import Policy
from specclient.types.strategy import Strategy


@dataclass(frozen=True, slots=True)
class PerCallOptions:
    """What a caller may set for one call beside the API's own parameters.

    Attributes:
        headers, query, body: additions to what is sent; they win over ours.
        timeout: seconds, or the transport's own timeout object; None takes the client's.
        max_retries: None takes the client's.
        follow_redirects: whether redirects are followed; None takes the client's.
        drop_params: whether parameters that the endpoint cannot express are left out instead of refused; None
            takes the client's.
        deadline_s: seconds for all tries and the waits between them; None sets no end.
        tags: labels the ledger keeps with the call.
        session: what the call is a part of (a conversation, an agent's run), kept with it.
    """

    headers: Mapping[str, str | None] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    timeout: Any = None
    max_retries: int | None = None
    follow_redirects: bool | None = None
    drop_params: bool | None = None
    deadline_s: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One call as the caller asked for it.

    Attributes:
        method: of the API.
        model: as given: ``provider/model``, a bare name, or ``auto``; empty where the method runs none.
        params: the API's parameters as given (``messages`` or ``prompt``, ``temperature``, …), without
            ``model`` and ``stream``; never holds a parameter that was not given.
        places: what the placeholders of the method's path stand for.
        content: a body that goes out as it is, in place of ``params``.
        provider: whose endpoint a method without a model goes to; None for the default one.
        stream: whether chunks are wanted.
        policy: for routed calls; a name stands for a policy of the configuration.
        strategy: how speculation is played from this side; None leaves it to the endpoint.
        options: see :class:`PerCallOptions`.
    """

    method: ApiMethod
    model: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    provider: str | None = None
    stream: bool = False
    policy: Policy | str | None = None
    strategy: Strategy | str | None = None
    options: PerCallOptions = field(default_factory=PerCallOptions)

    @property
    def operation(self) -> str:
        """What the ledger calls the method: ``chat``, ``completion``, ``embedding``, …"""
        return self.method.operation
