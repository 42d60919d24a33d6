"""Turn a client's core into what users see of it: options as attributes, copies, and calls by path."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

from specclient.core import SHARED, Core
from specclient.errors import ConfigurationError
from specclient.providers.encoding import headers_of, json_of
from specclient.resources import tail
from specclient.resources.base import Caller
from specclient.resources.table.index import roots
from specclient.transport.clients import DEFAULT_TIMEOUT, URL
from specclient.types.method import Method
from specclient.types.params import NotGiven
from specclient.types.request import Options, Request

if TYPE_CHECKING:
    from specclient.config import Settings
    from specclient.pipeline import Pipeline


class Surface:
    """What synchronous and asynchronous clients have in common."""

    _core: Core
    _caller: Caller
    #: The class of each hand-shaped resource, by its attribute.
    _resources: ClassVar[Mapping[str, Callable[[Caller], Any]]]
    _is_async: ClassVar[bool]

    def __getattr__(self, name: str) -> Any:
        """Return a resource: hand-shaped, or from the table; made on first use and kept."""
        if name.startswith("_"):
            raise AttributeError(name)
        made = self._resources.get(name)
        found = made(self._caller) if made is not None else self._tail(name)
        self.__dict__[name] = found
        return found

    def _tail(self, name: str) -> Any:
        """Return a resource that the table tells whole."""
        try:
            made = tail.resource(name, is_async=self._is_async)
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None
        return made(self._caller)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._resources, *roots()})

    @property
    def settings(self) -> Settings:
        """The configuration the client was made with."""
        return self._core.settings

    @property
    def pipeline(self) -> Pipeline:
        """What serves the client's requests."""
        return self._core.pipeline

    @property
    def api_key(self) -> str:
        """The key of the default provider; empty where a function gives it."""
        key = self._core.default.key
        return "" if key is None or callable(self._core.options.get("api_key")) else key.get_secret_value()

    @api_key.setter
    def api_key(self, value: Any) -> None:
        self._core.set("api_key", value)

    @property
    def admin_api_key(self) -> str | None:
        """The key of ``client.admin``."""
        key = self._core.default.admin_key
        return None if key is None else key.get_secret_value()

    @admin_api_key.setter
    def admin_api_key(self, value: str | None) -> None:
        self._core.set("admin_api_key", value)

    @property
    def organization(self) -> str | None:
        """Sent as ``OpenAI-Organization``."""
        return self._core.default.organization

    @organization.setter
    def organization(self, value: str | None) -> None:
        self._core.set("organization", value)

    @property
    def project(self) -> str | None:
        """Sent as ``OpenAI-Project``."""
        return self._core.default.project

    @project.setter
    def project(self, value: str | None) -> None:
        self._core.set("project", value)

    @property
    def webhook_secret(self) -> str | None:
        """What webhooks are signed with."""
        return self._core.webhook_secret

    @webhook_secret.setter
    def webhook_secret(self, value: str | None) -> None:
        self._core.set("webhook_secret", value)

    @property
    def base_url(self) -> Any:
        """The URL of the default provider, as an ``httpx.URL``, with a slash at its end."""
        url = self._core.default.base_url
        path, mark, query = url.partition("?")
        return URL(path.rstrip("/") + "/" + mark + query)

    @base_url.setter
    def base_url(self, value: Any) -> None:
        self._core.set("base_url", value)

    @property
    def timeout(self) -> Any:
        """Seconds, or an ``httpx.Timeout``; None waits for ever."""
        return self._core.options.get("timeout", DEFAULT_TIMEOUT)

    @timeout.setter
    def timeout(self, value: Any) -> None:
        self._core.set("timeout", value)

    @property
    def max_retries(self) -> int:
        """Tries after the first."""
        return self._core.max_retries

    @max_retries.setter
    def max_retries(self, value: int) -> None:
        self._core.set("max_retries", value)

    @property
    def default_headers(self) -> dict[str, str]:
        """The headers of every request to the default provider, the key's included."""
        return headers_of(
            self._core.default, Method(name="", verb="POST", path=""), {}, accept="application/json", json_body=True
        )

    @property
    def default_query(self) -> dict[str, Any]:
        """The query of every request to the default provider."""
        return dict(self._core.default.query)

    @property
    def _custom_headers(self) -> Mapping[str, Any]:
        return self._core.options.get("default_headers") or {}

    @property
    def _custom_query(self) -> Mapping[str, object]:
        return self._core.options.get("default_query") or {}

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
        """Return a client with some options changed; connections, engines and ledger are shared with it.

        Args:
            default_headers, default_query: added to this client's.
            set_default_headers, set_default_query: in place of this client's.
            options: any other option of the client but ``config`` and ``ledger``.

        Raises:
            ValueError: where headers, or a query, are both added and set.
            TypeError: for an unknown option.
        """
        changes = {k: v for k, v in {**options, **(_extra_kwargs or {})}.items() if not isinstance(v, NotGiven)}
        changes["default_headers"] = _changed(
            "headers", self._custom_headers, default_headers, set_default_headers
        )
        changes["default_query"] = _changed("query", self._custom_query, default_query, set_default_query)
        if named := SHARED & changes.keys():
            raise ConfigurationError(
                f"{sorted(named)[0]} cannot be changed in a copy, which shares it; make a new client"
            )
        return self._changed({k: v for k, v in changes.items() if v is not None or k == "timeout"})

    with_options = copy

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        raise NotImplementedError

    @property
    def with_raw_response(self) -> Self:
        """This client, its methods returning HTTP responses: ``.headers``, ``.status_code``, ``.parse()``."""
        return self._through(self._caller.raw())

    @property
    def with_streaming_response(self) -> Self:
        """This client, its methods opening contexts of responses whose body is read when it is asked for."""
        streaming = self._caller.streaming()
        view: Self = streaming.view(self._through(streaming))
        return view

    def _through(self, caller: Caller) -> Self:
        seen = copy.copy(self)
        for name in [name for name in seen.__dict__ if not name.startswith("_")]:
            del seen.__dict__[name]  # resources of this client's own caller
        seen._caller = caller
        return seen

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Send a request described by ``options`` (``method``, ``url``, ``json_data``, ``headers``, ``params``)."""
        fields = dict(options) if isinstance(options, Mapping) else options.model_dump()
        verb, path, body = fields.pop("method"), fields.pop("url"), fields.pop("json_data", None)
        return self._send(verb.upper(), path, cast_to, body, fields, stream=stream, stream_cls=stream_cls)

    def get(
        self, path: str, *, cast_to: Any, options: Mapping[str, Any] | None = None, stream: bool = False,
        stream_cls: Any = None,
    ) -> Any:  # fmt: skip
        """Send a GET to a path and return the answer as ``cast_to``."""
        return self._send("GET", path, cast_to, None, options, stream=stream, stream_cls=stream_cls)

    def post(
        self, path: str, *, cast_to: Any, body: Any = None, content: Any = None,
        options: Mapping[str, Any] | None = None, files: Any = None, stream: bool = False,
        stream_cls: Any = None,
    ) -> Any:  # fmt: skip
        """Send a POST to a path and return the answer as ``cast_to``.

        Args:
            path: after the base URL, or a whole URL.
            cast_to: a model class, any type pydantic knows, ``object``, ``str``, ``httpx.Response``, ….
            body: sent as JSON; ``content`` is sent as it is; ``files`` make the request multipart.
            options: ``headers``, ``params``, ``timeout``, ``max_retries``, ``extra_json``, ``idempotency_key``.
            stream: whether to return a stream of events, ``stream_cls`` (``Stream[T]``) saying of what.
        """
        return self._send(
            "POST", path, cast_to, body, options, content=content, files=files, stream=stream, stream_cls=stream_cls
        )  # fmt: skip

    def put(
        self, path: str, *, cast_to: Any, body: Any = None, content: Any = None,
        options: Mapping[str, Any] | None = None, files: Any = None,
    ) -> Any:  # fmt: skip
        """Send a PUT; see :meth:`post`."""
        return self._send("PUT", path, cast_to, body, options, content=content, files=files)

    def patch(
        self, path: str, *, cast_to: Any, body: Any = None, content: Any = None,
        options: Mapping[str, Any] | None = None, files: Any = None,
    ) -> Any:  # fmt: skip
        """Send a PATCH; see :meth:`post`."""
        return self._send("PATCH", path, cast_to, body, options, content=content, files=files)

    def delete(
        self, path: str, *, cast_to: Any, body: Any = None, content: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Send a DELETE; see :meth:`post`."""
        return self._send("DELETE", path, cast_to, body, options, content=content)

    def _send(
        self, verb: str, path: str, cast_to: Any, body: Any, options: Mapping[str, Any] | None, *,
        content: Any = None, files: Any = None, stream: bool = False, stream_cls: Any = None,
    ) -> Any:  # fmt: skip
        chosen = dict(options or {})
        event = next(iter(get_args(stream_cls)), cast_to) if stream else None
        method = Method(
            name=verb.lower(),
            verb=verb,
            path=path,
            gives=None if cast_to is type(None) else cast_to,
            event=event,
            files=frozenset(files or ()),
        )
        fields = body if isinstance(body, Mapping) and verb != "DELETE" else {}
        if content is None and body is not None and not fields:
            content = body if isinstance(body, bytes) else json_of(body)
        return self._caller.call(
            Request(
                method,
                params={**fields, **dict(files or {})},
                content=content,
                stream=stream,
                options=_per_call(chosen),
            )
        )


def _per_call(chosen: Mapping[str, Any]) -> Options:
    key = chosen.get("idempotency_key")
    return Options(
        headers={**({"idempotency-key": key} if key else {}), **(chosen.get("headers") or {})},
        query=chosen.get("params") or {},
        body=chosen.get("extra_json") or {},
        timeout=chosen.get("timeout"),
        max_retries=chosen.get("max_retries"),
    )


def _changed(
    what: str, known: Mapping[str, Any], added: Mapping[str, Any] | None, put: Mapping[str, Any] | None
) -> dict[str, Any]:
    if added is not None and put is not None:
        raise ValueError(f"default_{what} and set_default_{what} cannot both be given; choose one")
    return dict(put) if put is not None else {**known, **(added or {})}
