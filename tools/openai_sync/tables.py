"""The tables of type names: the names of each package, the modules of declared types, and the stubs."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openai_sync.layout import BY_HAND, FILES
from openai_sync.literals import source, text
from openai_sync.models import Models
from openai_sync.names import Catalogue, choice, is_list, is_parameters, is_word, members

_TYPES = "specclient.types"


class Tables:
    """Generates the tables of names.

    Args:
        catalogue: the names of the `openai` package.
        models: the generated modules.
        root: the repository's root.
    """

    def __init__(self, catalogue: Catalogue, models: Models, root: Path) -> None:
        self._catalogue = catalogue
        self._models = models
        self._root = root
        self.written_packages = sorted({*BY_HAND, *(file.package for file in FILES)})
        self._homes = {package: self._homes_in(package) for package in self.written_packages}

    def names(self) -> str:
        """Return the source of the table of all names, and of the kinds of types that are not declared."""
        packages = {package: " ".join(self._listed(package)) for package in self._catalogue.packages}
        kinds: dict[str, list[str]] = {"WORDS": [], "LISTS": [], "MAPPINGS": [], "CHOICES": []}
        for package, names in packages.items():
            for name in names.split():
                if name not in self._homes.get(package, {}) and (sort := _sort(self._kind(package, name))):
                    kinds[sort].append(f"{package}.{name}".lstrip("."))
        about = {
            "WORDS": "Types that are strings, such as the names of models.",
            "LISTS": "Types that are lists, or unions with a list.",
            "MAPPINGS": "Types that are mappings, although their names do not end with Param or Params.",
            "CHOICES": "Types that are unions with a class; ``unions.py`` has their members.",
        }
        return "\n\n".join(
            [
                _IMPORTS,
                "#: The public names of each package in ``specclient.types``. Parameters are listed only\n"
                "#: for packages with declared types.\n"
                f"PACKAGES: Final[Mapping[str, str]] = {source(packages)}",
                "#: The modules whose names cannot be derived from a public name, by package.\n"
                f"MODULES: Final[Mapping[str, str]] = {source(self._more_modules())}",
                *(
                    f"#: {about[sort]}\n{sort}: Final = {text(' '.join(names))}"
                    for sort, names in kinds.items()
                ),
            ]
        )

    def unions(self) -> str:
        """Return the source of the table of unions of classes that are not declared."""
        unions: dict[str, Any] = {}
        others: dict[str, str] = {}
        for package in self._catalogue.packages:
            for name in self._listed(package):
                union = choice(self._kind(package, name))
                path = f"{package}.{name}".lstrip(".")
                if name in self._homes.get(package, {}):
                    continue
                if union is not None:
                    field, words = union
                    classes = {word: self._catalogue.path_of(kind) for word, kind in words.items()}
                    unions[path] = (field, classes)
                elif parts := members(self._kind(package, name)):
                    others[path] = " ".join(map(self._name_of, parts))
        return "\n\n".join(
            [
                "# ruff: noqa: E501 - some names are too long",
                _IMPORTS,
                "#: The discriminator field of each union, and the class for each of its values.\n"
                f"UNIONS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {source(unions)}",
                "#: The members of the unions without a discriminator: classes, ``str`` and ``None``.\n"
                f"OTHERS: Final[Mapping[str, str]] = {source(others)}",
            ]
        )

    def _name_of(self, member: Any) -> str:
        return str(member and member.__name__) if member in (None, str) else self._catalogue.path_of(member)

    def homes(self) -> str:
        """Return the source of the tables that map `openai`'s names and modules to specclient's modules."""
        homes = {package: _joined(_by_home(names)) for package, names in self._homes.items()}
        deep: dict[str, dict[str, list[str]]] = {}
        renamed: dict[str, dict[str, str]] = {}
        for module in self._catalogue.modules:
            package, _, name = module.rpartition(".")
            if home := self._models.home_of(module):
                deep.setdefault(package, {}).setdefault(home, []).append(name)
                if others := self._renamed(module):
                    renamed[module] = others
        modules = {package: _joined(homes) for package, homes in deep.items()}
        return "\n\n".join(
            [
                _IMPORTS,
                "#: The modules in ``specclient.types`` that have the names of a package.\n"
                f"HOMES: Final[Mapping[str, Mapping[str, str]]] = {source(homes)}",
                "#: The modules in ``specclient.types`` that have the types of a package's modules.\n"
                f"DEEP: Final[Mapping[str, Mapping[str, str]]] = {source(modules)}",
                "#: The names in a module of `openai` that differ here, with their names here.\n"
                f"RENAMED: Final[Mapping[str, Mapping[str, str]]] = {source(renamed)}",
            ]
        )

    def stub(self, package: str) -> str:
        """Return the stub of a package for type checkers: declared types are imported, others are Any."""
        names = {name: f"{_TYPES}.{home}" for name, home in self._homes[package].items()}
        if not package:
            names |= {name: f"{_TYPES}.{home}" for name, home in self.own_names().items()}
        lines = [f"from {home} import {name} as {name}" for name, home in names.items()]
        return "\n".join(
            ["from typing import Any", "", *lines, "", "def __getattr__(name: str) -> Any: ...", ""]
        )

    def _homes_in(self, package: str) -> dict[str, str]:
        """Return the modules of a package's declared types, by public name."""
        homes = {}
        for name in self._catalogue.public(package):
            definition = self._models.sources.resolve(package, name)
            place = None if definition is None else self._models.place_of(definition.key)
            if place is not None:
                home, own_name = place
                if own_name != name:
                    raise LookupError(
                        f"{package}.{name} is named {own_name} in {home}; a public name must not change"
                    )
                homes[name] = home
        return homes

    def own_names(self) -> Mapping[str, str]:
        """Return the names in ``specclient.types`` that `openai` does not have, with their modules."""
        source = (self._root / "specclient" / "types" / "__init__.py").read_text(encoding="utf-8")
        table = next(
            node.value
            for node in ast.parse(source).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_OURS"
        )
        own: dict[str, str] = ast.literal_eval(table)
        return own

    def _listed(self, package: str) -> list[str]:
        has_declared_types = package in self.written_packages and package
        return [
            name
            for name in self._catalogue.public(package)
            if has_declared_types
            or not (name.endswith(("Param", "Params")) and is_parameters(self._kind(package, name)))
        ]

    def _kind(self, package: str, name: str) -> Any:
        return getattr(self._catalogue.load(package), name)

    def _more_modules(self) -> dict[str, str]:
        """Return the modules whose names cannot be derived from a public name, by package."""
        modules: dict[str, list[str]] = {}
        for module in self._catalogue.modules:
            package, _, name = module.rpartition(".")
            derived = {snake(public) for public in self._listed(package)}
            is_known = name in derived or name.endswith(("_param", "_params")) or self._models.home_of(module)
            if not is_known:
                modules.setdefault(package, []).append(name)
        return _joined(modules)

    def _renamed(self, module: str) -> dict[str, str]:
        """Return the public names of an `openai` module that differ here, with their names here."""
        renamed = {}
        for name in self._catalogue.public(module):
            definition = self._models.sources.resolve(module, name)
            place = None if definition is None else self._models.place_of(definition.key)
            if place is not None and place[1] != name and place[0] == self._models.home_of(module):
                renamed[name] = place[1]
        return renamed


_IMPORTS = (
    "from __future__ import annotations\n\nfrom collections.abc import Mapping\nfrom typing import Final"
)


def snake(name: str) -> str:
    """Return the `openai` module of a name, derived as in ``specclient/types/paths.py``."""
    name = name.replace("ChatKit", "Chatkit")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _sort(kind: Any) -> str:
    if is_word(kind):
        return "WORDS"
    if is_parameters(kind):
        return "MAPPINGS"
    if choice(kind) is not None or members(kind):
        return "CHOICES"
    return "LISTS" if is_list(kind) else ""


def _by_home(homes: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, home in homes.items():
        names.setdefault(home, []).append(name)
    return dict(sorted(names.items()))


def _joined(table: Mapping[str, list[str]]) -> dict[str, str]:
    return {key: " ".join(names) for key, names in table.items()}
