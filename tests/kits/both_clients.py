"""Scenarios run with the OpenAI client and with ours, with requests and results as comparable values.

A scenario is written once, as a function of a :class:`Side`. ``side.get`` awaits the results of asynchronous
clients and reads streams to their end, so the same code works for synchronous and asynchronous clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import openai
import pydantic
from loopback_server import Behaviour, OpenAIServer, Received

import specclient

Scenario = Callable[["Side"], Any]

#: Headers that may differ between libraries: those of the connection, and names of the library and platform.
_OWN = re.compile(
    r"host|connection|accept-encoding|content-length|transfer-encoding|user-agent"
    r"|x-stainless-(?!retry-count|helper).*"
)
_BOUNDARY = re.compile(r"boundary=.*")


@dataclass
class Side:
    """One library in one scenario.

    Attributes:
        lib: the library's module, ``openai`` or ``specclient``.
        is_async: whether the clients are asynchronous.
        url: the URL of the server.
        options: options of :attr:`client`, which is created on first use.
        requests: the requests that the server has received.
        runner: runs awaitables of asynchronous clients.
        made: all clients created; :meth:`close` closes them.
    """

    lib: Any
    is_async: bool
    url: str
    options: Mapping[str, Any]
    requests: list[Received]
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    made: list[Any] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        return self.lib is specclient

    @property
    def client(self) -> Any:
        if not self.made:
            self.make(
                **{"api_key": "sk-test-key", "base_url": f"{self.url}/v1", "max_retries": 0, **self.options}
            )
        return self.made[0]

    def make(self, kind: str = "OpenAI", **options: Any) -> Any:
        """Create another client of the library."""
        client = getattr(self.lib, f"Async{kind}" if self.is_async else kind)(**options)
        self.made.append(client)
        return client

    def get(self, value: Any) -> Any:
        """Await a value if it is awaitable; return the items of a stream as a list."""
        value = self.get_unread(value)
        if isinstance(value, self.lib.Stream):
            return list(value)
        return self.items(value) if isinstance(value, self.lib.AsyncStream) else value

    def get_unread(self, value: Any) -> Any:
        """Await a value if it is awaitable; return a stream unread."""
        return self.runner.run(_awaited(value)) if inspect.isawaitable(value) else value

    def items(self, value: Any) -> list[Any]:
        """Return the items of an iterable or asynchronous iterable as a list."""
        if hasattr(value, "__aiter__"):
            return self.runner.run(_drained(value))
        return list(value)

    @contextlib.contextmanager
    def within(self, manager: Any) -> Iterator[Any]:
        """Enter and exit a context manager, synchronous or asynchronous."""
        if not hasattr(manager, "__aenter__"):
            with manager as entered:
                yield entered
            return
        entered = self.runner.run(_awaited(manager.__aenter__()))
        try:
            yield entered
        finally:
            self.runner.run(_awaited(manager.__aexit__(None, None, None)))

    def close(self) -> None:
        for client in self.made:
            self.get(client.close())
        self.runner.close()


async def _awaited(value: Any) -> Any:
    return await value


async def _drained(value: Any) -> list[Any]:
    return [item async for item in value]


@dataclass(frozen=True)
class Happened:
    """The requests that a scenario sent, and its result or error, as plain values."""

    sent: list[dict[str, Any]]
    result: Any
    error: Mapping[str, Any] | None


class Both:
    """Runs scenarios with both libraries; see :meth:`run` and :meth:`same`."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def run(
        self, scenario: Scenario, *answers: Behaviour, hide: tuple[str, ...] = (), **options: Any
    ) -> tuple[Happened, Happened]:
        """Run a scenario with the OpenAI client and with ours, and return both outcomes in this order.

        Args:
            scenario: a function of a :class:`Side`.
            answers: the server's answers, in order.
            hide: headers that are not compared.
            options: options of the scenario's client.
        """
        return (
            self._happened(openai, scenario, answers, hide, options),
            self._happened(specclient, scenario, answers, hide, options),
        )

    def same(
        self, scenario: Scenario, *answers: Behaviour, hide: tuple[str, ...] = (), **options: Any
    ) -> Happened:
        """Check that a scenario has the same outcome with both libraries, and return the OpenAI client's."""
        theirs, ours = self.run(scenario, *answers, hide=hide, **options)
        compare_errors(ours.error, theirs.error)
        assert list(differences(ours.sent, theirs.sent)) == []
        assert list(differences(ours.result, theirs.result)) == []
        return theirs

    def _happened(
        self,
        lib: Any,
        scenario: Scenario,
        answers: tuple[Behaviour, ...],
        hide: tuple[str, ...],
        options: Any,
    ) -> Happened:
        with OpenAIServer() as server:
            server.script(*answers)
            side = Side(lib, self.is_async, server.url, options, server.requests)
            result, error = None, None
            try:
                try:
                    result = plain(scenario(side), server.url)
                except Exception as raised:  # noqa: BLE001 - errors are compared
                    error = error_values(raised, server.url)
            finally:
                side.close()
            return Happened([sent(request, hide) for request in server.requests], result, error)


