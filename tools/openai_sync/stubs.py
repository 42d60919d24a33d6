"""The stub package: what type checkers read of the modules of `openai` that have no file in specclient.

Modules of types and resources become stubs of their own. The names of all other modules are imported from
where they are here (``specclient/runtime/module_names.py``).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import openai.resources

from openai_sync.models import Models
from openai_sync.names import Catalogue
from openai_sync.resource_modules import resource_table
from openai_sync.stub_text import stub_of
from specclient.runtime.module_names import PATHS
from specclient.runtime.module_paths import homes_of

#: The folder of the stub package, beside the package; ``partial``: other modules are read from the package.
FOLDER: Final = Path("specclient-stubs")
_MARKER: Final = {FOLDER / "py.typed": "partial\n"}

#: The ends of the names of clients whose methods return raw or unread responses.
_RAW_CLIENTS: Final = ("RawResponse", "StreamedResponse")
_HTTP: Final = """\
import httpx
import httpx2
Timeout = httpx.Timeout | httpx2.Timeout
"""
_WRAPPER: Final = (
    "def {name}(func: Callable[Concatenate[Any, P], {given}], *args: Any) "
    "-> Callable[Concatenate[Any, P], {made}]: ...\n"
)
_WRAPPER_IMPORTS: Final = """\
from typing import Any, Awaitable, Callable, Concatenate, Generic, ParamSpec, TypeVar
from specclient.resources.raw_response import AsyncStreamedResponse, RawResponse, StreamedResponse
from specclient.resources.response_forms import AsyncResponseContext, SyncResponseContext
P = ParamSpec("P")
R = TypeVar("R")
"""


def _wrappers(rows: Mapping[str, tuple[str, str]]) -> str:
    parts = (_WRAPPER.format(name=name, given=given, made=made) for name, (given, made) in rows.items())
    return _WRAPPER_IMPORTS + "".join(parts)


_STREAMED: Final = ("R", "SyncResponseContext[StreamedResponse[R]]")
_ASYNC_STREAMED: Final = ("Awaitable[R]", "AsyncResponseContext[AsyncStreamedResponse[R]]")
#: Text that the stubs of some modules have in addition to their names.
_MORE: Final[Mapping[str, str]] = {
    "_compat": "from functools import cached_property as cached_property\n",
    "_legacy_response": _wrappers(
        {
            "to_raw_response_wrapper": ("R", "RawResponse[R]"),
            "async_to_raw_response_wrapper": ("Awaitable[R]", "Awaitable[RawResponse[R]]"),
        }
    ),
    "_response": _wrappers(
        {
            "to_streamed_response_wrapper": _STREAMED,
            "async_to_streamed_response_wrapper": _ASYNC_STREAMED,
            "to_custom_streamed_response_wrapper": ("object", "SyncResponseContext[StreamedResponse[bytes]]"),
            "async_to_custom_streamed_response_wrapper": (
                "object",
                "AsyncResponseContext[AsyncStreamedResponse[bytes]]",
            ),
        }
    ),
    "_utils": (
        "from typing import Any\nclass PropertyInfo:\n    def __init__(self, **options: Any) -> None: ...\n"
    ),
}


def stubs(catalogue: Catalogue, models: Models, own: Mapping[str, str]) -> dict[Path, str]:
    """Return the text of every file of the stub package.

    Args:
        catalogue, models: the modules of types, and those that specclient declares.
        own: the names in ``specclient.types`` that `openai` does not have, with their modules.
    """
    files = dict(_MARKER)
    for module in (*catalogue.packages, *catalogue.modules):
        if models.home_of(module) == module:
            continue  # a file of the package
        text = _declared(catalogue, models, module) or _stub(catalogue.load(module).__name__)
        if not module:
            text += "".join(
                f"from specclient.types.{home} import {name} as {name}\n" for name, home in own.items()
            )
        files[_path("types", module, is_package=module in catalogue.packages)] = text
    for info in pkgutil.walk_packages(openai.resources.__path__, "openai.resources."):
        files[_path(info.name.partition(".")[2], is_package=info.ispkg)] = _stub(info.name)
    files[_path("resources", is_package=True)] = _stub("openai.resources")
    files[_path("_http")] = _HTTP
    files |= {_path(module): _aliases(module) + _MORE.get(module, "") for module in {*PATHS, *_MORE}}
    files[_path("_client")] += _raw_clients()
    files[_path("_module_client")] += _module_client()
    for module, prefix in (("client.sync_client", ""), ("client.async_client", "Async")):
        files[_path(module)] = _client(module, prefix)
    return files


def _path(*parts: str, is_package: bool = False) -> Path:
    path = FOLDER.joinpath(*(name for part in parts for name in part.split(".") if name))
    return path / "__init__.pyi" if is_package else path.with_name(f"{path.name}.pyi")


def _stub(module: str) -> str:
    return stub_of(_tree(module))


def _declared(catalogue: Catalogue, models: Models, module: str) -> str:
    """Return the stub of a module whose types specclient declares; empty for another one."""
    home = "" if module in catalogue.packages else models.home_of(module)
    if not home:
        return ""
    places = {name: models.place_of(f"{module}.{name}") for name in models.sources.definitions(module)}
    return _imports(f"specclient.types.{home}", {name: place[1] for name, place in places.items() if place})


def _aliases(module: str) -> str:
    if module not in PATHS:
        return ""
    by_home: dict[str, dict[str, str]] = {}
    for name, (home, ours) in homes_of(module).items():
        if not name.endswith(_RAW_CLIENTS) or module != "_client":
            by_home.setdefault(home, {})[name] = ours
    return "".join(_imports(home, names) for home, names in by_home.items())


def _imports(home: str, names: Mapping[str, str]) -> str:
    """Return imports of a stub that are names for other modules.

    ``import X as Y`` is none for type checkers, so another name is an assignment.

    Args:
        home: the module to import from.
        names: the names there, by the names here.
    """
    parts = [f"{ours} as {name if ours == name else f'_{ours}'}" for name, ours in names.items()]
    others = [f"{name} = _{ours}\n" for name, ours in names.items() if ours != name]
    return f"from {home} import {', '.join(dict.fromkeys(parts))}\n{''.join(others)}"


def _raw_clients() -> str:
    """Return the stubs of the clients whose methods return raw or unread responses."""
    tree = _tree("openai._client")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):  # imports for other modules are none of the stub's
            for alias in node.names:
                alias.asname = None if alias.asname == alias.name else alias.asname
    tree.body = [
        node
        for node in tree.body
        if not isinstance(node, ast.ClassDef | ast.Assign)
        or (isinstance(node, ast.ClassDef) and node.name.endswith(_RAW_CLIENTS))
    ]
    return stub_of(tree)


def _client(module: str, prefix: str) -> str:
    """Return the stub of a module with a client of specclient, with all resources as typed attributes.

    Args:
        module: relative to ``specclient``; its class is ``{prefix}OpenAI``.
        prefix: of the names of the resources' classes.
    """
    tree = ast.parse(Path(importlib.import_module(f"specclient.{module}").__file__ or "").read_text("utf-8"))
    client = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    roots = {path: name for path, name in map(str.split, resource_table().values()) if "." not in path}
    forms = (("raw", "RawResponse"), ("streaming", "StreamedResponse"))
    more = "\n".join(
        [
            *(f"{path}: {prefix}{name}" for path, name in sorted(roots.items())),
            *(
                f"@property\ndef with_{form}_response(self) -> {prefix}OpenAIWith{end}: ..."
                for form, end in forms
            ),
        ]
    )
    client.body = [
        *ast.parse(more).body,
        *(node for node in client.body if not (isinstance(node, ast.AnnAssign) and _bound_of(node) in roots)),
    ]
    imports = [f"from specclient.resources.{path} import {prefix}{name}" for path, name in roots.items()]
    imports += [f"from specclient._client import {prefix}OpenAIWith{end}" for _, end in forms]
    tree.body = [
        *ast.parse("\n".join(imports)).body,
        *(node for node in tree.body if not isinstance(node, ast.If)),
        *ast.parse(f"from specclient.resources.costs import {prefix}Costs").body,
    ]
    return stub_of(tree)


def _bound_of(node: ast.AnnAssign) -> str:
    return node.target.id if isinstance(node.target, ast.Name) else ""


def _module_client() -> str:
    """Return the stub of the module whose names are the resources of the module-level client."""
    tree = _tree("openai._module_client")
    tree.body = [node for node in tree.body if not isinstance(node, ast.ClassDef)]
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            node.value = None
    return stub_of(tree)


def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))
