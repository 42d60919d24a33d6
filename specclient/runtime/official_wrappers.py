"""Wrappers that tracing libraries have put around methods of the `openai` package's classes.

OpenTelemetry's instrumentations, langfuse and others wrap such methods by `wrapt`
(https://wrapt.readthedocs.io/en/master/wrappers.html): the class then has a descriptor in place of the
function. Bound to an object, it calls the library's own function with the wrapped function, the object and
the arguments. Here it is bound to one of our objects and wraps our method, so that our calls are recorded
like those of the official client. Nothing of the `openai` package is imported or changed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


def wrapper_around(kind: type, name: str) -> Any:
    """Return the wrapper around a method of an official class; None if there is none.

    A function that replaces the method is no such wrapper: it calls the original, which needs the original's
    object.

    Args:
        kind: the official class.
        name: the method.
    """
    for base in kind.__mro__:
        if name in vars(base):
            found = vars(base)[name]
            return found if type(found) is not FunctionType and _wraps(found) else None
    return None


def call_through(
    wrapper: Any, instance: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call a function by a wrapper of :func:`wrapper_around`, as the method of an object.

    Args:
        wrapper: the wrapper; others may be inside.
        instance: the object that the wrapper sees.
        function: is called in place of the official method, with the arguments that the wrapper passes on.
        args, kwargs: the arguments of the call.
    """
    bound = innermost = wrapper.__get__(instance, type(instance))  # a new object for each call
    while _wraps(innermost.__wrapped__):
        innermost = innermost.__wrapped__
    innermost.__wrapped__ = function
    return bound(*args, **kwargs)


def _wraps(found: Any) -> bool:
    """Return whether an object is a proxy of another one, which a decorated function is not."""
    return hasattr(type(found), "__wrapped__")
