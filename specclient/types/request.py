"""One call as the pipeline receives it: the method, its parameters and the options of the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specclient.types.api_method import ApiMethod
from specclient.types.cache_options import CacheOptions
from specclient.types.model_aliases import ModelAliases
from specclient.types.permit import RoutePermit
from specclient.types.policy import Policy
from specclient.types.strategy import Strategy

#: The parameters that carry a predicted output; the second is Fireworks'.
PREDICTION_PARAMETERS = ("prediction", "speculation")


@dataclass(frozen=True, slots=True)
class OriginOptions:
    """The part of a call that is meant for one provider alone, such as the caller's own key there.

    Attributes:
        provider: the provider's name. Attempts at any other one do not use these options.
        headers: added to the request; they override those of the endpoint and of the call.
        account: distinguishes the key from others at this provider, each with its own rate limits.
        prepared: what encoders keep for further calls with these options.
    """

    provider: str
    headers: Mapping[str, str | None] = field(repr=False)  # may hold keys
    account: str = ""
    prepared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """The request that the caller wrote in one dialect, of which the call's parameters are a translation.

    Endpoints of that dialect get it as it was written, for as long as the call has the parameters of the
    translation: a strategy or a continued answer that changes them is encoded from the changed ones.

    Attributes:
        dialect: the name of the wire dialect, see :mod:`specclient.providers.dialects`.
        body: the JSON body; its model is replaced by that of the route.
        translation: the parameters that were translated from it, the very object that the call has.
        headers, query: those of the dialect's own (versions, betas).
    """

    dialect: str
    body: Mapping[str, Any] = field(repr=False)
    translation: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenBody:
    """The body of a call as the caller wrote it, for endpoints that would get the same JSON.

    It is sent for as long as the call has the parameters that were read from it, the very objects.

    Attributes:
        content: the JSON.
        model: the model's name in it.
        params, extra: the parameters that were read from it, and the fields of ``extra_body``.
    """

    content: bytes = field(repr=False)
    model: str
    params: Mapping[str, Any] = field(repr=False)
    extra: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PerCallOptions:
    """The options of one call, in addition to the API's parameters.

    Attributes:
        headers, query, body: added to the request; they override the client's values.
        timeout: seconds, or the transport's own timeout object; None for the client's timeout.
        max_retries: None for the client's setting.
        follow_redirects: whether redirects are followed; None for the client's setting.
        drop_params: whether parameters that the endpoint does not support are dropped instead of refused;
            None for the client's setting.
        deadline_s: seconds for all attempts and the waits between them; None for no limit.
        tags: labels that the ledger stores with the call.
        session: the conversation or agent run that the call belongs to; stored with the call.
        permit: the routes that the call and all its sub-calls may be sent to; None for any.
        origin: options for one of the providers that may serve the call; None for none.
        native: the caller's own request, if the parameters are a translation of it; None if they are not.
        written: the caller's own JSON, if the parameters were read from it; None if they were not.
        aliases: aliases of models that precede the configured ones; None for none.
        owner: whose stored responses and conversations the call reads and adds to: an API key's digest at a
            server; empty for the operator, and outside of servers.
        keeps_received: whether the chunks of a stream keep the JSON that they came in, so that it can be sent
            on as it is. Only for calls with a named model and without a strategy: others change chunks.
        cache: how the call uses the response cache; False for not at all, None for the client's setting.
        by_judge: whether the answer judge makes the call; no option or header of a caller sets it.
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
    permit: RoutePermit | None = None
    origin: OriginOptions | None = None
    native: NativeRequest | None = None
    written: WrittenBody | None = None
    aliases: ModelAliases | None = None
    owner: str = ""
    keeps_received: bool = False
    cache: CacheOptions | Literal[False] | None = None
    by_judge: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One call, with the parameters as the caller gave them.

    Attributes:
        method: the method of the API.
        model: ``provider/model``, a name without a provider, or ``auto``; empty if the method has no model.
        params: the API's parameters that were given (``messages`` or ``prompt``, ``temperature``, …), without
            ``model`` and ``stream``.
        path_params: the values of the placeholders in the method's path.
        content: a body to send unchanged instead of ``params``.
        provider: the provider that serves a method without a model; None for the default provider.
        stream: whether the response is streamed.
        policy: the policy of a routed call, or the name of a configured one.
        strategy: the client-side speculation strategy; None leaves speculation to the endpoint.
        options: see :class:`PerCallOptions`.
    """

    method: ApiMethod
    model: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    path_params: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    provider: str | None = None
    stream: bool = False
    policy: Policy | str | None = None
    strategy: Strategy | str | None = None
    options: PerCallOptions = field(default_factory=PerCallOptions)

    @property
    def operation(self) -> str:
        """The name of the method in the ledger: ``chat``, ``completion``, ``embedding``, …"""
        return self.method.operation

    def content_for(self, model: str) -> bytes | None:
        """Return the caller's own JSON if it is what a model's endpoint gets; else None."""
        written = self.options.written
        if (
            written is None
            or written.model != model
            or written.params is not self.params
            or written.extra is not self.options.body
        ):
            return None
        return written.content

    def native(self, dialect: str) -> NativeRequest | None:
        """Return the request that the caller wrote in a dialect; None if there is none, or it was changed."""
        written = self.options.native
        if written is None or written.dialect != dialect or written.translation is not self.params:
            return None
        return written
