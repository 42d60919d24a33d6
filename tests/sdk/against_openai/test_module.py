"""The module itself: names, its own client, the environment, and what is logged."""

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
SETTINGS = (*module_client.OPENAI_OPTIONS, *module_client.AZURE_OPTIONS, "api_type")

#: Names of ``openai`` that are not here, with the reason.
ABSENT = {
    "BedrockOpenAI": "signs requests for AWS, which takes botocore, and speaks a dialect of its own",
    "AsyncBedrockOpenAI": "as BedrockOpenAI",
    "ReconnectingEvent": "of WebSocket connections, which this package has none of",
    "ReconnectingOverrides": "as ReconnectingEvent",
    "ComputerToolset": "drives a desktop, by a package of its own",
    "AsyncComputerToolset": "as ComputerToolset",
    "ComputerDriver": "as ComputerToolset",
    "AsyncComputerDriver": "as ComputerToolset",
}


def test_every_name_is_here() -> None:
    names = {*openai.__all__, "APIResponse", "AsyncAPIResponse", "AzureOpenAI", "AsyncAzureOpenAI"}
    names |= {"AssistantEventHandler", "AsyncAssistantEventHandler", "HttpxBinaryResponseContent", "VERSION"}
    names |= {"pydantic_function_tool", "pydantic_responses_function_tool"}
    missing = {name for name in names if not hasattr(specclient, name)}
    assert missing == set(ABSENT)


def test_names_are_exported_and_listed() -> None:
    assert {*specclient.__all__} <= {*dir(specclient)}
    assert all(hasattr(specclient, name) for name in specclient.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = specclient.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in openai.__all__ if name.endswith("Error")])
def test_errors_descend_as_theirs(name: str) -> None:
    ours, theirs = getattr(specclient, name), getattr(openai, name)
    wanted = {cls.__name__ for cls in theirs.__mro__}
    assert wanted <= {cls.__name__ for cls in ours.__mro__}


def test_defaults_are_theirs() -> None:
    assert specclient.DEFAULT_MAX_RETRIES == openai.DEFAULT_MAX_RETRIES
    assert specclient.DEFAULT_TIMEOUT.as_dict() == openai.DEFAULT_TIMEOUT.as_dict()
    limits, theirs = specclient.DEFAULT_CONNECTION_LIMITS, openai.DEFAULT_CONNECTION_LIMITS
    assert (limits.max_connections, limits.max_keepalive_connections) == (
        theirs.max_connections,
        theirs.max_keepalive_connections,
    )
    #: Of the making of that client itself, and in no documentation.
    inner = {"stream_mode", "security", "synthesize_event_and_data"}
    assert {*openai.RequestOptions.__annotations__} - inner == {*specclient.RequestOptions.__annotations__}
    assert specclient.NoneType is type(None)


MODULES = [
    *(
        "lib",
        "lib.azure",
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
    """Put back what a test sets on the modules."""
    before = {(lib, name): getattr(lib, name, None) for lib in (openai, specclient) for name in SETTINGS}
    yield
    for (lib, name), value in before.items():
        setattr(lib, name, value)
    openai._reset_client()  # type: ignore[attr-defined, no-untyped-call]
    module_client.reset()


def through_module(lib: Any, server: OpenAIServer, **chosen: Any) -> Any:
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
def test_the_module_is_a_client(chosen: dict[str, Any]) -> None:
    both = Both(is_async=False)

    def scenario(side: Side) -> Any:
        server: Any = None
        return through_module(side.lib, server, api_key="sk-module", base_url=f"{side.url}/v1/", **chosen)

    both.same(scenario)


@pytest.mark.usefixtures("settings")
def test_the_module_follows_its_settings() -> None:
    def scenario(side: Side) -> Any:
        lib: Any = side.lib
        through_module(lib, None, api_key="sk-one", base_url=f"{side.url}/v1/")  # type: ignore[arg-type]
        lib.api_key = "sk-two"
        lib.organization = "org-2"
        lib.chat.completions.create(**ASK)
        lib.models.list()
        return [lib.embeddings is not None, list(lib.models.list())]

    Both(is_async=False).same(scenario)


@pytest.mark.usefixtures("settings")
def test_the_module_is_a_client_of_azure() -> None:
    def scenario(side: Side) -> Any:
        azure = {"api_type": "azure", "azure_endpoint": side.url, "api_version": "v1", "api_key": "az-key"}
        return through_module(side.lib, None, **azure)  # type: ignore[arg-type]

    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    Both(is_async=False).same(scenario, reply(200, answer))


@pytest.mark.usefixtures("settings")
def test_the_module_asks_which_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "az-x")
    for lib in (openai, specclient):
        with pytest.raises(lib.OpenAIError, match="api_type"):
            through_module(lib, None)  # type: ignore[arg-type]


def test_the_environment(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_arguments_win_over_the_environment(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL", "ADMIN_KEY"):
        monkeypatch.setenv(f"OPENAI_{name}", "http://from-the-environment.test")
    both.same(
        lambda side: side.get(side.client.chat.completions.create(**ASK)), organization="org", project="p",
        admin_api_key="a",
    )  # fmt: skip


def test_empty_variables_are_none(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "")
    both.same(
        lambda side: side.get(side.client.chat.completions.create(**ASK)), hide=("openai-organization",)
    )


@pytest.mark.parametrize("level", ["debug", "info", "nonsense", ""])
def test_log_levels(level: str, tmp_path: Path) -> None:
    """OPENAI_LOG is read by a process of its own, since it changes what is logged for good."""
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


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_the_same_name(name: str) -> None:
    theirs, ours = (importlib.import_module(f"{lib}.{name}") for lib in ("openai", "specclient"))
    wanted = {found for found in getattr(theirs, "__all__", ()) if found not in ABSENT}
    missing = {found for found in wanted if not hasattr(ours, found)}
    assert {found for found in missing if not found.endswith("HandlerT")} == set()  # type variables


def test_every_resource_of_the_client_is_here() -> None:
    resources = {
        name for name, found in vars(openai.OpenAI).items() if isinstance(found, functools.cached_property)
    } - {"with_raw_response", "with_streaming_response"}
    assert len(resources) > 20
    assert {name for name in resources if not hasattr(specclient, name)} == set()
