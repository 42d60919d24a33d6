"""Calls of resources through the wrappers of tracing libraries around the `openai` package's methods.

Such a library wraps methods of resources (``openai.resources.chat.completions.Completions.create``) or the
client's ``request``. Where the program has wrapped one of them, our call goes through the wrapper; see
:mod:`specclient.runtime.official_wrappers`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from specclient.runtime.official_classes import official_namesakes, official_package
from specclient.runtime.official_wrappers import call_through, wrapper_around
from specclient.types.named import named
from specclient.types.params import is_given
from specclient.types.request import Request

F = TypeVar("F", bound=Callable[..., Any])

#: The header by which a caller asks for a raw response, and its values by the form of the result
#: (openai-python, ``src/openai/_constants.py``). A wrapper reads it; it is not sent.
RAW_RESPONSE: Final = "X-Stainless-Raw-Response"
_RAW_FORMS: Final = {"raw": "true", "unread": "stream"}


def traceable(method: F) -> F:
    """Let the wrapper around the official method of the same resource and name see the calls of a method."""
    name = method.__name__

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
            if "openai" in sys.modules and (wrapper := _method_wrapper(type(self), name)) is not None:
                return await _wrapped_call(wrapper, self, method, args, kwargs)
            return await method(self, *args, **kwargs)

    else:

        @functools.wraps(method)
        def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
            if "openai" in sys.modules and (wrapper := _method_wrapper(type(self), name)) is not None:
                return _wrapped_call(wrapper, self, method, args, kwargs)
            return method(self, *args, **kwargs)

    return cast("F", traced)


def _wrapped_call(
    wrapper: Any, resource: Any, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    form = _RAW_FORMS.get(resource.caller.form)
    if form is not None:
        given = kwargs.get("extra_headers")
        kwargs["extra_headers"] = {**(given if is_given(given) and given else {}), RAW_RESPONSE: form}

    @functools.wraps(method)
    def innermost(*args: Any, **kwargs: Any) -> Any:
        if form is not None and (given := kwargs.get("extra_headers")):
            kwargs["extra_headers"] = _without(given, RAW_RESPONSE)
        return method(resource, *args, **kwargs)

    return call_through(wrapper, resource, innermost, *args, **kwargs)


def _without(headers: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in headers.items() if key.lower() != name.lower()}


def _method_wrapper(kind: type, name: str) -> Any:
    """Return the wrapper around a method of the official class of a resource; None if there is none."""
    home = None if official_package() is None else _official_home(kind)
    if home is None:
        return None
    module, class_name = home
    official = getattr(sys.modules.get(module), class_name, None)
    return None if official is None else wrapper_around(official, name)


@functools.cache
def _official_home(kind: type) -> tuple[str, str] | None:
    """Return the official module and the name of the class that corresponds to a class of resources."""
    from specclient.openai_api.resource_modules import RESOURCES  # noqa: PLC0415 - only beside `openai`

    for module, place in RESOURCES.items():
        resource, _, class_name = place.partition(" ")
        if resource == vars(kind).get("resource_name"):
            return f"openai.resources.{module}", f"Async{class_name}" if kind.is_async else class_name  # type: ignore[attr-defined]
    return None


def request_wrapper(client: Callable[[], Any], request: Request) -> Any:
    """Return the wrapper around ``request`` of a client's official class; None if there is none.

    Args:
        client: returns the client whose call it is; None if there is none.
        request: the call. Calls that run no model have no wrapper.
    """
    if "openai" not in sys.modules or not request.method.metered or (owner := client()) is None:
        return None
    found = (wrapper_around(official, "request") for official in official_namesakes(type(owner)))
    return next(found, None)


def wrapped_request(wrapper: Any, client: Any, request: Request, call: Callable[[Request], Any]) -> Any:
    """Serve a call by the wrapper around ``request`` of the official client.

    Args:
        wrapper: see :func:`request_wrapper`.
        client: the client that the wrapper sees.
        request: the call. The wrapper may change its parameters and headers.
        call: serves a request.
    """

    def innermost(cast_to: Any, options: Any, **_: Any) -> Any:  # noqa: ARG001 - as the official method
        return call(_with_options(request, options))

    cast_to, options = _official_type(request), _official_options(request)
    stream_class = getattr(official_package(), "Stream", None)
    given = {"stream": True, "stream_cls": stream_class} if request.stream else {}
    return call_through(wrapper, client, innermost, cast_to, options, **given)


def _official_type(request: Request) -> Any:
    """Return the type of a call's result in the `openai` package; ours if it has none."""
    kind = request.method.response_type
    kind = named(kind) if isinstance(kind, str) else kind
    namesakes = official_namesakes(kind) if hasattr(kind, "official_classes") else []
    return namesakes[0] if namesakes else kind


def _official_options(request: Request) -> Any:
    """Return a call as the options of the official client's ``request``."""
    body = {**({"model": request.model} if request.model else {}), **request.params}
    if request.stream:
        body["stream"] = True
    options: dict[str, Any] = {
        "method": request.method.verb.lower(),
        "url": request.method.path.format_map(request.path_params),
        "json_data": body,
        "headers": dict(request.options.headers),
    }
    models = sys.modules["openai._models"]
    return models.FinalRequestOptions.construct(**options)


def _with_options(request: Request, options: Any) -> Request:
    """Return a call with the parameters and headers of the official client's options."""
    body = dict(options.json_data or {})
    model = body.pop("model", request.model)
    body.pop("stream", None)
    headers = options.headers if is_given(options.headers) else {}
    params = request.params if body == request.params else body  # the very object, see `Request.native`
    return replace(
        request, model=model, params=params, options=replace(request.options, headers=headers or {})
    )