def compare_errors(ours: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None) -> None:
    """Check that two errors are equivalent to an exception handler; our class may be a subclass."""
    assert (ours is None) == (theirs is None), f"specclient: {ours}; openai: {theirs}"
    if ours is None or theirs is None:
        return
    assert theirs["classes"] <= ours["classes"], f"specclient: {ours}; openai: {theirs}"
    fields = {name: ours["fields"].get(name) for name in theirs["fields"]}
    assert list(differences(fields, theirs["fields"])) == []
    if "response" in theirs["fields"]:  # our text may be longer, with details from a vendor's own field
        assert ours["text"].startswith(theirs["text"])


def differences(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Yield a description of each difference between two values, at the deepest possible path."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for name in sorted({*ours, *theirs}):
            if name not in ours or name not in theirs:
                yield f"{at}.{name} is {'openai' if name in theirs else 'specclient'}'s alone"
            else:
                yield from differences(ours[name], theirs[name], f"{at}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(mine, other, f"{at}[{index}]")
    elif ours != theirs or type(ours) is not type(theirs):
        yield f"{at}: specclient {ours!r:.200}, openai {theirs!r:.200}"


def sent(request: Received, hide: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a request as plain values, without the parts that may differ between libraries."""
    headers = {
        name: _BOUNDARY.sub("boundary=…", value)
        for name, value in request.headers.items()
        if not _OWN.fullmatch(name) and name not in hide
    }
    body: Any = request.body
    if b"boundary=" in request.headers.get("content-type", "").encode():
        boundary = request.headers["content-type"].partition("boundary=")[2].encode()
        body = request.body.replace(boundary, b"...")
    with contextlib.suppress(ValueError):
        body = json.loads(request.body)
    if isinstance(body, dict) and body.get("stream") is False:  # our client omits the default
        del body["stream"]
    if isinstance(body, dict) and body.get("stream"):  # our client always requests a stream's usage
        body = {k: v for k, v in body.items() if k != "stream_options" or v != {"include_usage": True}}
    query = sorted(parse_qsl(request.query, keep_blank_values=True))
    return {
        "method": request.method,
        "path": request.path,
        "query": query,
        "headers": headers,
        "body": body,
    }


def plain(value: Any, url: str) -> Any:
    """Convert a result to comparable values: API objects by class name, dump and the fields that were set."""
    if isinstance(value, pydantic.BaseModel) and not hasattr(value, "to_dict"):
        return value.model_dump(mode="json")  # a model defined by the user
    if isinstance(value, pydantic.BaseModel):
        return {
            "class": type(value).__name__.partition("[")[0],
            "dump": value.model_dump(mode="json", by_alias=True),
            "set": value.to_dict(mode="json"),
            "request_id": getattr(value, "_request_id", None),
        }
    if isinstance(value, Mapping):
        return {name: plain(inner, url) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, url) for inner in value]
    if type(value).__name__ == "Timeout":
        return [None if part is None else float(part) for part in value.as_dict().values()]
    if type(value).__name__ == "URL":
        return str(value).replace(url, "…")
    if isinstance(value, str):
        return value.replace(url, "…")
    if value is None or isinstance(value, bool | int | float | bytes):
        return value
    return type(value).__name__


def error_values(error: BaseException, url: str) -> dict[str, Any]:
    """Convert an error to the values that an exception handler can read from it."""
    names = ("status_code", "code", "param", "type", "body", "request_id")
    fields = {name: plain(getattr(error, name), url) for name in names if hasattr(error, name)}
    response = getattr(error, "response", None)
    if response is not None:
        fields["response"] = (response.status_code, response.headers.get("content-type"), response.text)
        fields["sent"] = (response.request.method, response.request.url.path)
    return {
        "classes": {cls.__name__ for cls in type(error).__mro__ if cls.__name__ != "Generic"},
        "fields": fields,
        "text": str(error),
    }
