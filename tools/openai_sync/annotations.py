"""Translation of the annotations of `openai`'s types into those of generated types.

Unions become ``X | Y``, with a tag if a field discriminates their members.

A name that refers to a type of `openai` becomes a mark, ``<module.Name>``, which is later replaced by the
type's name in the generated module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from openai_sync.sources import Definition, Sources

_MARK = re.compile(r"<([\w.]+)>")
_GENERICS = {"List": "list", "Dict": "dict", "SequenceNotStr": "Sequence", "Iterable": "Iterable"}
_TAG = "type"


def marked(key: str) -> str:
    """Return the mark of a definition."""
    return f"<{key}>"


def marks_in(text: str) -> list[str]:
    """Return the keys of the marks in a text, without duplicates."""
    return list(dict.fromkeys(_MARK.findall(text)))


def put(text: str, name_of: Callable[[str], str]) -> str:
    """Return a text with its marks replaced by names."""
    return _MARK.sub(lambda match: name_of(match[1]), text)


class Translator:
    """Translates annotations.

    Args:
        sources: the definitions that names refer to.
        of_responses: whether the types are those of responses. These are validated, so their unions need a
            rule; types of parameters are only read by type checkers.
    """

    def __init__(self, sources: Sources, *, of_responses: bool) -> None:
        self._sources = sources
        self._of_responses = of_responses

    def text(self, module: str, node: ast.expr) -> str:
        """Return the source of an annotation or an alias in ``module``."""
        if isinstance(node, ast.Constant):
            return self._constant(module, node)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._name(module, node)
        if isinstance(node, ast.Subscript):
            return self._subscript(module, node)
        raise TypeError(f"{module} has an unsupported annotation: {ast.unparse(node)}")

    def _constant(self, module: str, node: ast.Constant) -> str:
        if node.value is None:
            return "None"
        return self.text(module, ast.parse(str(node.value), mode="eval").body)  # a quoted name

    def _name(self, module: str, node: ast.Name | ast.Attribute) -> str:
        name = node.id if isinstance(node, ast.Name) else node.attr
        definition = self._sources.target(module, node)
        if definition is not None:
            return marked(definition.key)
        if name == "object" and self._of_responses:
            return "Any"
        return _GENERICS.get(name, name)

    def _subscript(self, module: str, node: ast.Subscript) -> str:
        origin = ast.unparse(node.value)
        inner = node.slice
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if origin == "Optional":
            return _joined([self.text(module, inner), "None"])
        if origin == "Union":
            return self._union(module, parts)
        if origin == "Annotated":
            return self._annotated(module, parts[0], parts[1])
        if origin == "Literal":
            return ast.unparse(node)
        arguments = ", ".join(self.text(module, part) for part in parts)
        return f"{self._name(module, _named(node.value))}[{arguments}]"

    def _annotated(self, module: str, node: ast.expr, note: ast.expr) -> str:
        """Return the source for ``Annotated[node, note]``; only the discriminators of unions matter here."""
        keywords = (
            {keyword.arg: keyword.value for keyword in note.keywords} if isinstance(note, ast.Call) else {}
        )
        field = keywords.get("discriminator")
        is_union = isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Union"
        if not (is_union and isinstance(field, ast.Constant)):
            return self.text(module, node)
        assert isinstance(node, ast.Subscript)
        assert isinstance(node.slice, ast.Tuple)
        return self._union(module, node.slice.elts, str(field.value))

    def _union(self, module: str, parts: list[ast.expr], field: str = "") -> str:
        names = [self.text(module, part) for part in parts]
        if not self._of_responses:
            return _joined(names)
        none = ["None"] * ("None" in names)
        if "str" in names:  # any string is allowed, so literals are redundant
            kept = [
                (part, name)
                for part, name in zip(parts, names, strict=True)
                if not self._is_word(module, part)
            ]
            parts, names = [part for part, _ in kept], ["str", *(name for _, name in kept)]
        allows_any = "Any" in names
        names = [name for name in names if name not in ("Any", "None")]
        classes = [definition for part in parts for definition in self._classes(module, part)]
        tag = field or (_TAG if len(classes) > 1 and all(map(self._is_tagged, classes)) else "")
        union = _joined(names)
        if tag:
            union = f"Annotated[{union}, TaggedUnion({tag!r})]"
        return _joined([f"Lenient[{union}]" if allows_any else union, *none])

    def _is_word(self, module: str, node: ast.expr) -> bool:
        """Return whether a member of a union is a string or a set of literal strings."""
        if isinstance(node, ast.Name | ast.Attribute):
            definition = self._sources.target(module, node)
            if definition is None:
                return ast.unparse(node) == "str"
            return isinstance(definition.node, ast.expr) and self._is_word(definition.module, definition.node)
        if not isinstance(node, ast.Subscript):
            return False
        origin = ast.unparse(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if origin == "Literal":
            return all(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)
        return origin == "Union" and all(self._is_word(module, part) for part in parts)

    def _classes(self, module: str, node: ast.expr) -> list[Definition]:
        """Return the classes among the members of a union and of nested unions."""
        if isinstance(node, ast.Name | ast.Attribute):
            definition = self._sources.target(module, node)
            if definition is None:
                return []
            return (
                [definition]
                if isinstance(definition.node, ast.ClassDef)
                else self._classes(definition.module, definition.node)
            )
        if not isinstance(node, ast.Subscript) or ast.unparse(node.value) not in ("Union", "Annotated"):
            return []
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return [definition for part in parts for definition in self._classes(module, part)]

    @staticmethod
    def _is_tagged(definition: Definition) -> bool:
        assert isinstance(definition.node, ast.ClassDef)
        return any(
            isinstance(field, ast.AnnAssign)
            and ast.unparse(field.target) == _TAG
            and ast.unparse(field.annotation).startswith("Literal")
            for field in definition.node.body
        )


def _joined(names: list[str]) -> str:
    return " | ".join(dict.fromkeys(names))


def _named(node: ast.expr) -> ast.Name | ast.Attribute:
    assert isinstance(node, ast.Name | ast.Attribute)
    return node
