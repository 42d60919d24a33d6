"""Tables of models with servers of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from managed_engines import managed_model
from pydantic import SecretStr
from specclient_local.api import backend as backend_module
from specclient_local.api.backend import LocalBackend
from specclient_local.loading.configured_models import read_configured_models

from specclient.config import Settings, load
from specclient.errors import ConfigurationError
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import Request

VLLM = {"path": "org/big", "draft": "org/small", "engine": "vllm"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"engine": "ollama"}, "engine is 'ollama'; it must be one of own, vllm, sglang"),
        ({"engine": "trtllm"}, "used with command"),
        ({"keep_alive": 5}, "keep_alive is given; it must be left out without engine"),
        (
            {"engine": "vllm", "keep_alive": -1},
            "keep_alive is -1; it must be a number of seconds of at least 0",
        ),
        ({"engine": "vllm", "start_s": 0}, "start_s is 0; it must be a number of seconds of at least 1"),
        ({"engine": "vllm", "keep_alive": True}, "keep_alive is True"),
        ({"engine": "vllm", "arguments": "--x"}, "arguments is 'str'; it must be a list of words"),
        ({"engine": "vllm", "command": ["x"], "python": "p"}, "left out with command"),
        ({"command": []}, "a list that begins with a program"),
        ({"command": ["x"], "env": {"A B": "c"}}, "env.A B is 'str'"),
        ({"command": ["x"], "served_name": 5}, "served_name is 5; it must be text"),
        ({"engine": "vllm", "python": 3}, "python is 3; it must be text"),
        ({"engine": "vllm", "colour": "red"}, "'colour'; allowed are path, draft"),
    ],
)
def test_invalid_tables_are_refused_with_what_is_allowed(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        LocalBackend({"models": {"big": {"path": "org/big", **table}}})
    assert "local model 'big'" in str(caught.value)
    assert message in str(caught.value)


def test_values_of_the_environment_are_in_no_error_and_no_dump(tmp_path: Path) -> None:
    file = tmp_path / "specclient.toml"
    file.write_text('[local.models.big]\npath = "x"\nengine = "vllm"\nenv = { HF_TOKEN = "hf_secret" }\n')
    settings = load(file, env={})
    assert "hf_secret" not in repr(settings)
    assert "hf_secret" not in settings.model_dump_json()
    model = managed_model(settings.local.model_dump()["models"]["big"])
    assert model.env == {"HF_TOKEN": "hf_secret"}
    assert "hf_secret" not in repr(model)
    for text in ('env = { HF_TOKEN = "hf_secret" }', 'path = "x"\nenv = "hf_secret"'):
        file.write_text(f"[local.models.big]\n{text}\n")
        with pytest.raises(ConfigurationError) as caught:
            load(file, env={})
        assert "hf_secret" not in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        managed_model({"path": "x", "env": {"HF_TOKEN": SecretStr("hf_secret")}})
    assert "hf_secret" not in str(caught.value)


def test_the_engine_in_this_process_can_run_the_same_pair() -> None:
    settings = Settings.model_validate({"local": {"models": {"big": {**VLLM, "keep_alive": 5}}}})
    [pair] = [
        found for name, found in read_configured_models(settings.local.model_dump()).items() if name == "big"
    ]
    assert (pair.path, pair.options.draft, pair.stated_dtype) == ("org/big", ("org/small",), None)


def test_a_backend_lists_them_with_their_engine_and_starts_nothing() -> None:
    settings = Settings.model_validate({"local": {"models": {"big": VLLM}}})
    backend = LocalBackend(settings.local.model_dump())
    [listed] = [each for each in backend.models() if each.id == "big"]
    assert (listed.method, listed.options) == ("draft", {"engine": "vllm"})
    server = backend.server("big")
    assert server is backend.server("big")
    assert server is not None
    assert (server.provider, server.template, server.refused) == ("vllm", "org/big", ("min_p", "logit_bias"))
    assert server.folder.read_state() is None
    assert backend.server("demo") is None


@pytest.mark.anyio
async def test_the_libraries_of_the_engine_are_not_needed_for_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend_module, "_REQUIRED_LIBRARIES", ("no_such_library",))
    with pytest.raises(ConfigurationError, match="no_such_library missing"):
        backend_module.create({})
    backend = backend_module.create({"models": {"big": VLLM}})
    assert backend.server("big") is not None
    with pytest.raises(ConfigurationError, match="no_such_library missing"):
        await backend.complete(Request(COMPLETION, "local/demo", {"prompt": "x"}), "demo")


@pytest.mark.parametrize(
    ("table", "refused"),
    [
        ({"engine": "vllm"}, ()),
        ({"engine": "vllm", "method": "ngram"}, ("min_p", "logit_bias")),
        ({"engine": "vllm", "draft": "org/small", "method": "plain"}, ()),
        ({"engine": "sglang", "draft": "org/small"}, ()),
        ({"engine": "vllm", "draft": "org/small", "command": ["x"]}, ()),
    ],
)
def test_parameters_are_refused_only_while_the_server_speculates(
    table: dict[str, Any], refused: tuple[str, ...]
) -> None:
    assert managed_model({"path": "org/big", **table}).refused == refused


def test_local_checkpoints_have_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "big").mkdir()
    model = managed_model(
        {"path": "./big", "engine": "vllm", "python": "env/bin/python", "draft": "org/small"}
    )
    assert (model.pair.path, model.pair.options.draft) == (str(tmp_path / "big"), ("org/small",))
    assert model.python == str(tmp_path / "env" / "bin" / "python")
    assert model.template == str(tmp_path / "big")
    assert managed_model({"path": "m.gguf", "engine": "llama.cpp"}).template is None
