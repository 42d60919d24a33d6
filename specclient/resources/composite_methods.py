"""Resource methods that make more than one call, written once for the sync and the async client."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from specclient.resources.signatures import LazySignature, signature_of
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
        like: a method of the endpoint table; this method takes the same arguments.
        adds, drops: names of arguments to add to those of ``like``, or to leave out.
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

_COMPOSITE_METHODS: Final[Mapping[str, Mapping[str, CompositeMethod]]] = {
    "files": {"wait_for_processing": CompositeMethod("polling", "wait_for_processing")},
    "uploads": {"upload_file_chunked": CompositeMethod("chunked_upload", "upload_file_chunked")},
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
        "unwrap": CompositeMethod("webhook_signatures", "unwrap", "plain"),
        "verify_signature": CompositeMethod("webhook_signatures", "verify_signature", "plain"),
    },
}


def composite_methods_of(resource: str) -> Mapping[str, CompositeMethod]:
    """Return the composite methods of a resource by name."""
    return _COMPOSITE_METHODS.get(resource, {})


def bind_method(composite: CompositeMethod, *, is_async: bool) -> Callable[..., Any]:
    """Build the function to set on a resource class."""
    if composite.kind == "stream":
        method: Callable[..., Any] = _streaming(composite.function, is_async=is_async)
    else:
        module = importlib.import_module(f"specclient.resources.{composite.module}")
        implementation = getattr(module, composite.function)
        if composite.kind == "flow":
            method = method_from_steps(implementation, is_async=is_async)
        else:
            method = _plain(implementation)
    if composite.like:
        vars(method)["__signature__"] = LazySignature(lambda: _signature(composite))
    return method


def _plain(implementation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(implementation)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return implementation(self, *args, **kwargs)

    return method


def _streaming(function: str, *, is_async: bool) -> Callable[..., Any]:
    """Return a method that starts a run by calling ``function`` and passes its events to a handler."""

    def method(self: Any, *, event_handler: Any = None, **kwargs: Any) -> Any:
        from specclient.resources import assistants  # noqa: PLC0415  # few need it

        send = partial(getattr(self, function), stream=True, **kwargs)
        if is_async:
            handler = event_handler or assistants.AsyncAssistantEventHandler()
            return assistants.AsyncAssistantStreamManager(send, event_handler=handler)
        handler = event_handler or assistants.AssistantEventHandler()
        return assistants.AssistantStreamManager(send, event_handler=handler)

    method.__doc__ = (
        f"Call ``{function}`` and stream the run: a context manager that yields ``event_handler``, "
        "or by default a handler that only accumulates."
    )
    return method


def _signature(composite: CompositeMethod) -> inspect.Signature:
    """Return the arguments of ``composite.like`` as keyword-only parameters, with additions and omissions."""
    resource, _, name = composite.like.rpartition(".")
    dropped = composite.drops.split()
    taken = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature_of(rows_of(resource)[name]).parameters.values()
        if parameter.name not in ("self", *dropped)
    ]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=NOT_GIVEN)
        for name in composite.adds.split()
    ]
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature([self, *taken, *added])


def _sdp_request(request: Request) -> Request:
    """Send the SDP offer as the body, or, with session settings, as a multipart form of two typed parts."""
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


#: Request converters of endpoints whose body is neither JSON nor a plain form.
REQUEST_SHAPERS: Final[Mapping[str, Callable[[Request], Request]]] = {"realtime.calls.create": _sdp_request}
