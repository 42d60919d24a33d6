"""The generated types of responses and parameters: the module, the name and the source of each."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from openai_sync.annotations import Translator, marked, marks_in, put
from openai_sync.layout import BASES, BY_HAND, FIELDS, FILES, HELPERS, LEFT_OPEN, RESTS, File
from openai_sync.names import Catalogue, is_parameters
from openai_sync.sources import Definition, Sources

#: The prefix of private names, which are not fields.
_PRIVATE = "_"


@dataclass(slots=True)
class Written:
    """The content of a generated module.

    Attributes:
        file: its layout.
        modules: the modules of `openai` whose types it has.
        texts: the source of each definition by key, with marks for references.
        names: the name of each definition here, by key; equal definitions share a name.
    """

    file: File
    modules: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> str:
        """The module, relative to ``specclient.types``."""
        return f"{self.file.package}.{self.file.name}"


class Models:
    """The generated modules of types.

    Attributes:
        written: the modules, in the order of the layout.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.sources = Sources(catalogue)
        self._catalogue = catalogue
        self._by_hand = {
            _join(package, module): _join(package, home)
            for package, homes in BY_HAND.items()
            for home, modules in homes.items()
            for module in modules.split()
        }
        self._homes: dict[str, Written] = {}
        self.written = [self._write(file) for file in FILES]
        self._check_layout()

    def place_of(self, key: str) -> tuple[str, str] | None:
        """Return the module, relative to ``specclient.types``, and the name of a definition here."""
        module, _, name = key.rpartition(".")
        if module in self._by_hand:
            return self._by_hand[module], name
        written = self._homes.get(module)
        return None if written is None else (written.home, written.names[key])

    def home_of(self, module: str) -> str | None:
        """Return the module with the types of an `openai` module, relative to ``specclient.types``."""
        if module in self._by_hand:
            return self._by_hand[module]
        return self._homes[module].home if module in self._homes else None

    def text_of(self, written: Written) -> str:
        """Return the source of a generated module, without its docstring."""
        lines, done = [], set()
        imports: dict[str, tuple[str, str]] = {}  # module and name of each import, by local name
        taken = set(written.names.values())

        def named(key: str) -> str:
            place = self.place_of(key)
            if place is None:
                raise LookupError(f"{written.home} needs {key}, which no module declares; see layout.py")
            home, name = place
            if home == written.home:
                return name
            source = (f"specclient.types.{home}", name)
            if name in taken or imports.get(name, source) != source:
                name = _camel(home.partition(".")[0]) + name
            imports[name] = source
            return name

        for key in _in_order(written):
            line = put(written.texts[key], named)
            name = written.names[key]
            if name not in done and line != f"{name} = {name}":  # an alias may have the name of its type
                done.add(name)
                lines.append(line)
        body = "\n\n".join(lines)
        words = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
        imports |= {name: (home, name) for name, home in HELPERS.items() if name in words}
        imports |= {base[1]: base for base in BASES.values() if base[1] in words}
        head = ["from __future__ import annotations"]
        for ours, (home, name) in sorted(imports.items(), key=lambda item: (item[1], item[0])):
            head.append(f"from {home} import {name}" + (f" as {ours}" if ours != name else ""))
        return "\n".join([*head, "", body, ""])

    def _write(self, file: File) -> Written:
        written = Written(file)
        due = [module for module in self._of(file.package) if file.starts(module.rpartition(".")[2])]
        while due:
            module = due.pop(0)
            if module in self._homes or module in self._by_hand:
                continue
            self._homes[module] = written
            written.modules.append(module)
            for definition in self.sources.definitions(module).values():
                written.texts[definition.key] = self._text(definition)
            texts = [
                written.texts[definition.key] for definition in self.sources.definitions(module).values()
            ]
            needed = [key.rpartition(".")[0] for text in texts for key in marks_in(text)]
            due += [other for other in needed if other.rpartition(".")[0] == file.package]
        for key, (union, excluded) in RESTS.items():
            if union in written.texts:
                members = [
                    member
                    for member in marks_in(written.texts[union])[1:]
                    if member.rpartition(".")[2] not in excluded
                ]
                written.texts[key] = f"{marked(key)} = {' | '.join(map(marked, members))}"
        written.names = self._names(written)
        return written

    def _check_layout(self) -> None:
        """Check that `openai` has the classes and fields that the layout names.

        Raises:
            LookupError: some do not exist; the message names them.
        """
        texts = {key: text for written in self.written for key, text in written.texts.items()}
        lost = [key for key in BASES if key not in texts]
        for path in FIELDS:
            key, _, name = path.rpartition(".")
            if f"    {name}: {FIELDS[path]}" not in texts.get(key, ""):
                lost.append(path)
        if lost:
            raise LookupError(f"layout.py has {lost}, which the openai package does not have")

    def _of(self, package: str) -> list[str]:
        modules = (module for module in self._catalogue.modules if module.rpartition(".")[0] == package)
        return sorted(module for module in modules if module not in LEFT_OPEN and module not in self._homes)

    def _text(self, definition: Definition) -> str:
        kind = getattr(self._catalogue.load(definition.module), definition.name)
        translator = Translator(self.sources, of_responses=not is_parameters(kind))
        if isinstance(definition.node, ast.ClassDef):
            return _class(translator, definition, definition.node)
        if isinstance(definition.node, ast.Call):
            return _functional(translator, definition, definition.node)
        return f"{marked(definition.key)} = {translator.text(definition.module, definition.node)}"

    def _names(self, written: Written) -> dict[str, str]:
        """Return the name of each definition: as in `openai`, unless several modules define it differently.

        In that case the exported definition keeps the name, and the others are prefixed with their module.
        """
        groups = _groups(written.texts)
        rivals: dict[str, set[int]] = {}
        for key, group in groups.items():
            rivals.setdefault(key.rpartition(".")[2], set()).add(group)
        public = self._public(written.file.package)
        names: dict[str, str] = {}
        by_group: dict[int, str] = {}
        for key, group in groups.items():
            module, _, name = key.rpartition(".")
            is_first = len(rivals[name]) == 1 or key in public
            if group not in by_group or key in public:
                by_group[group] = name if is_first else _camel(module.rpartition(".")[2]) + name
        for key, group in groups.items():
            names[key] = by_group[group]
        _check_names(written, names, groups)
        return names

    def _public(self, package: str) -> set[str]:
        names = self._catalogue.public(package)
        resolved = (self.sources.resolve(package, name) for name in names)
        return {definition.key for definition in resolved if definition is not None}


