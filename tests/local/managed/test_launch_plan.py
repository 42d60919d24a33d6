"""The start of servers: the exported command, installed programs, and the options of older versions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from managed_engines import engine_table, managed_model
from paths import ROOT
from specclient_local.export import SERVERS, launch
from specclient_local.managed.engine_folder import EngineFolder
from specclient_local.managed.engine_server import EngineServer
from specclient_local.managed.handshake import UnsuitableServerError, checked_command, without_options
from specclient_local.managed.launch_plan import deployment_of, launch_spec
from specclient_local.managed.launch_spec import LaunchSpec
from specclient_local.managed.supervisor import environment

from specclient.errors import ConfigurationError, EngineError

FOLDER = EngineFolder(Path("/nowhere"))
PAIR = {"path": "org/big", "draft": "org/small", "draft_length": 3, "context": 512, "dtype": "bfloat16"}

#: A program that prints its options for `--help`, and its version.
HELPFUL = """#!/bin/sh
case "$*" in
  *--help*) echo "usage: %s"; exit %d;;
  *--version*) echo "warning: slow"; echo 0.6.1; exit 0;;
esac
echo "ValueError: started with $*"
exit 3
"""

#: An interpreter with SGLang, as far as its options and its version go.
SGLANG = """#!/bin/sh
case "$*" in
  "-m sglang.launch_server --help") grep -v ^# {options};;
  "-c import sglang; print(sglang.__version__)") echo 0.5.23;;
  *) exit 2;;
