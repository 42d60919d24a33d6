"""aiohttp, imported without what the connections of this package never use.

`import aiohttp` makes two TLS contexts, one with all of the system's certificates: 2.6 MB and a tenth of its
import time, in a program that speaks plain HTTP to a server of its own, or brings certificates itself, as
`direct.trusted` does. Here they are made when something of them is asked for. It also loads the C++ library
(1 MB), for the compiled twin of a list class that nobody here fills; the list in Python does. Where aiohttp
has been imported before, or is built in another way, nothing changes.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    import ssl

    import aiohttp

__all__ = ["aiohttp"]

_MODULE = "aiohttp.connector"
_MAKER = "_make_ssl_context"
_COMPILED_LIST = "frozenlist._frozenlist"


class _LateContext:
    """Stands in for an ``ssl.SSLContext`` until something of it is asked for."""

    def __init__(self, make: Callable[[], ssl.SSLContext]) -> None:
        self.__dict__["_made"] = functools.cache(make)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # what isinstance() asks
        import ssl  # noqa: PLC0415 - for https alone

        return ssl.SSLContext

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._made(), name, value)


class _Names(MutableMapping[str, Any]):
    """The names of a module while it is run, where calls of ``_MAKER`` give contexts that are made later."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def __getitem__(self, name: str) -> Any:
        found = self._names[name]
        return functools.partial(_late, found) if name == _MAKER else found

    def __setitem__(self, name: str, value: Any) -> None:
        self._names[name] = value

    def __delitem__(self, name: str) -> None:
        del self._names[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _late(make: Callable[..., ssl.SSLContext], *how: Any) -> _LateContext:
    return _LateContext(functools.partial(make, *how))


class _ConnectorLoader(Loader):
    def __init__(self, own: InspectLoader) -> None:
        self._own = own

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._own  # which has its source
        code = self._own.get_code(_MODULE)
        if code is None:
            self._own.exec_module(module)
        else:
            exec(code, vars(module), _Names(vars(module)))  # noqa: S102


class _ConnectorFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, InspectLoader):
            spec.loader = _ConnectorLoader(spec.loader)
        return spec


def _import() -> ModuleType:
    finder = _ConnectorFinder()
    with import_lock:
        sys.meta_path.insert(0, finder)
        if "frozenlist" not in sys.modules:
            sys.modules[_COMPILED_LIST] = None  # type: ignore[assignment]  # an ImportError, which it expects
        try:
            return importlib.import_module("aiohttp")
        finally:
            sys.meta_path.remove(finder)
            if sys.modules.get(_COMPILED_LIST, finder) is None:
                del sys.modules[_COMPILED_LIST]


if not TYPE_CHECKING:
    aiohttp = _import()
