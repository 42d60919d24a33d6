"""The methods of resources that make more than one call, each written once for both clients."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from specclient.resources.signatures import signature_of
from specclient.resources.step_methods import method_from_steps
from specclient.resources.table.index import rows_of
from specclient.types.params import NOT_GIVEN
from specclient.types.request import Request


@dataclass(frozen=True, slots=True)
class CompositeMethod:
    """A method that makes more than one call.

    Attributes:
        module, function: its implementation, relative to ``specclient.resources``.
        kind: ``flow``: a generator of steps (:mod:`.step_methods`); ``plain``: one function for both clients;
            ``stream``: opens a stream for an Assistants handler.
        like: the name of the method in the table whose arguments it takes.
        adds, drops: arguments that it takes in addition, or does not take.
    """

    module: str
    function: str
    kind: str = "flow"
    like: str = ""
    adds: str = ""
    drops: str = ""


_RUN, _THREAD_RUN = "beta.threads.runs.create", "beta.threads.create_and_run"
_OUTPUTS = "beta.threads.runs.submit_tool_outputs"
_POLL, _STREAM = {"adds": "poll_interval_ms", "drops": "stream"}, {"adds": "event_handler", "drops": "stream"}

_SESSION = "beta.agents.sessions.create"

_BEHAVIOURS: Final[Mapping[str, Mapping[str, CompositeMethod]]] = {
    "files": {"wait_for_processing": CompositeMethod("polling", "wait_for_processing")},
    "uploads": {"upload_file_chunked": CompositeMethod("polling", "upload_file_chunked")},
    "vector_stores.files": {
        "poll": CompositeMethod("polling", "poll_file"),
        "create_and_poll": CompositeMethod("polling", "create_and_poll_file"),
        "upload": CompositeMethod("polling", "upload_file"),
        "upload_and_poll": CompositeMethod("polling", "upload_and_poll_file"),
    },
    "vector_stores.file_batches": {
        "poll": CompositeMethod("polling", "poll_batch"),
        "create_and_poll": CompositeMethod("polling", "create_and_poll_batch"),
        "upload_and_poll": CompositeMethod("polling", "upload_and_poll_batch"),
    },
    "videos": {
        "poll": CompositeMethod("polling", "poll_video"),
        "create_and_poll": CompositeMethod(
            "polling", "create_and_poll_video", like="videos.create", adds="poll_interval_ms"
        ),
    },
    "beta.agents.environments.files": {
        "prepare": CompositeMethod("agents.files", "prepare"),
        "prepare_directory": CompositeMethod("agents.files", "prepare_directory"),
        "upload": CompositeMethod("agents.files", "upload"),
    },
    "beta.agents.sessions": {
        "create": CompositeMethod(
            "agents.sessions", "create", like=_SESSION, adds="output_type tool_handlers"
        ),
        "stream": CompositeMethod("agents.sessions", "stream", "plain"),
    },
    "beta.agents.sessions.artifacts": {
        "for_result": CompositeMethod("agents.artifacts", "for_result", "plain")
    },
    "beta.threads": {
        "create_and_run_poll": CompositeMethod(
            "polling", "create_thread_and_poll", like=_THREAD_RUN, **_POLL
        ),
        "create_and_run_stream": CompositeMethod(
            "assistants", "create_and_run", "stream", like=_THREAD_RUN, **_STREAM
        ),
    },
    "beta.threads.runs": {
        "poll": CompositeMethod("polling", "poll_run"),
        "create_and_poll": CompositeMethod("polling", "create_and_poll_run", like=_RUN, **_POLL),
        "submit_tool_outputs_and_poll": CompositeMethod("polling", "submit_and_poll", like=_OUTPUTS, **_POLL),
        "stream": CompositeMethod("assistants", "create", "stream", like=_RUN, **_STREAM),
        "create_and_stream": CompositeMethod(
            "assistants", "create", "stream", like=_RUN, adds="event_handler", drops="stream include"
        ),
        "submit_tool_outputs_stream": CompositeMethod(
            "assistants", "submit_tool_outputs", "stream", like=_OUTPUTS, **_STREAM
        ),
    },
    "webhooks": {
        "unwrap": CompositeMethod("webhooks", "unwrap", "plain"),
        "verify_signature": CompositeMethod("webhooks", "verify_signature", "plain"),
    },
}


def composite_methods_of(resource: str) -> Mapping[str, CompositeMethod]:
    """Return the behaviours of a resource by the names of their methods."""
    return _BEHAVIOURS.get(resource, {})


def bind_method(behaviour: CompositeMethod, *, is_async: bool) -> Callable[..., Any]:
    """Return a behaviour as a method of a resource."""
    if behaviour.kind == "stream":
        method: Callable[..., Any] = _streaming(behaviour.function, is_async=is_async)
    else:
        module = importlib.import_module(f"specclient.resources.{behaviour.module}")
        written = getattr(module, behaviour.function)
        if behaviour.kind == "flow":
            method = method_from_steps(written, is_async=is_async)
        else:
            method = _plain(written)
    if behaviour.like:
        method.__signature__ = _signature(behaviour, method)  # type: ignore[attr-defined]
    return method


def _plain(written: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(written)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return written(self, *args, **kwargs)

    return method


def _streaming(function: str, *, is_async: bool) -> Callable[..., Any]:
    """Return a method that starts a run with another one, and hands its events to a handler."""

    def method(self: Any, *, event_handler: Any = None, **given: Any) -> Any:
        from specclient.resources import assistants  # noqa: PLC0415  # few need it

        send = partial(getattr(self, function), stream=True, **given)
        if is_async:
            handler = event_handler or assistants.AsyncAssistantEventHandler()
            return assistants.AsyncAssistantStreamManager(send, event_handler=handler)
        handler = event_handler or assistants.AssistantEventHandler()
        return assistants.AssistantStreamManager(send, event_handler=handler)

    method.__doc__ = (
        f"Do what ``{function}`` does, and follow the run: a context that gives an event handler, "
        "``event_handler`` or one that only accumulates."
    )
    return method


def _signature(behaviour: CompositeMethod, method: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a method that takes another one's arguments, by keyword."""
    resource, _, name = behaviour.like.rpartition(".")
    dropped = behaviour.drops.split()
    taken = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature_of(rows_of(resource)[name]).parameters.values()
        if parameter.name not in ("self", *dropped)
    ]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=NOT_GIVEN)
        for name in behaviour.adds.split()
    ]
    first = next(iter(inspect.signature(method).parameters.values()))
    return inspect.Signature([first, *taken, *added])


def _session_description(request: Request) -> Request:
    """Send a call's offer as it is, or beside the session's settings as a form of two typed parts."""
    offer = str(request.params["sdp"]).encode()
    if "session" not in request.params and not request.options.body:
        headers = {"Content-Type": "application/sdp", **request.options.headers}
        options = replace(request.options, headers=headers)
        return replace(request, params={}, content=offer, options=options)
    parts: dict[str, Any] = {"sdp": (None, offer, "application/sdp")}
    if "session" in request.params:
        session = json.dumps(request.params["session"], separators=(",", ":"), ensure_ascii=False).encode()
        parts["session"] = (None, session, "application/json")
    return replace(request, method=replace(request.method, files=frozenset(parts)), params=parts)


#: What a request of a row is turned into where its body is neither JSON nor a plain form.
REQUEST_SHAPERS: Final[Mapping[str, Callable[[Request], Request]]] = {
    "realtime.calls.create": _session_description
}
