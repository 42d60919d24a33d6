"""Our objects as instances of the classes of the `openai` package, for libraries that check for them.

``isinstance(x, C)`` is true if ``type(x)`` or ``x.__class__`` is a subclass of ``C``, as with the mocks and
proxies of the standard library (https://docs.python.org/3/library/stdtypes.html#object.__class__). The type
of our objects never changes. Once a program has imported the `openai` package, their ``__class__`` is a
subclass of their type and of the class of the same name in that package. Nothing of that package is imported
or changed here.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from specclient.runtime.forks import import_lock

#: The attribute of a class that holds its subclass that is also a subclass of the official class.
_SEEN_AS = "_specclient_seen_as"


def official_package() -> Any:
    """Return the `openai` package if the program has imported it completely; else None.

    The alias ``sys.modules["openai"] = specclient`` is not that package.
    """
    package = sys.modules.get("openai")
    if package is None or getattr(package, "__name__", None) != "openai":
        return None
    return None if getattr(package.__spec__, "_initializing", False) else package


class SeenAsOfficial:
    """Base class of objects that are also instances of the official class of the same name.

    Attributes:
        official_name: the name of the official class in its package, after that of its module if it is not
            the package itself: ``_legacy_response.LegacyAPIResponse``. None if there is none.
    """

    official_name: ClassVar[str | None] = None

    @classmethod
    def official_classes(cls, package: Any) -> Sequence[Any]:
        """Return the classes of the `openai` package that objects of this class are instances of.

        Args:
            package: the `openai` package; only its loaded modules are read.
        """
        if cls.official_name is None:
            return []
        module, _, name = cls.official_name.rpartition(".")
        home = sys.modules.get(f"{package.__name__}.{module}") if module else package
        return [getattr(home, name, None)]

    @property  # type: ignore[misc]  # read-only: the type of an object never changes
    def __class__(self) -> Any:
        kind = type(self)
        if "openai" not in sys.modules:
            return kind
        return kind.__dict__.get(_SEEN_AS) or _seen_as(kind)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # pickle refuses an object whose class is not its type, unless another function makes it.
        reduced = object.__reduce_ex__(self, max(2, protocol))
        if not isinstance(reduced, str) and reduced[0] is copyreg.__newobj__:  # type: ignore[attr-defined]
            return (_blank, *reduced[1:])
        return reduced


def _blank(kind: type, *arguments: Any) -> Any:
    """Return an object of a class without initialising it, for pickle and copy."""
    return kind.__new__(kind, *arguments)


def official_namesakes(kind: type[SeenAsOfficial]) -> list[type]:
    """Return the official counterparts of one of our classes; none without the `openai` package."""
    package = official_package()
    return [] if package is None else [c for c in kind.official_classes(package) if isinstance(c, type)]


def _seen_as(kind: type[SeenAsOfficial]) -> type:
    """Return the class of the objects of a type: the type itself without the `openai` package."""
    if official_package() is None:
        return kind
    with import_lock:
        if _SEEN_AS not in kind.__dict__:
            officials = official_namesakes(kind)
            setattr(kind, _SEEN_AS, _subclass(kind, officials) if officials else kind)
    found: type = kind.__dict__[_SEEN_AS]
    return found


def _subclass(kind: type, officials: Sequence[type]) -> type:
    """Return a subclass of all classes, whose attributes are those of ``kind``; a call makes a ``kind``.

    ``type`` makes it without the work of the metaclass, which it does not need because it has no instances.
    """

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001 - the signature of __new__
        return kind(*args, **kwargs)

    names = {"__new__": new, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    try:
        return type.__new__(type(kind), kind.__name__, (kind, *officials), names)
    except TypeError:  # a user's subclass has a metaclass or slots that do not go together
        return kind
