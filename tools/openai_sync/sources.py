"""The classes and aliases that the modules of ``openai.types`` define, and name resolution in them."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from openai_sync.names import Catalogue

#: Names that modules define but that are not types of the API.
_NO_TYPES = ("__all__",)


@dataclass(frozen=True, slots=True)
class Definition:
    """A class or an alias.

    Attributes:
        module: the module that defines it, relative to ``openai.types``: ``chat.chat_completion``.
        node: the class statement, or the value of the alias.
    """

    module: str
    name: str
    node: ast.ClassDef | ast.expr

    @property
    def key(self) -> str:
        """The unique name of the definition: its module and its name."""
        return f"{self.module}.{self.name}"

    @property
    def package(self) -> str:
        """The package of the module."""
        return self.module.rpartition(".")[0]


class Sources:
    """The definitions in ``openai.types``.

    Args:
        catalogue: the list of modules.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._packages = frozenset(catalogue.packages)
        self._modules = self._packages | frozenset(catalogue.modules)

    @functools.cache  # noqa: B019  # one object per run
    def definitions(self, module: str) -> Mapping[str, Definition]:
        """Return the definitions of a module, by name."""
        definitions = {}
        for node in self._tree(module).body:
            if isinstance(node, ast.ClassDef):
                definitions[node.name] = Definition(module, node.name, node)
            elif (named := _assigned(node)) and named[0] not in _NO_TYPES:
                name, value = named
                definitions[name] = Definition(module, name, value)
        return definitions

    @functools.cache  # noqa: B019
    def imports(self, module: str) -> Mapping[str, tuple[str, str]]:
        """Return a module's imports from ``openai.types``: local name to module and name there."""
        imports: dict[str, tuple[str, str]] = {}
        for node in self._tree(module).body:
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            parts = module.split(".") if module else []
            up = node.level - (module in self._packages)
            if up > len(parts):
                continue  # from outside openai.types
            source = ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])
            for alias in node.names:
                imports[alias.asname or alias.name] = (source, alias.name)
        return imports

    def resolve(self, module: str, name: str) -> Definition | None:
        """Return the definition that a name in a module refers to; None if it is not a type."""
        seen = set()
        while (module, name) not in seen and module in self._modules:
            seen.add((module, name))
            definition = self.definitions(module).get(name)
            if definition is not None:
                other = (
                    self.target(module, definition.node) if isinstance(definition.node, ast.expr) else None
                )
                return other if other is not None and other.name == name else definition
            if name not in self.imports(module):
                return None
            module, name = self.imports(module)[name]
        return None

    def target(self, module: str, node: ast.expr) -> Definition | None:
        """Return the definition that ``Name`` or ``module.Name`` refers to; None if it is not a type."""
        if isinstance(node, ast.Name):
            return self.resolve(module, node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            source = self.imports(module).get(node.value.id)
            return None if source is None else self.resolve(".".join(filter(None, source)), node.attr)
        return None

    def _tree(self, module: str) -> ast.Module:
        return _parsed(self._catalogue, module)


@functools.cache
def _parsed(catalogue: Catalogue, module: str) -> ast.Module:
    return ast.parse(inspect.getsource(catalogue.load(module)))


def _assigned(node: ast.stmt) -> tuple[str, ast.expr] | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return node.target.id, node.value
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node.value
    return None
