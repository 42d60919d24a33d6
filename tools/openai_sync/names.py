"""The public names of ``openai.types``, and the kind of type of each."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Iterator
from typing import Any

import openai.types
import typing_extensions
from openai import BaseModel
from openai._utils import PropertyInfo

ROOT = "openai.types"


class Catalogue:
    """The modules in ``openai.types`` and their public names.

    Attributes:
        packages: the names of the packages, relative to the root: ``""``, ``chat``, ``beta.threads``.
        modules: the names of the modules that are not packages: ``chat.chat_completion``.
    """

    def __init__(self) -> None:
        modules = list(pkgutil.walk_packages(openai.types.__path__, f"{ROOT}."))
        self.packages = ["", *(_relative(module.name) for module in modules if module.ispkg)]
        self.modules = [_relative(module.name) for module in modules if not module.ispkg]

    def public(self, module: str) -> list[str]:
        """Return the public names of a module or package, sorted."""
        loaded = self.load(module)
        names = getattr(loaded, "__all__", None) or [
            name for name in vars(loaded) if not name.startswith("_")
        ]
        return sorted(
            name for name in names if name != "annotations" and not inspect.ismodule(getattr(loaded, name))
        )

    @staticmethod
    def load(module: str) -> types.ModuleType:
        """Return a module by its relative name."""
        return importlib.import_module(f"{ROOT}.{module}".rstrip("."))

    def path_of(self, kind: Any) -> str:
        """Return the name of a type relative to the root: ``beta.threads.Run``.

        A type that no package exports is named by its module: ``beta.chatkit.chatkit_thread_item_list.Data``.
        """
        by_id = self._paths
        if id(kind) in by_id:
            return by_id[id(kind)]
        for path, other in self._aliases:
            if other == kind:
                return path
        raise LookupError(f"{kind!r} is not a type in {ROOT}")

    @functools.cached_property
    def _paths(self) -> dict[int, str]:
        """The paths of types by ``id``; if several packages export a type, the deepest one counts."""
        paths: dict[int, str] = {}
        for package in self.packages:
            for name in self.public(package):
                kind = getattr(self.load(package), name)
                if not isinstance(kind, type) or _relative(kind.__module__).startswith(package):
                    paths[id(kind)] = f"{package}.{name}".lstrip(".")
        for module in self.modules:
            for name in self.public(module):
                kind = getattr(self.load(module), name)
                if isinstance(kind, type) and kind.__module__ == f"{ROOT}.{module}":
                    paths.setdefault(id(kind), f"{module}.{name}")
        return paths

    @functools.cached_property
    def _aliases(self) -> list[tuple[str, Any]]:
        return [
            (f"{package}.{name}".lstrip("."), getattr(self.load(package), name))
            for package in (*self.packages, *self.modules)
            for name in self.public(package)
            if not isinstance(getattr(self.load(package), name), type)
        ]


def is_parameters(kind: Any) -> bool:
    """Return whether a type is a mapping for request parameters: a TypedDict, or a union with one."""
    if typing_extensions.is_typeddict(kind):
        return True
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return False
    return any(is_parameters(part) for part in typing.get_args(kind))


def is_word(kind: Any) -> bool:
    """Return whether a type allows only strings, any or literal ones, and None."""
    parts = list(leaves(kind))
    return bool(parts) and all(isinstance(part, str) or part in (str, type(None)) for part in parts)


def is_list(kind: Any) -> bool:
    """Return whether a type is a list, or a union with a list."""
    options = typing.get_args(kind) if typing.get_origin(kind) is typing.Union else (kind,)
    return any(typing.get_origin(option) is list for option in options)


def choice(kind: Any) -> tuple[str, dict[str, type[BaseModel]]] | None:
    """Return the discriminator of a union of classes: the field, and the class for each of its values.

    None for any other type, such as a union of other types or one without a discriminator.
    """
    notes = typing.get_args(kind)[1:] if typing.get_origin(kind) is typing.Annotated else ()
    field = next((note.discriminator for note in notes if isinstance(note, PropertyInfo)), None)
    members = list(leaves(kind)) if field else []
    if len(members) < 2 or not all(
        isinstance(member, type) and issubclass(member, BaseModel) for member in members
    ):
        return None
    words: dict[str, type[BaseModel]] = {}
    for member in members:
        for word in leaves(member.model_fields[field].annotation):
            if isinstance(word, str):
                words.setdefault(word, member)
    return (str(field), words) if len(set(words.values())) == len(members) else None


def members(kind: Any) -> list[Any]:
    """Return the classes of a union without a discriminator, ``str`` for literal strings, and None.

    The list is empty for any other type.
    """
    if typing.get_origin(kind) is not typing.Union:
        return []
    found: list[Any] = [str if isinstance(part, str) else part for part in leaves(kind)]
    kinds = [part for part in found if part not in (str, type(None))]
    if not kinds or not all(isinstance(part, type) and issubclass(part, BaseModel) for part in kinds):
        return []
    return [None if part is type(None) else part for part in dict.fromkeys(found)]


def leaves(kind: Any) -> Iterator[Any]:
    """Yield the members of a union, the members of nested unions, and the values of literals."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        yield from leaves(typing.get_args(kind)[0])
    elif origin in (typing.Union, types.UnionType, typing.Literal):
        for part in typing.get_args(kind):
            yield from leaves(part)
    else:
        yield kind


def _relative(module: str) -> str:
    return module.removeprefix(ROOT).lstrip(".")
