"""The stub of one module of `openai`: its classes, aliases and signatures, without code and descriptions."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator
from functools import cache

#: Decorators that matter to type checkers; others, such as those that check arguments, are left out.
_DECORATORS = frozenset(
    {"cached_property", "classmethod", "final", "overload", "property", "runtime_checkable", "staticmethod"}
)
_EMPTY_BODY = re.compile(r":\n +\.\.\.$", re.MULTILINE)
_DEPRECATED = "typing_extensions.deprecated('OpenAI has deprecated this method')"
#: The last keyword of every API method; specclient's own call options follow it.
_LAST = "timeout"
_OPTIONS = (
    ("policy", "Policy | str | None"),
    ("tags", "Mapping[str, str] | None"),
    ("session", "str | None"),
    ("strategy", "Strategy | str | None"),
    ("drop_params", "bool | None"),
    ("deadline_s", "float | None"),
    ("cache", "CacheSetting | None"),
)
#: The imports that the own call options need, without those names that a module has already.
_OPTION_IMPORTS = {
    "CacheSetting": "from specclient.types.cache_options import CacheSetting",
    "Mapping": "from typing import Mapping",
    "Policy": "from specclient.types.policy import Policy",
    "Strategy": "from specclient.types.strategy import Strategy",
}
_WRAPPERS = ("to_raw_response_wrapper", "to_streamed_response_wrapper", "to_custom_streamed_response_wrapper")


def stub_of(tree: ast.Module) -> str:
    """Return the text of a stub for a module's syntax tree."""
    body = [kept for node in _flat(tree.body) for kept in _statement(node)]
    used = _names(node for node in body if not isinstance(node, ast.Import | ast.ImportFrom))
    body = _without_unused(body, used)
    defined = {name for node in body for name in _bound(node)}
    more = [text for name, text in _OPTION_IMPORTS.items() if name in used - defined]
    lines = [ast.unparse(node) for node in body]
    return _EMPTY_BODY.sub(": ...", "\n".join([*more, *lines, ""]))


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, with those of ``if TYPE_CHECKING`` and without the other branch."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) in (
            "TYPE_CHECKING",
            "_t.TYPE_CHECKING",
        ):
            yield from _flat(node.body)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "not TYPE_CHECKING":
            yield from _flat(node.orelse)
        else:
            yield node


def _statement(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield what a stub has of a statement of a module."""
    if (isinstance(node, ast.ImportFrom) and node.module != "__future__") or isinstance(node, ast.Import):
        yield node
    elif isinstance(node, ast.ClassDef):
        yield _class(node)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if not node.name.startswith("_"):
            yield _function(node)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and _bound(node) != ["log"]:
        yield node


def _class(node: ast.ClassDef) -> ast.ClassDef:
    wrapped = next((one for one in node.body if _is_wrapping(one)), None)
    body: list[ast.stmt] = []
    for one in node.body:
        if one is wrapped:
            assert isinstance(one, ast.FunctionDef)
            body += _wrapped_methods(one)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            if not one.name.startswith("_") or one.name.startswith("__"):
                body.append(_function(one))
        elif isinstance(one, ast.ClassDef):
            body.append(_class(one))
        elif isinstance(one, ast.AnnAssign | ast.Assign):
            body.append(one)
    decorators = [each for each in node.decorator_list if _name_of(each) in _DECORATORS]
    stub = copy.copy(node)
    stub.body = body or [ast.Expr(ast.Constant(...))]
    stub.decorator_list = decorators
    return stub


def _is_wrapping(node: ast.stmt) -> bool:
    """Return whether a statement is the constructor of a resource that returns raw responses."""
    return (
        isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and any(name in ast.unparse(node) for name in _WRAPPERS)
    )


def _wrapped_methods(node: ast.FunctionDef) -> Iterator[ast.stmt]:
    """Yield ``create = wrapper(Files.create)`` for each ``self.create = wrapper(files.create)``."""
    parameter = node.args.args[1]
    assert parameter.annotation is not None
    yield _function(node)
    for one in node.body:
        if not (isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)):
            continue
        target, call = one.targets[0], one.value
        assert isinstance(target, ast.Attribute)
        assert isinstance(call.args[0], ast.Attribute)
        method = ast.Attribute(parameter.annotation, call.args[0].attr)
        value = ast.Call(call.func, [method, *call.args[1:]], [])
        yield ast.Assign([ast.Name(target.attr)], value, lineno=0)  # unparse() asks for a line


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef | ast.AsyncFunctionDef:
    decorators: list[ast.expr] = []
    for each in node.decorator_list:
        name = _name_of(each)
        if name in _DECORATORS or name in ("setter", "deleter"):
            decorators.append(each)
        elif name == "deprecated":
            decorators.append(_expression(_DEPRECATED))
    given = node.args
    keywords = list(given.kwonlyargs)
    if any(one.arg == _LAST for one in keywords) and any(one.arg == "extra_headers" for one in keywords):
        names = {one.arg for one in keywords}
        keywords += [ast.arg(name, _expression(kind)) for name, kind in _OPTIONS if name not in names]
    dots: ast.expr = ast.Constant(...)
    before = len(given.kwonlyargs)
    arguments = ast.arguments(
        given.posonlyargs,
        given.args,
        given.vararg,
        keywords,
        [*(None if one is None else dots for one in given.kw_defaults), *[dots] * (len(keywords) - before)],
        given.kwarg,
        [dots for _ in given.defaults],
    )
    stub = copy.copy(node)
    stub.args = arguments
    stub.body = [ast.Expr(ast.Constant(...))]
    stub.decorator_list = decorators
    return stub


def _name_of(node: ast.expr) -> str:
    """Return the last name of a decorator: ``deprecated`` of ``@typing_extensions.deprecated(…)``."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else ast.unparse(node)


def _names(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements use, those in quoted annotations too."""
    used: set[str] = set()
    for node in body:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                used.add(part.id)
            elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isascii():
                used |= _names_in(part.value)
    return used


@cache
def _names_in(text: str) -> frozenset[str]:
    """Return the names in the text of an expression; none if it is something else."""
    try:
        quoted = _expression(text)
    except (SyntaxError, ValueError):
        return frozenset()
    return frozenset(name.id for name in ast.walk(quoted) if isinstance(name, ast.Name))


@cache
def _expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression, which must not be changed."""
    return ast.parse(text, mode="eval").body


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    return [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []


def _without_unused(body: list[ast.stmt], used: set[str]) -> list[ast.stmt]:
    """Return the statements without imports of names that are not ``used``, and without ``__all__``.

    ``import x as x`` is kept: it is a name for other modules.
    """
    kept: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [
                alias
                for alias in node.names
                if alias.name in (alias.asname, "*") or (alias.asname or alias.name).partition(".")[0] in used
            ]
            if names:
                kept.append(
                    ast.Import(names)
                    if isinstance(node, ast.Import)
                    else ast.ImportFrom(node.module, names, node.level)
                )
        elif isinstance(node, ast.Assign) and _bound(node)[:1] == ["__all__"]:
            continue
        else:
            kept.append(node)
    return kept