esac
"""


@pytest.fixture
def environment_folder(tmp_path: Path) -> Path:
    """Return a folder with an interpreter, beside which tests put programs."""
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    return folder


def _program(folder: Path, name: str, options: str, status: int = 0) -> Path:
    program = folder / name
    program.write_text(HELPFUL % (options, status))
    program.chmod(0o755)
    return program


def _spec(**table: Any) -> LaunchSpec:
    return launch_spec(managed_model({**PAIR, **table}), FOLDER)


def test_the_command_is_the_exported_one(environment_folder: Path) -> None:
    program = _program(environment_folder, "vllm", "")
    model = managed_model(
        {**PAIR, "engine": "vllm", "python": str(environment_folder / "python"), "arguments": ["--seed", "1"]}
    )
    spec, plan = launch_spec(model, FOLDER), launch("vllm", deployment_of(model))
    exported = [str(program), *plan.command[1:], "--seed", "1"]
    exported[exported.index("--port") + 1] = "{port}"
    assert list(spec.command) == exported
    assert "--max-model-len 512 --dtype bfloat16" in " ".join(exported)
    assert '"num_speculative_tokens": 3' in " ".join(exported)
    assert "--seed" not in (*spec.planned, *spec.optional), "the user's own options are not checked"
    assert spec.env == {"VLLM_API_KEY": "{key}"}
    assert spec.served_name == "big"
    assert LaunchSpec.from_json(spec.to_json()) == spec


def test_every_planned_engine_says_how_it_is_started_and_given_a_key(environment_folder: Path) -> None:
    for engine, name in (
        ("sglang", "python"),
        ("llama.cpp", "llama-server"),
        ("transformers", "transformers"),
    ):
        if name != "python":
            _program(environment_folder, name, "")
        target = {"path": "/m.gguf", "draft": "/d.gguf"} if engine == "llama.cpp" else {"draft": None}
        spec = _spec(engine=engine, python=str(environment_folder / "python"), **target)
        assert spec.command[0] == str(environment_folder / name)
        assert spec.command[spec.command.index("--port") + 1] == "{port}"
        program = SERVERS[engine].program
        assert program is not None
        has_key = "{key}" in (*spec.command, *spec.env.values())
        assert has_key == bool(program.key_variable or program.key_option)
    assert spec.served_name == "org/big", "transformers serve knows a model by its path"


def test_the_bundled_pair_is_served_from_its_folder(environment_folder: Path) -> None:
    _program(environment_folder, "vllm", "")
    spec = _spec(path="demo", draft=None, engine="vllm", python=str(environment_folder / "python"))
    assert spec.command[2].endswith("bundled/target")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"engine": "vllm", "python": "/nowhere/bin/python"}, "'/nowhere/bin/python' does not exist"),
        ({"engine": "vllm"}, "'vllm' is not on PATH; install vLLM in an environment"),
        ({"engine": "llama.cpp"}, "reads GGUF files.*specclient local export big --to llama.cpp"),
        (
            {"engine": "sglang", "method": "layer_skip", "layer_skip": 1},
            "cannot draft with layers of the target",
        ),
        ({"command": ["no-such-program"]}, "'no-such-program', which is not a program on PATH"),
        ({"command": ["./no/such"]}, "which is not a program"),
    ],
)
def test_what_cannot_be_started_is_told_with_the_way_out(
    table: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=message):
        _spec(**table)


def test_a_script_missing_beside_the_interpreter_is_told(environment_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"env/bin/vllm' does not exist"):
        _spec(engine="vllm", python=str(environment_folder / "python"))


VLLM_OPTIONS = "--served-model-name --host --port --max-model-len --dtype --speculative-config --seed"


def test_an_optional_option_that_the_program_lacks_is_left_out(environment_folder: Path) -> None:
    _program(environment_folder, "vllm", VLLM_OPTIONS)
    spec = _spec(engine="vllm", python=str(environment_folder / "python"))
    assert "--per-request-spec-decode-metrics" in spec.command
    command, dropped = checked_command(spec, {})
    assert dropped == spec.telemetry_options == ("--per-request-spec-decode-metrics",)
    assert command == spec.command[:-2]
    _program(environment_folder, "vllm", f"{VLLM_OPTIONS} --per_request_spec_decode_metrics")
    assert checked_command(spec, {}) == (spec.command, ())


def test_a_needed_option_that_the_program_lacks_is_told_with_the_version(environment_folder: Path) -> None:
    _program(environment_folder, "vllm", VLLM_OPTIONS.replace("--speculative-config", ""))
    spec = _spec(engine="vllm", python=str(environment_folder / "python"))
    with pytest.raises(
        UnsuitableServerError,
        match=r"vLLM 0\.6\.1 at .*bin/vllm has no option --speculative-config, which local/big",
    ):
        checked_command(spec, {})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "--speculative-algorithm STANDALONE --speculative-draft-model-path org/small"),
        (
            {"path": "demo", "draft": None, "heads": "bundled:eagle3", "method": "eagle"},
            "--speculative-algorithm EAGLE3",
        ),
        ({"draft": None, "method": "ngram"}, "--speculative-algorithm NGRAM"),
        ({"draft": None}, "--dtype bfloat16 --enable-metrics"),
    ],
)
def test_sglang_is_started_with_options_that_it_has(
    environment_folder: Path, table: dict[str, Any], words: str
) -> None:
    """The options are those that SGLang 0.5.23 printed."""
    python = environment_folder / "sglang"
    python.write_text(SGLANG.format(options=ROOT / "tests" / "data" / "engines" / "sglang_options.txt"))
    python.chmod(0o755)
    spec = _spec(engine="sglang", python=str(python), **table)
    assert checked_command(spec, {"PATH": "/usr/bin:/bin"}) == (spec.command, ())
    assert spec.command[:3] == (str(python), "-m", "sglang.launch_server")
    assert words in " ".join(spec.command)
    assert spec.command[-2:] == ("--api-key", "{key}")
    python.write_text(python.read_text().replace("grep -v ^#", "grep -v -e ^# -e --context-length"))
    with pytest.raises(UnsuitableServerError, match=r"SGLang 0\.5\.23 at .* no option --context-length"):
        checked_command(spec, {"PATH": "/usr/bin:/bin"})


def test_a_help_that_is_not_understood_changes_nothing(environment_folder: Path) -> None:
    _program(environment_folder, "vllm", "no options here")
    spec = _spec(engine="vllm", python=str(environment_folder / "python"))
    assert checked_command(spec, {}) == (spec.command, ())


def test_a_program_without_a_help_is_told(environment_folder: Path) -> None:
    _program(environment_folder, "vllm", "ImportError: libcudart.so.13 not found", status=1)
    spec = _spec(engine="vllm", python=str(environment_folder / "python"))
    with pytest.raises(
        UnsuitableServerError, match=r"serve --help` failed: .*libcudart.so.13 not found; reinstall"
    ):
        checked_command(spec, {})
    with pytest.raises(UnsuitableServerError, match=r"cannot be run: No such file"):
        checked_command(LaunchSpec.from_json(spec.to_json().replace(spec.command[0], "/nowhere/vllm")), {})


@pytest.mark.anyio
async def test_a_planned_server_that_is_unsuitable_or_fails_is_one_error(environment_folder: Path) -> None:
    table = {**PAIR, "engine": "vllm", "python": str(environment_folder / "python")}
    _program(environment_folder, "vllm", VLLM_OPTIONS.replace("--dtype", ""))
    with pytest.raises(EngineError, match=r"vLLM 0\.6\.1 .* has no option --dtype.*install a newer version"):
        await EngineServer(managed_model(table)).acquire()
    _program(environment_folder, "vllm", VLLM_OPTIONS)
    with pytest.raises(
        EngineError, match=r"status 3\. Its log ends: ValueError: started with serve org/big .*--port \d"
    ):
        await EngineServer(managed_model(table)).acquire()


def test_values_of_options_are_left_out_with_them() -> None:
    command = ("vllm", "serve", "m", "--a", "1", "--b", "--c", "x", "y", "--d")
    assert without_options(command, ("--a", "--c")) == ("vllm", "serve", "m", "--b", "--d")


def test_the_environment_has_no_keys_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "SPECCLIENT_SERVER_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "users {key}")
    spec = launch_spec(managed_model(engine_table(env={"OWN_KEY": "{key}", "AT": "{host}:{port}"})), FOLDER)
    found = environment(spec, "made", 5)
    assert {name for name, value in found.items() if value.startswith("users")} == {"HF_TOKEN"}
    assert (found["OWN_KEY"], found["AT"], found["HF_TOKEN"]) == ("made", "127.0.0.1:5", "users {key}")
