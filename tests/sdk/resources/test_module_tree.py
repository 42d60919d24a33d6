"""The classes of resources under the module paths of the `openai` package."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import subprocess
import sys
from typing import Any

import openai.resources
import pytest

from specclient import AsyncOpenAI, OpenAI
from specclient.openai_api.resource_modules import RESOURCES

MODULES = [
    "openai.resources",
    *(info.name for info in pkgutil.walk_packages(openai.resources.__path__, "openai.resources.")),
]
KEYS: dict[str, Any] = {"api_key": "key", "admin_api_key": "key", "base_url": "http://localhost:1/v1"}


#: Resources with methods that open websockets alone.
SOCKETS = {"live.forks", "live.sideband"}


def ours(module: str) -> Any:
    return importlib.import_module(module.replace("openai", "specclient", 1))


def test_every_class_of_resources_can_be_imported_from_the_same_path() -> None:
    missing = [
        f"{module}.{name}"
        for module in MODULES
        for name in importlib.import_module(module).__all__
        if not isinstance(getattr(ours(module), name, None), type)
        and not name.endswith(("WithRawResponse", "WithStreamingResponse"))
        and module.removeprefix("openai.resources.") not in SOCKETS
        and f"live.{name.removeprefix('Async').lower()}" not in SOCKETS
    ]
    assert missing == []
    assert len(MODULES) > 150


@pytest.mark.parametrize("module", sorted(RESOURCES.keys() - SOCKETS))
def test_a_clients_resources_are_objects_of_these_classes(module: str) -> None:
    resource, name = RESOURCES[module].split()
    found = ours(f"openai.resources.{module}")
    for client, prefix in ((OpenAI(**KEYS), ""), (AsyncOpenAI(**KEYS), "Async")):
        one = functools.reduce(getattr, resource.split("."), client)
        assert type(one) is getattr(found, f"{prefix}{name}")
        assert isinstance(one, ours("openai._resource").SyncAPIResource)


def test_a_replaced_method_of_a_class_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    from specclient.resources.beta.threads import Threads
    from specclient.resources.chat.completions import AsyncCompletions, Completions

    client = OpenAI(**KEYS)
    monkeypatch.setattr(Completions, "create", lambda self, **given: given["model"])
    monkeypatch.setattr(Threads, "retrieve", lambda self, thread_id: thread_id)
    assert client.chat.completions.create(model="m", messages=[]) == "m"
    assert client.beta.threads.retrieve("thread_1") == "thread_1"
    assert isinstance(AsyncOpenAI(**KEYS).chat.completions, AsyncCompletions)


def test_unknown_names_and_modules_cannot_be_imported() -> None:
    for module in ("specclient.resources", "specclient.resources.chat", "specclient.resources.files"):
        with pytest.raises(ImportError, match="NothingLikeIt"):
            exec(f"from {module} import NothingLikeIt")
    for module in ("specclient.resources.nothing", "specclient.resources.chat.nothing"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)


def test_importing_a_client_does_not_load_the_tree() -> None:
    code = "import sys, specclient; specclient.OpenAI; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "specclient.resources.module_tree" not in loaded.split()
