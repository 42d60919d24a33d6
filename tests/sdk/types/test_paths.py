"""Every name of the OpenAI client's types can be imported from the same path here."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import openai.types
import pydantic
import pytest
from openai.resources.chat.completions import Completions as Chats
from openai.resources.completions import Completions
from openai.resources.embeddings import Embeddings
from openai.resources.moderations import Moderations
from openai.resources.responses import Responses

from specclient.openai_api.homes import HOMES
from specclient.openai_api.names import PACKAGES
from specclient.openai_api.unions import OTHERS, UNIONS
from specclient.types import create_params, params
from specclient.types.base import WireModel
from specclient.types.named import named, reader
from specclient.types.open import OpenObject, open_class

MODULES = ["openai.types", *(m.name for m in pkgutil.walk_packages(openai.types.__path__, "openai.types."))]
WRITTEN = ["specclient.types", *(f"specclient.types.{name}" for name in HOMES if name)]


def ours(module: str) -> ModuleType:
    return importlib.import_module(module.replace("openai", "specclient", 1))


def public(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return [name for name in names if name != "annotations" and not inspect.ismodule(getattr(module, name))]


def test_every_type_name_exists_at_the_same_path() -> None:
    missing = [
        f"{module}.{name}"
        for module in MODULES
        for name in public(importlib.import_module(module))
        if not hasattr(ours(module), name)
    ]
    assert not missing
    assert len(MODULES) > 1000  # otherwise the walk missed modules


def test_models_are_models_and_parameters_are_mappings() -> None:
    for package in PACKAGES:
        module = f"openai.types.{package}".rstrip(".")
        for name in public(importlib.import_module(module)):
            theirs, found = getattr(importlib.import_module(module), name), getattr(ours(module), name)
            if inspect.isclass(theirs) and issubclass(theirs, openai.BaseModel):
                assert issubclass(found, WireModel), name
                assert found.__name__ in (name, theirs.__name__)
            elif inspect.isclass(theirs) and issubclass(theirs, dict):
                assert issubclass(getattr(found, "__origin__", found), dict), name


def test_declared_types_have_the_same_fields_aliases_and_type_names() -> None:
    compared = 0
    for module in MODULES:
        for name in public(importlib.import_module(module)):
            theirs, found = getattr(importlib.import_module(module), name), getattr(ours(module), name, None)
            if _is_declared(found):
                assert list(found.model_fields) == list(theirs.model_fields), f"{module}.{name}"
                aliases = [field.alias for field in theirs.model_fields.values()]
                assert [field.alias for field in found.model_fields.values()] == aliases, f"{module}.{name}"
                if "type" in theirs.model_fields:
                    words = [get_args(kind.model_fields["type"].annotation) for kind in (found, theirs)]
                    assert words[0] == words[1], f"{module}.{name}"
                compared += 1
    assert compared > 300


@pytest.mark.parametrize("package", WRITTEN)
def test_the_stub_files_list_every_declared_type(package: str) -> None:
    module = importlib.import_module(package)
    stub = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    stub_names = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    assert stub_names
    for name, home in stub_names.items():
        assert getattr(module, name) is getattr(importlib.import_module(str(home)), name), name
    written = {name for name in module.__all__ if _is_declared(getattr(module, name))}
    assert written <= set(stub_names)


def _is_declared(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, WireModel) and not issubclass(kind, OpenObject)


def test_unknown_names_and_modules_cannot_be_imported() -> None:
    for module in ("specclient.types", "specclient.types.chat", "specclient.types.beta.threads"):
        with pytest.raises(ImportError, match="NothingLikeIt"):
            exec(f"from {module} import NothingLikeIt")
    for module in ("specclient.types.nothing", "specclient.types.beta.nothing", "specclient.types.chat.Run"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)
    with pytest.raises(AttributeError):
        importlib.import_module("specclient.types.beta.threads.run").lower_case  # noqa: B018


def test_specclients_own_types_can_be_imported_too() -> None:
    from specclient.types import Call, Decision, Usage, route

    assert {Call.__module__, Usage.__module__} == {"specclient.types.call", "specclient.types.usage"}
    assert Decision is open_class("Decision") is not route.Decision  # the OpenAI type has this name


def test_open_objects_give_attribute_access_dump_and_pickle() -> None:
    from specclient.types.beta.threads import Run
    from specclient.types.beta.threads.run import RequiredAction
    from specclient.types.beta.threads.run import Run as Deep

    assert Run is Deep is open_class("beta.threads.Run")
    body = {
        "id": "run_1",
        "tools": [{"type": "x", "n": 1}, [{"y": None}]],
        "usage": {"a": {"b": 1.5}},
        "t": "1",
    }
    run = Run.received(b'{"id": "run_1", "tools": [{"type": "x", "n": 1}, [{"y": null}]],'
                       b' "usage": {"a": {"b": 1.5}}, "t": "1"}')  # fmt: skip
    assert (run.tools[0].type, run.tools[1][0].y, run.usage.a.b) == ("x", None, 1.5)
    assert run.model_dump() == run.to_dict() == body
    assert run == pickle.loads(pickle.dumps(run)) == Run.construct(**body) == run.model_copy(deep=True)
    assert repr(run).startswith("Run(id='run_1', tools=[OpenObject(type='x', n=1)")
    assert pickle.loads(pickle.dumps(RequiredAction)) is RequiredAction
    with pytest.raises(AttributeError, match="nothing"):
        run.nothing  # noqa: B018


def test_a_union_of_open_classes_is_selected_by_its_tag() -> None:
    from specclient.types.beta.assistant_stream_event import ThreadMessageDelta

    read = reader("beta.AssistantStreamEvent")
    event = read(b'{"event": "thread.message.delta", "data": {"id": "msg_1"}}')
    assert type(event) is ThreadMessageDelta
    assert event.data.id == "msg_1"
    assert event == pickle.loads(pickle.dumps(event))
    assert type(read(b'{"event": "thread.alien"}')) is type(read(b"{}")) is OpenObject
    with pytest.raises(pydantic.ValidationError):
        read(b"[1]")


@pytest.mark.parametrize("path", sorted(UNIONS))
def test_unions_have_the_same_members(path: str) -> None:
    package, _, name = path.rpartition(".")
    module = f"openai.types.{package}".rstrip(".")
    theirs, found = getattr(importlib.import_module(module), name), getattr(ours(module), name)
    wanted = {kind.__name__ for kind in get_args(get_args(theirs)[0]) if isinstance(kind, type)}
    assert {kind.__name__ for kind in get_args(get_args(found)[0])} >= wanted


@pytest.mark.parametrize("path", sorted(OTHERS))
def test_unions_without_a_discriminator_have_the_same_members(path: str) -> None:
    package, _, name = path.rpartition(".")
    theirs, found = getattr(importlib.import_module(f"openai.types.{package}"), name), named(path)
    wanted = {part.__name__ if inspect.isclass(part) else "str" for part in get_args(theirs)}
    assert {part.__name__ for part in get_args(found)} == wanted
    assert found is not None
    for part in get_args(found):
        if part not in (str, type(None)):
            assert isinstance(part.construct(), get_args(found))


def test_a_response_is_an_instance_of_a_member_of_its_union() -> None:
    from specclient.types.audio import TranslationCreateResponse, TranslationVerbose
    from specclient.types.beta import AssistantResponseFormatOption

    from specclient.types.shared import ResponseFormatText

    assert isinstance(TranslationVerbose.construct(text="Hi"), TranslationCreateResponse)
    assert ResponseFormatText in get_args(AssistantResponseFormatOption)


@pytest.mark.parametrize(
    ("create", "mine", "given"),
    [
        (Chats.create, create_params.ChatCreateParams, {"messages", "model", "stream"}),
        (Completions.create, create_params.CompletionCreateParams, {"prompt", "model", "stream"}),
        (Embeddings.create, create_params.EmbeddingCreateParams, {"input", "model"}),
        (Moderations.create, create_params.ModerationCreateParams, {"input"}),
        (Responses.create, create_params.ResponseCreateParams, set()),
    ],
)
def test_create_parameters_equal_the_openai_clients_plus_specclients(
    create: Any, mine: Any, given: set[str]
) -> None:
    theirs = set(inspect.signature(create).parameters) - {"self"} - given
    assert set(mine.__annotations__) == theirs | {
        "policy",
        "tags",
        "deadline_s",
        "strategy",
        "drop_params",
        "session",
        "cache",
    }


def test_not_given_and_omit_are_distinct() -> None:
    assert not params.NOT_GIVEN
    assert not params.omit
    assert type(params.not_given) is type(params.NOT_GIVEN) is params.NotGiven is not params.Omit
    assert repr(params.NOT_GIVEN) == repr(openai.NOT_GIVEN)


def test_importing_a_type_loads_only_its_modules() -> None:
    code = (
        "import sys; from specclient.types.chat import ChatCompletion; "
        "from specclient.types.beta import Assistant; print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "specclient.types.responses" not in loaded
    assert "specclient.types.chat.params" not in loaded
