"""The modules of ``openai.resources``: the resource of a client that each declares, and its class."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import openai

from openai_sync.literals import source

_ROOT = "openai.resources."


def resource_table() -> dict[str, str]:
    """Return the name of the resource on a client and the name of its class, by module."""
    client = openai.OpenAI(api_key="key", admin_api_key="key", base_url="http://nowhere.invalid")
    return {
        _module_of(type(resource)): f"{path} {type(resource).__name__}"
        for path, resource in _resources(client, "")
    }


def resource_modules() -> str:
    """Return the source of the table of resources by module."""
    return (
        "from __future__ import annotations\n\n"
        "from collections.abc import Mapping\nfrom typing import Final\n\n"
        "#: The name of the resource on a client and the name of its synchronous class, by module.\n"
        f"RESOURCES: Final[Mapping[str, str]] = {source(dict(sorted(resource_table().items())))}\n"
    )


def _module_of(resource_class: type) -> str:
    """Return the module of a class; of one that names its package, the package's module of that name."""
    module = resource_class.__module__
    if hasattr(sys.modules[module], "__path__"):
        module = f"{module}.{module.rpartition('.')[2]}"
    return module.removeprefix(_ROOT)


def _resources(owner: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the resources of a client or a resource with their paths, those within them too."""
    for name in sorted(dir(type(owner))):
        static = inspect.getattr_static(type(owner), name)
        if name.startswith(("_", "with_")) or not isinstance(static, cached_property | property):
            continue
        resource = getattr(owner, name)
        inner = f"{path}.{name}".lstrip(".")
        # A resource from another package is an alias: `beta.chat` is `chat`.
        if type(resource).__module__.startswith(_ROOT + inner.partition(".")[0]):
            yield inner, resource
            yield from _resources(resource, inner)