def _class(translator: Translator, definition: Definition, node: ast.ClassDef) -> str:
    fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
    lines = [_field(translator, definition, field) for field in fields]
    lines = [f"    {line}" for line in lines if line]
    return "\n".join(
        [
            f"class {marked(definition.key)}({_bases(translator, definition, node)}):",
            *(lines or ["    pass"]),
            "",
        ]
    )


def _bases(translator: Translator, definition: Definition, node: ast.ClassDef) -> str:
    if definition.key in BASES:
        return BASES[definition.key][1]
    bases = [translator.text(definition.module, base) for base in node.bases]
    total = [f"{word.arg}={ast.unparse(word.value)}" for word in node.keywords]
    return ", ".join(["WireModel" if base == "BaseModel" else base for base in bases] + total)


def _field(translator: Translator, definition: Definition, field: ast.AnnAssign) -> str:
    name = ast.unparse(field.target)
    if name.startswith(_PRIVATE):
        return ""
    annotation = FIELDS.get(f"{definition.key}.{name}") or translator.text(
        definition.module, field.annotation
    )
    default = "" if field.value is None else f" = {ast.unparse(field.value).replace('FieldInfo(', 'Field(')}"
    return f"{name}: {annotation}{default}"


def _functional(translator: Translator, definition: Definition, node: ast.Call) -> str:
    """Return the source of a TypedDict in call form, which keys that are not identifiers require."""
    _, fields = node.args
    assert isinstance(fields, ast.Dict)
    keys = ", ".join(
        f"{ast.unparse(key)}: {translator.text(definition.module, value)}"
        for key, value in zip(fields.keys, fields.values, strict=True)
        if key is not None
    )
    total = "".join(f", {word.arg}={ast.unparse(word.value)}" for word in node.keywords)
    return f"{marked(definition.key)} = TypedDict({definition.name!r}, {{{keys}}}{total})"


def _groups(texts: Mapping[str, str]) -> dict[str, int]:
    """Return a group number by key: definitions with equal names, sources and references share a number."""
    groups = dict.fromkeys(texts, 0)
    while True:
        numbers: dict[tuple[str, str], int] = {}
        found_groups = {}
        for key, text in texts.items():
            name = key.rpartition(".")[2]
            of_others = {other: str(groups.get(other, other)) for other in marks_in(text)} | {key: ""}
            found_groups[key] = numbers.setdefault((name, put(text, of_others.__getitem__)), len(numbers))
        if len(set(found_groups.values())) == len(set(groups.values())):
            return found_groups
        groups = found_groups


def _check_names(written: Written, names: Mapping[str, str], groups: Mapping[str, int]) -> None:
    """Check that different types have different names; an alias may share the name of its type.

    Raises:
        LookupError: two types have the same name; the message has both.
    """
    for name, keys in _keys_by_name(names).items():
        targets = {marks_in(written.texts[key])[-1] for key in keys if " = <" in written.texts[key]}
        rest = [key for key in keys if not (" = <" in written.texts[key] and targets & set(keys))]
        if len({groups[key] for key in rest}) > 1:
            raise LookupError(f"{written.home}: different types would have the name {name}: {keys}")


def _keys_by_name(names: Mapping[str, str]) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for key, name in names.items():
        keys.setdefault(name, []).append(key)
    return keys


def _in_order(written: Written) -> Iterator[str]:
    """Yield the keys so that a definition follows those that it refers to."""
    done: set[str] = set()

    def visit(key: str) -> Iterator[str]:
        if key in done or key not in written.texts:
            return
        done.add(key)
        for other in marks_in(written.texts[key]):
            yield from visit(other)
        yield key

    for key in written.texts:
        yield from visit(key)


def _camel(module: str) -> str:
    return "".join(part.capitalize() for part in module.split("_"))


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)
