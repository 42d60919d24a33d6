"""Instrumentation of the `openai` package: clients that any library makes later use the pipeline.

What is changed: ``__init__`` of the classes ``openai.OpenAI`` and ``openai.AsyncOpenAI``, and nothing else.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, Unpack

from specclient.client.base_client import BaseClient
from specclient.client.options import ClientOptions
from specclient.client.sync_client import OpenAI
from specclient.official_client.clients import openai_package
from specclient.official_client.records import CallListener
from specclient.official_client.transport import AsyncPipelineTransport, PipelineTransport, checked_client


class _Instrumentation:
    """The clients that are made while the instrumentation is in force.

    Args:
        client: its pipeline serves their calls.
        on_call, strict: see :func:`specclient.transport`.
        retries_of_caller: whether each client's own ``max_retries`` applies.
    """

    def __init__(
        self, client: BaseClient, on_call: CallListener | None, *, strict: bool, retries_of_caller: bool
    ) -> None:
        self._client, self._on_call, self._strict = client, on_call, strict
        self._retries_of_caller = retries_of_caller

    def http_client(self, openai: Any, kwargs: dict[str, Any], *, is_async: bool) -> Any:
        """Return the HTTP client for an official client."""
        retries = kwargs.get("max_retries", openai.DEFAULT_MAX_RETRIES) if self._retries_of_caller else None
        if is_async:
            made = AsyncPipelineTransport(
                self._client, on_call=self._on_call, strict=self._strict, max_retries=retries
            )
            return openai.DefaultAsyncHttpxClient(transport=made)
        transport = PipelineTransport(
            self._client, on_call=self._on_call, strict=self._strict, max_retries=retries
        )
        return openai.DefaultHttpxClient(transport=transport)


_lock = threading.Lock()
_current: _Instrumentation | None = None
#: The functions that replaced ``__init__``, and those that they replaced, by class name.
_replaced: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {}
_made: weakref.WeakSet[Any] = weakref.WeakSet()


def instrument(
    *,
    client: BaseClient | None = None,
    on_call: CallListener | None = None,
    strict: bool = False,
    **options: Unpack[ClientOptions],
) -> None:
    """Let official clients that are made from now on, by any library, send their calls through the pipeline.

    It replaces ``__init__`` of ``openai.OpenAI`` and ``openai.AsyncOpenAI`` in place, so that it does not
    matter how and when a library has imported the classes. The replacement passes an ``http_client`` with the
    transport of one shared pipeline. Unchanged are clients that exist already, clients that are given an
    ``http_client``, and those of Azure and Bedrock. Each client's own ``max_retries`` applies, unless it is
    an option here. A later call replaces the settings for clients made afterwards.

    Args:
        client, on_call, strict, options: see :func:`specclient.transport`.

    Raises:
        ConfigurationError: an option is invalid, or the `openai` package is not installed.
    """
    global _current  # noqa: PLW0603 - the classes are those of the process, too
    checked_client(client, options)
    openai = openai_package()
    shared = OpenAI(**options) if client is None else client
    made = _Instrumentation(shared, on_call, strict=strict, retries_of_caller="max_retries" not in options)
    with _lock:
        _current = made
        for name, is_async in (("OpenAI", False), ("AsyncOpenAI", True)):
            cls = getattr(openai, name)
            if name not in _replaced:
                original = cls.__init__
                replacement = _replacement(openai, original, is_async=is_async)
                _replaced[name] = (replacement, original)
                cls.__init__ = replacement


def uninstrument() -> None:
    """Take :func:`instrument` back: clients that are made from now on are as without it.

    Clients made meanwhile keep their transport. If another package has replaced ``__init__`` since, its
    function stays, and ours, which it calls, passes calls on unchanged. Without instrumentation this does
    nothing.
    """
    global _current  # noqa: PLW0603 - as above
    with _lock:
        _current = None
        if not _replaced:
            return
        openai = openai_package()
        for name, (replacement, original) in list(_replaced.items()):
            cls = getattr(openai, name)
            if cls.__init__ is replacement:
                cls.__init__ = original
                del _replaced[name]


def _replacement(openai: Any, original: Callable[..., None], *, is_async: bool) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it is one
        current, given = _current, kwargs.get("http_client")
        # A copy (with_options) is given its source's HTTP client, and may have another max_retries.
        if current is not None and not _is_for_cloud(type(self)) and (given is None or given in _made):
            kwargs["http_client"] = made = current.http_client(openai, kwargs, is_async=is_async)
            _made.add(made)
        original(self, *args, **kwargs)

    return __init__


def _is_for_cloud(cls: type) -> bool:
    """Return whether a class is one of Azure or Bedrock, which address or sign requests differently."""
    return any(base.__module__.startswith("openai.lib.") for base in cls.__mro__)
