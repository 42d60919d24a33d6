"""All commands: help texts, exit codes, imports at start-up, and shell completion."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import click
import pytest
from specclient_cli import completion
from specclient_cli.common.lazy_group import LazyGroup
from specclient_cli.main import cli

HEAVY = ("torch", "transformers", "tokenizers", "tiktoken", "genai_prices")


def _walk(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command, info_name="x")
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found += _walk(inner, (*path, name))
    return found


EVERY = _walk(cli)


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[" ".join(p) or "specclient" for p, _ in EVERY])
def test_every_help_page_has_examples_and_explains_its_arguments(
    path: tuple[str, ...], command: click.Command, run
) -> None:
    code, out, err = run(*path, "--help")
    assert (code, err) == (0, "")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "Examples:" in out
    assert "specclient" in out.split("Examples:")[1]
    if not isinstance(command, click.Group):
        assert "Environment:" in out
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.opts} has no help"
        else:
            assert parameter.name is not None
            assert parameter.name.upper() in inspect.cleandoc(command.help or ""), (
                "an argument is not explained"
            )


def test_a_group_lists_the_first_line_of_each_command() -> None:
    for path, command in EVERY:
        if not isinstance(command, LazyGroup):
            continue
        for name, (location, line) in command.commands_table.items():
            assert location.endswith(":command")
            listed = command.get_command(click.Context(command), name)
            assert listed is not None
            assert (listed.help or "").splitlines()[0] == line, " ".join((*path, name))


def test_the_package_runs_as_the_script_does() -> None:
    command = [sys.executable, "-m", "specclient_cli", "cost", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: specclient cost ")


def test_exit_codes_are_documented(run) -> None:
    _, out, _ = run("--help")
    for code in ("0", "1", "2", "3", "4", "130"):
        assert f" {code}  " in out
    _, out, _ = run("--version")
    assert out.startswith("specclient ")


@pytest.mark.parametrize(
    "words",
    ["--help", "config show", "cost report", "route explain --help", "models", "local plan --help"],
)
def test_heavy_modules_are_not_imported_by_other_commands(words: str) -> None:
    code = (
        "import sys; from specclient_cli.main import run\n"
        f"code = run({words.split()!r})\n"
        f"print('loaded', *sorted(set({HEAVY!r}) & set(sys.modules)))\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "loaded"), done.stderr


def test_help_does_not_import_the_sdks_dependencies() -> None:
    code = (
        "import sys; from specclient_cli.main import run; run(['--help'])\n"
        "print('loaded', *sorted({'rich', 'pydantic', 'sqlalchemy', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded"


@pytest.mark.parametrize("name", completion.SHELLS)
def test_completion_scripts_are_printed(name: str, run) -> None:
    code, out, _ = run("completion", name)
    assert code == 0
    assert "_SPECCLIENT_COMPLETE" in out


def test_completion_uses_the_users_shell(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert run("completion")[1] == run("completion", "fish")[1]
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    code, _, err = run("completion")
    assert code == 2
    assert "'tcsh'" in err
    assert "bash, zsh, fish" in err


def _complete(shell, words: str) -> list[str]:
    env = {
        **os.environ,
        "_SPECCLIENT_COMPLETE": "bash_complete",
        "COMP_WORDS": f"specclient {words}",
        "COMP_CWORD": str(len(words.split(" "))),
    }
    code = "import sys; sys.argv = ['specclient']; from specclient_cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert not done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_models_and_options_are_completed(shell, hosted) -> None:
    assert _complete(shell, "co") == ["complete", "cost", "config", "completion"]
    assert {"mine/m-large", "mine/m-small", "mine/"} <= set(_complete(shell, "complete x -m mi"))
    assert "local/demo" in _complete(shell, "complete x -m lo")
    assert _complete(shell, "complete x --policy ") == ["cheap"]
    assert _complete(shell, "models list mi") == ["mistral", "mine"]
    assert _complete(shell, "cost report --by day,pro") == ["day,provider"]
    assert "providers.mine.base_url" in _complete(shell, "config show prov")


def test_completion_works_with_an_invalid_configuration(shell, in_empty_folder) -> None:
    (in_empty_folder / "specclient.toml").write_text("no = [")
    assert "local/demo" in _complete(shell, "complete x -m lo")
    assert _complete(shell, "complete x --policy ") == []
