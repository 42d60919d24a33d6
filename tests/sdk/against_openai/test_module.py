"""The package as a module: its names, its module-level client, environment variables and log levels."""

from __future__ import annotations

import functools
import importlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from both_clients import Both, Side
from loopback_server import OpenAIServer, reply

import specclient
from specclient.client import module_client

ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}
SETTINGS = (
    *module_client.OPENAI_OPTIONS,
    *module_client.AZURE_OPTIONS,
    *module_client.BEDROCK_OPTIONS,
    "api_type",
)


def test_every_name_of_openai_exists() -> None:
    names = {*openai.__all__, "APIResponse", "AsyncAPIResponse", "AzureOpenAI", "AsyncAzureOpenAI"}
    names |= {"AssistantEventHandler", "AsyncAssistantEventHandler", "HttpxBinaryResponseContent", "VERSION"}
    names |= {"pydantic_function_tool", "pydantic_responses_function_tool"}
    missing = {name for name in names if not hasattr(specclient, name)}
    assert missing == set()


def test_exported_names_exist_and_are_listed_by_dir() -> None:
    assert {*specclient.__all__} <= {*dir(specclient)}
    assert all(hasattr(specclient, name) for name in specclient.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = specclient.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in openai.__all__ if name.endswith("Error")])
def test_error_classes_have_the_same_base_classes(name: str) -> None:
    ours, theirs = getattr(specclient, name), getattr(openai, name)
    wanted = {cls.__name__ for cls in theirs.__mro__}
    assert wanted <= {cls.__name__ for cls in ours.__mro__}


def test_default_settings_are_equal() -> None:
    assert specclient.DEFAULT_MAX_RETRIES == openai.DEFAULT_MAX_RETRIES
    assert specclient.DEFAULT_TIMEOUT.as_dict() == openai.DEFAULT_TIMEOUT.as_dict()
    limits, theirs = specclient.DEFAULT_CONNECTION_LIMITS, openai.DEFAULT_CONNECTION_LIMITS
    assert (limits.max_connections, limits.max_keepalive_connections) == (
        theirs.max_connections,
        theirs.max_keepalive_connections,
    )
    #: Internal options of the OpenAI client, not documented.
    internal = {"stream_mode", "synthesize_event_and_data"}
    assert {*openai.RequestOptions.__annotations__} - internal == {*specclient.RequestOptions.__annotations__}
    assert specclient.NoneType is type(None)


MODULES = [
    *(
        "auth",
        "helpers",
        "lib",
        "lib.azure",
        "lib.computer",
        "lib.streaming",
        "lib.streaming.chat",
        "lib.streaming.responses",
        "pagination",
        "version",
    ),
    *("types", "types.chat", "types.responses", "types.shared", "types.shared_params", "types.beta.threads"),
]


@pytest.fixture
def settings() -> Iterator[None]:
    """Restore the modules' settings after a test."""
    before = {(lib, name): getattr(lib, name, None) for lib in (openai, specclient) for name in SETTINGS}
    yield
    for (lib, name), value in before.items():
        setattr(lib, name, value)
    openai._reset_client()  # type: ignore[attr-defined, no-untyped-call]
    module_client.reset()


def call_module_client(lib: Any, server: OpenAIServer, **chosen: Any) -> Any:
    openai._reset_client()  # type: ignore[attr-defined, no-untyped-call]
    for name, value in chosen.items():
        setattr(lib, name, value)
    return lib.chat.completions.create(**ASK).to_dict()


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"organization": "org", "project": "p"},
        {"default_headers": {"X-Mine": "1"}, "default_query": {"a": 1}},
        {"timeout": 5, "max_retries": 0},
        {"api_type": "openai"},
    ],
    ids=str,
)
def test_the_module_makes_calls_with_its_settings(chosen: dict[str, Any]) -> None:
    both = Both(is_async=False)

    def scenario(side: Side) -> Any:
        server: Any = None
        return call_module_client(side.lib, server, api_key="sk-module", base_url=f"{side.url}/v1/", **chosen)

    both.same(scenario)


