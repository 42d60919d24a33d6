"""The classes of resources by the `openai` package's module paths: ``beta.threads.runs`` has ``Runs``."""

from __future__ import annotations

import functools
from typing import Any

from specclient.openai_api.resource_modules import RESOURCES
from specclient.resources.resource_classes import class_of

_ROOT = __name__.rpartition(".")[0]
#: The ends of names of classes that `openai` has for other forms of results. Here, one class has all forms.
_FORMS = ("WithRawResponse", "WithStreamingResponse")


@functools.cache
def modules() -> frozenset[str]:
    """Return the modules and packages of ``openai.resources``, relative to it."""
    paths = [module.split(".") for module in RESOURCES]
    return frozenset(".".join(path[:count]) for path in paths for count in range(1, len(path) + 1))


def find(module: str, name: str) -> Any:
    """Return the class with a name in a module or a package of ``openai.resources``.

    Args:
        module: relative to ``openai.resources``, and empty for itself.
        name: ``Runs``, ``AsyncRuns`` or ``RunsWithRawResponse``.

    Raises:
        AttributeError: `openai` has no such class there.
    """
    for end in _FORMS:
        name = name.removesuffix(end)
    bare = name.removeprefix("Async")
    try:
        return class_of(_named_in(module)[bare], is_async=name != bare)
    except KeyError:
        place = f"{_ROOT}.{module}".rstrip(".")
        raise AttributeError(f"module {place!r} has no attribute {name!r}") from None


@functools.cache
def _named_in(module: str) -> dict[str, str]:
    """Return the resources of a module by class name; of a package, those that are directly in it."""
    if module in RESOURCES:
        resource, name = RESOURCES[module].split()
        return {name: resource}
    inside = [one for one in RESOURCES if not module or one.startswith(f"{module}.")]
    depth = module.count(".") + bool(module)
    named: dict[str, str] = {}
    for one in sorted(inside, key=lambda path: path.count("."), reverse=True):
        parts = one.split(".")[depth:]
        if len(parts) == 1 or (len(parts) == 2 and parts[0] == parts[1]):
            resource, name = RESOURCES[one].split()
            named[name] = resource
    return named
