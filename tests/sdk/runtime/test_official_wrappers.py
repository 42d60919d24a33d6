"""Wrappers around methods of other classes, bound to an object and a function of ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from specclient.runtime.official_wrappers import call_through, wrapper_around

wrapt = pytest.importorskip("wrapt", reason="the libraries whose wrappers are meant use it")


def _noting(name: str, seen: list[Any]) -> Callable[..., Any]:
    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        seen.append((name, wrapped.__name__, instance, args, kwargs))
        return wrapped(*args, **{**kwargs, name: True})

    return wrapper


class Ours:
    def ask(self, *args: Any, **kwargs: Any) -> Any:
        return "ours", args, kwargs


@pytest.fixture
def theirs() -> type:
    class Theirs:
        def create(self, *args: Any, **kwargs: Any) -> Any:
            return "theirs", self, args, kwargs

        def request(self) -> None: ...

    return Theirs


def test_a_plain_or_decorated_method_has_no_wrapper(theirs: Any) -> None:
    assert wrapper_around(theirs, "create") is None
    assert wrapper_around(theirs, "absent") is None
    original = theirs.create
    theirs.create = functools.wraps(original)(lambda *args, **kwargs: original(*args, **kwargs))
    assert wrapper_around(theirs, "create") is None


def test_the_wrapper_of_a_base_class_is_found(theirs: Any) -> None:
    wrapt.wrap_function_wrapper(theirs, "create", _noting("first", []))

    class Derived(theirs):  # type: ignore[misc]
        pass

    assert wrapper_around(Derived, "create") is vars(theirs)["create"]


def test_all_wrappers_see_our_object_and_arguments_and_call_our_function(theirs: Any) -> None:
    seen: list[Any] = []
    for name in ("first", "second"):
        wrapt.wrap_function_wrapper(theirs, "create", _noting(name, seen))
    ours = Ours()
    found = call_through(wrapper_around(theirs, "create"), ours, ours.ask, 3, policy="fast")
    assert found == ("ours", (3,), {"policy": "fast", "first": True, "second": True})
    assert seen == [
        ("second", "ask", ours, (3,), {"policy": "fast"}),
        ("first", "ask", ours, (3,), {"policy": "fast", "second": True}),
    ]


def test_the_official_method_stays_as_it_is(theirs: Any) -> None:
    wrapt.wrap_function_wrapper(theirs, "create", _noting("first", []))
    call_through(wrapper_around(theirs, "create"), Ours(), Ours().ask)
    original = theirs()
    assert original.create(1) == ("theirs", original, (1,), {"first": True})


def test_a_wrapper_that_is_switched_off_is_passed_by(theirs: Any) -> None:
    seen: list[Any] = []
    wrapper = wrapt.decorator(_noting("first", seen), enabled=lambda: False)
    theirs.create = wrapper(vars(theirs)["create"])
    if (found := wrapper_around(theirs, "create")) is not None:
        assert call_through(found, Ours(), Ours().ask, 1) == ("ours", (1,), {})
    assert seen == []