@pytest.mark.usefixtures("settings")
def test_changed_module_settings_apply_to_later_calls() -> None:
    def scenario(side: Side) -> Any:
        lib: Any = side.lib
        call_module_client(lib, None, api_key="sk-one", base_url=f"{side.url}/v1/")  # type: ignore[arg-type]
        lib.api_key = "sk-two"
        lib.organization = "org-2"
        lib.chat.completions.create(**ASK)
        lib.models.list()
        return [lib.embeddings is not None, list(lib.models.list())]

    Both(is_async=False).same(scenario)


@pytest.mark.usefixtures("settings")
def test_the_module_makes_azure_calls() -> None:
    def scenario(side: Side) -> Any:
        azure = {"api_type": "azure", "azure_endpoint": side.url, "api_version": "v1", "api_key": "az-key"}
        return call_module_client(side.lib, None, **azure)  # type: ignore[arg-type]

    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    Both(is_async=False).same(scenario, reply(200, answer))


@pytest.mark.usefixtures("settings")
def test_keys_of_openai_and_azure_without_an_api_type_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "az-x")
    for lib in (openai, specclient):
        with pytest.raises(lib.OpenAIError, match="api_type"):
            call_module_client(lib, None)  # type: ignore[arg-type]


def test_environment_variables_set_the_client_options(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-env")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-env")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin-env")
    monkeypatch.setenv("OPENAI_WEBHOOK_SECRET", "whsec-env")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-One: 1\nX-Two:two: 2 \n\nnonsense")

    def scenario(side: Side) -> Any:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{side.url}/env")
        client = side.make(max_retries=0, default_headers={"X-Two": "mine"})
        side.get(client.chat.completions.create(**ASK))
        side.get(client.admin.organization.projects.retrieve("p"))
        return [
            client.organization,
            client.project,
            client.admin_api_key,
            client.webhook_secret,
            client.base_url,
        ]

    both.same(scenario, reply(200, {"choices": [], "id": "x"}), reply(200, {"id": "p"}))


def test_arguments_override_environment_variables(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL", "ADMIN_KEY"):
        monkeypatch.setenv(f"OPENAI_{name}", "http://from-the-environment.test")
    both.same(
        lambda side: side.get(side.client.chat.completions.create(**ASK)), organization="org", project="p",
        admin_api_key="a",
    )  # fmt: skip


def test_empty_environment_variables_count_as_unset(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "")
    both.same(
        lambda side: side.get(side.client.chat.completions.create(**ASK)), hide=("openai-organization",)
    )


@pytest.mark.parametrize("level", ["debug", "info", "nonsense", ""])
def test_openai_log_sets_the_same_log_level(level: str, tmp_path: Path) -> None:
    """A separate process reads OPENAI_LOG, because it changes the log level of the whole process."""
    program = "import logging, {0}; {0}.OpenAI(api_key='k'); print(logging.getLogger({0!r}).level)"
    levels = []
    for lib in ("openai", "specclient"):
        done = subprocess.run(
            [sys.executable, "-c", program.format(lib)],
            env={"OPENAI_LOG": level, "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        levels.append(int(done.stdout))
    assert levels[0] == levels[1]
    assert levels[0] in (logging.NOTSET, logging.INFO, logging.DEBUG)


def test_variables_of_azure_set_the_names_of_the_module(tmp_path: Path) -> None:
    program = "import {0}; print({0}.api_type, {0}.api_version, {0}.azure_endpoint)"
    variables = {"OPENAI_API_TYPE": "azure", "OPENAI_API_VERSION": "v7", "AZURE_OPENAI_ENDPOINT": "https://a"}
    for lib in ("openai", "specclient"):
        done = subprocess.run(
            [sys.executable, "-c", program.format(lib)],
            env={**variables, "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "azure v7 https://a\n"


@pytest.mark.parametrize("name", MODULES)
def test_submodules_have_the_same_names(name: str) -> None:
    theirs, ours = (importlib.import_module(f"{lib}.{name}") for lib in ("openai", "specclient"))
    missing = {found for found in getattr(theirs, "__all__", ()) if not hasattr(ours, found)}
    assert {found for found in missing if not found.endswith("HandlerT")} == set()  # type variables


def test_every_resource_of_the_client_is_a_name_of_the_module() -> None:
    resources = {
        name for name, found in vars(openai.OpenAI).items() if isinstance(found, functools.cached_property)
    } - {"with_raw_response", "with_streaming_response"}
    assert len(resources) > 20
    assert {name for name in resources if not hasattr(specclient, name)} == set()
