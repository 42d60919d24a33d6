"""Virtual modules for the module paths of the `openai` package that have no file here.

``specclient._types`` and ``specclient.resources.beta.threads.runs`` are examples. Their names are this
package's own objects, so that ``isinstance`` and replaced methods work through either path. The types have
virtual modules of their own (:mod:`specclient.types.paths`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, cast

_ROOT: Final = "specclient"
_RESOURCES: Final = "resources"


def _paths() -> Mapping[str, Mapping[str, str]]:
    from specclient.runtime.module_names import PATHS  # noqa: PLC0415 - few programs import such modules

    return PATHS


@cache
def homes_of(module: str) -> Mapping[str, tuple[str, str]]:
    """Return, for each name of a module in ``module_names``, our module and our name of it."""
    homes: dict[str, tuple[str, str]] = {}
    for home, names in _paths()[module].items():
        for each in names.split():
            ours, _, theirs = each.partition("=")
            homes[theirs or ours] = (f"{_ROOT}.{home}".rstrip("."), ours)
    return homes


def install() -> None:
    """Install the finder of the virtual modules."""
    if not any(isinstance(finder, _ModulePathFinder) for finder in sys.meta_path):
        sys.meta_path.append(cast("Any", _ModulePathFinder()))


def _find(module: str, name: str) -> Any:
    home = homes_of(module).get(name)
    if home is not None:
        return getattr(importlib.import_module(home[0]), home[1])
    if module == "_module_client" and not name.startswith("_"):
        return getattr(importlib.import_module(_ROOT), name)
    raise AttributeError(f"module {_ROOT}.{module} has no attribute {name!r}")


class _ModulePathFinder:
    """Finds and makes the virtual modules. Python finds modules that are files first.

    It has the methods of ``importlib.abc.MetaPathFinder`` and ``Loader``, which take 10 ms to import.
    """

    @property
    def _loader(self) -> Any:
        return self

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # part of the protocol
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        root, _, place = fullname.partition(".")
        if root != _ROOT:
            return None
        if place.startswith(("_", "lib.")):
            paths = _paths()
            is_package = any(one.startswith(f"{place}.") for one in paths)
            return ModuleSpec(fullname, self._loader, is_package=is_package) if place in paths else None
        if place.startswith(f"{_RESOURCES}."):
            tree = importlib.import_module(f"{_ROOT}.{_RESOURCES}.module_tree")
            if place.removeprefix(f"{_RESOURCES}.") in tree.modules():
                return ModuleSpec(fullname, self._loader, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation of the module object to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Give a virtual module its names, which are looked up on first use."""
        place = module.__name__.partition(".")[2]
        module.__doc__ = f"OpenAI's names of ``{place}``."
        if place in _paths():
            vars(module)["__all__"] = sorted(homes_of(place))
            vars(module)["__getattr__"] = partial(_find, place)
        else:
            tree = importlib.import_module(f"{_ROOT}.{_RESOURCES}.module_tree")
            vars(module)["__getattr__"] = partial(tree.find, place.removeprefix(f"{_RESOURCES}."))
