"""Virtual modules for the module paths of the OpenAI client's types, made on first import.

For example, ``specclient.types.responses.response_output_text`` has names from a module with another name
here, and the names in ``specclient.types.beta.threads`` are open classes. Neither module is a file.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, Union, cast

from specclient.openai_api.homes import DEEP, HOMES, RENAMED
from specclient.openai_api.names import CHOICES, LISTS, MAPPINGS, MODULES, PACKAGES, WORDS
from specclient.types.open import open_class, open_union

_ROOT = __name__.rpartition(".")[0]
_WORDS, _LISTS, _MAPPINGS, _CHOICES = (
    frozenset(names.split()) for names in (WORDS, LISTS, MAPPINGS, CHOICES)
)

#: Members of unions that are no types of OpenAI's.
_PLAIN: Final = {"str": str, "None": None}


def names_of(package: str) -> list[str]:
    """Return the public names of a package in ``specclient.types``, such as ``chat`` or ``beta.threads``."""
    return PACKAGES[package].split()


def find(package: str, name: str) -> Any:
    """Return the type with a public name of a package: a declared type, or an open one.

    Raises:
        AttributeError: the OpenAI client has no such name.
    """
    home = _homes(package).get(name)
    if home is not None:
        return vars(importlib.import_module(_join(_ROOT, home)))[name]
    if name in _known(package):
        return _open(_join(package, name))
    if name.endswith(("Param", "Params")) and name[0].isupper():
        return dict[str, Any]
    raise AttributeError(f"module {_join(_ROOT, package)!r} has no attribute {name!r}")


def install() -> None:
    """Install the finder of the virtual modules."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


@functools.cache
def _known(package: str) -> frozenset[str]:
    return frozenset(names_of(package))


@functools.cache
def _homes(package: str) -> dict[str, str]:
    """Return the modules, relative to the root, of a package's declared types, by type name."""
    return {name: home for home, names in HOMES.get(package, {}).items() for name in names.split()}


@functools.cache
def _deep(package: str) -> dict[str, str]:
    """Return the virtual modules of a package, each with the file module that has its names, or ``""``."""
    homes = {module: home for home, modules in DEEP.get(package, {}).items() for module in modules.split()}
    others = MODULES.get(package, "").split()
    return dict.fromkeys([*map(_snake, names_of(package)), *others], "") | homes


def _snake(name: str) -> str:
    """Return the OpenAI client's module of a name: ``images_response`` for ``ImagesResponse``."""
    name = name.replace("ChatKit", "Chatkit")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _open(path: str) -> Any:
    if path in _WORDS:
        return str
    if path in _LISTS:
        return list[Any]
    if path in _MAPPINGS:
        return dict[str, Any]
    return _union(path) if path in _CHOICES else open_class(path)


def _union(path: str) -> Any:
    """Return a union with a class: of open ones by their discriminator, or of any types without one."""
    others = importlib.import_module("specclient.openai_api.unions").OTHERS
    if path not in others:
        return open_union(path)
    return cast("Any", Union)[tuple(map(_member, others[path].split()))]


def _member(path: str) -> Any:
    if path in _PLAIN:
        return _PLAIN[path]
    package, _, name = path.rpartition(".")
    if package in PACKAGES:
        return find(package, name)
    outer, _, module = package.rpartition(".")
    return _find_deep(outer, module, name)


def _find_deep(package: str, module: str, name: str) -> Any:
    """Return the type with a name in a virtual module; a nested type of an open type is an open class."""
    ours = RENAMED.get(_join(package, module), {}).get(name, name)
    home = _deep(package).get(module)
    if home:
        found = vars(importlib.import_module(_join(_ROOT, home))).get(ours)
        if found is not None:
            return found
    try:
        return find(package, name)
    except AttributeError:
        if not name[:1].isupper():
            raise
    return (
        dict[str, Any] if module.endswith(("_param", "_params")) else open_class(_join(package, module, name))
    )


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


class _Finder(MetaPathFinder, Loader):
    """Finds and makes the virtual modules. Python finds modules that are files first."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # part of the protocol
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if not fullname.startswith(_ROOT + "."):
            return None
        place = fullname.removeprefix(_ROOT + ".")
        package, _, module = place.rpartition(".")
        if place in PACKAGES:
            return ModuleSpec(fullname, self, is_package=True)
        if package in PACKAGES and (module in _deep(package) or module.endswith(("_param", "_params"))):
            return ModuleSpec(fullname, self)
        return None

    def exec_module(self, module: ModuleType) -> None:
        place = module.__name__.removeprefix(_ROOT + ".")
        package, _, deep = place.rpartition(".")
        if place in PACKAGES:
            module.__doc__ = f"OpenAI's types ``{place}``."
            vars(module)["__all__"] = names_of(place)
            vars(module)["__getattr__"] = functools.partial(find, place)
        else:
            module.__doc__ = f"OpenAI's types of ``{place}``."
            vars(module)["__getattr__"] = functools.partial(_find_deep, package, deep)
