"""README and documentation: snippets run, and commands, settings, named files and link targets exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import forked_program
import pytest
from loopback_server import OpenAIServer, Received, Wire, behave, reply
from paths import DATA, ROOT
from specclient_cli.main import cli
from specclient_local.loading.options import EngineOptions
from specclient_local.request.params import ENGINE_METHODS
from tiny_embeddings import write_embedding_checkpoint
from tiny_models import write_checkpoint

from specclient.config import Settings
from specclient.providers import PRESETS

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [path.name for path in PAGES]

#: Program that runs each page's blocks in order, with top-level `await`, as a notebook does. All pages run in
#: one process, which imports torch once, with separate namespaces. It prints each page's traceback, or null.
RUN = """
import ast, asyncio, inspect, json, sys, traceback
async def page(blocks):
    names = {}
    try:
        for block in blocks:
            result = eval(compile(block, "snippet", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(result):
                await result
    finally:
        for value in list(names.values()):
            if type(value).__name__ == "OpenAI":
                await asyncio.to_thread(value.close)
            elif type(value).__name__ == "AsyncOpenAI":
                await value.close()
failures, out, sys.stdout = {}, sys.stdout, sys.stderr
for name, blocks in json.load(sys.stdin).items():
    try:
        asyncio.run(page(blocks))
        failures[name] = None
    except BaseException:
        failures[name] = traceback.format_exc()
json.dump(failures, out)
"""


def blocks(path: Path, language: str) -> list[str]:
    """Return the fenced code blocks of a page in a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


async def _answer(received: Received, wire: Wire) -> None:
    """Answer like a model: JSON if a response format is requested, a vector for an embedding, else text."""
    request = received.json
    if received.path.endswith(("generateContent", "rawPredict")):  # of Vertex AI
        folder = "gemini" if "publishers/google" in received.path else "anthropic"
        return await reply(200, json.loads((DATA / folder / "text.json").read_bytes()))(received, wire)
    if received.path.endswith("/converse"):
        content = {"message": {"role": "assistant", "content": [{"text": "Reynard."}]}}
        usage = {"inputTokens": 9, "outputTokens": 4, "totalTokens": 13}
        body = {"output": content, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 7}}
        return await reply(200, body)(received, wire)
    if received.path.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
        body = {
            "object": "list",
            "model": request["model"],
            "data": data,
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
        return await reply(200, body)(received, wire)
    if "response_format" in request and not request.get("stream"):
        message = {"role": "assistant", "content": json.dumps({"title": "base case"})}
        choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
        body = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": request["model"],
            "choices": [choice],
        }
        return await reply(200, body)(received, wire)
    return await behave(received, wire)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a configuration of providers on loopback, and of tiny models as local/demo."""
    made = tmp_path_factory.mktemp("pages")
    target = write_checkpoint(made / "target", max_position_embeddings=512, eos_token_id=None)
    draft = write_checkpoint(
        made / "draft", num_hidden_layers=1, max_position_embeddings=512, eos_token_id=None
    )
    embedding = write_embedding_checkpoint(made / "embedding", prompts={"query": "query: "})
    with OpenAIServer(_answer) as server:
        hosted = "".join(
            f'[providers.{name}]\nbase_url = "{server.base_url}"\ndialect = "openai"\n'
            for name in ("openai", "anthropic")
        )
        hosted += (
            f'[providers.vertex]\nbase_url = "{server.url}"\nproject = "my-project"\n'
            'api_key = "ya29.test"\nkey_header = "authorization"\n'
        )
        hosted += f'[providers.bedrock]\nbase_url = "{server.url}"\n'
        (made / "address").write_text(server.base_url)
        (made / "specclient.toml").write_text(
            'candidates = ["local/demo", "openai/gpt-4.1"]\n' + hosted + "[local]\nthreads = 1\n"
            f'[local.models.demo]\npath = "{target}"\ndraft = "{draft}"\n'
            f'[local.models.mini]\nkind = "embedding"\npath = "{embedding}"\n'
        )
        yield made


#: Python blocks by page; those of CONTRIBUTING.md are style examples, which are not run.
RUNNING = {
    path.name: found for path in PAGES if path.name != "CONTRIBUTING.md" and (found := blocks(path, "python"))
}


@pytest.fixture(scope="module")
def failures(folder: Path) -> dict[str, str | None]:
    """Return the traceback of each page's snippets; None if they ran."""
    keys = {f"{provider}_API_KEY": "test" for provider in ("OPENAI", "ANTHROPIC", "MINE")}
    keys |= {
        "AWS_BEARER_TOKEN_BEDROCK": "test",
        "AWS_BEDROCK_BASE_URL": (folder / "address").read_text(),
    }
    done = forked_program.run(
        [sys.executable, "-c", RUN],
        engine=True,
        input=json.dumps(RUNNING),
        text=True,
        cwd=folder,
        env={
            **os.environ,
            **keys,
            "HOME": str(folder),
            "SPECCLIENT_LEDGER": str(folder / "ledger"),
            "OMP_NUM_THREADS": "1",
        },
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", RUNNING)
def test_python_snippets_run(name: str, failures: dict[str, str | None]) -> None:
    assert failures[name] is None, failures[name]


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_valid(name: str) -> None:
    for block in blocks(PAGES[NAMES.index(name)], "toml"):
        Settings.model_validate(tomllib.loads(block))


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name: str) -> None:
    for block in blocks(PAGES[NAMES.index(name)], "sh"):
        for line in block.splitlines():
            words = re.sub(r"\s#.*", "", line).split()
            if words[:1] == ["specclient"]:
                _check_command(words[1:], line)


def _check_command(words: list[str], line: str) -> None:
    """Check that every command and option of a command line exists."""
    command: click.Command = cli
    context = click.Context(command)
    left = iter(words)
    for word in left:
        options = {
            name: parameter
            for parameter in command.params
            if isinstance(parameter, click.Option)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        if word.startswith("-"):
            assert word in options, f"{line!r}: there is no option {word}"
            if not options[word].is_flag:
                next(left)
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            assert found is not None, f"{line!r}: there is no command {word!r}"
            command, context = found, click.Context(found, parent=context)


@pytest.mark.parametrize("name", NAMES)
def test_named_files_exist(name: str) -> None:
    text = PAGES[NAMES.index(name)].read_text(encoding="utf-8")
    text = (
        re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        if name != "architecture.md"
        else text
    )
    text = re.sub(r"(?:/[\w.]+)+/specclient/\S+", "", text)  # paths on a user's machine
    named = re.findall(
        r"(?:specclient|local/specclient_local|cli/specclient_cli|tests|benchmarks|tools|docs|examples)/[\w./*-]*\w\.\w+",
        text,
    )
    missing = [path for path in named if not list(ROOT.glob(path))]
    assert not missing


def test_the_architecture_pages_tree_lists_all_packages() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = re.search(r"<!-- tree.*?-->\n```text\n(.*?)```", text, re.DOTALL)
    assert tree
    listed, parents = set(), [""]
    for line in tree[1].splitlines():
        indent = len(line) - len(line.lstrip())
        names = re.match(r"((?:\S+/ *)+)", line.strip())
        assert names, line
        parents = parents[: indent // 2 + 1]
        for entry in names[1].split():
            listed.add(f"{parents[-1]}{entry}")
        parents.append(f"{parents[-1]}{names[1].split()[0]}")
    packages = ("specclient", "local/specclient_local", "cli/specclient_cli")
    there = {
        f"{path.parent.relative_to(ROOT).as_posix()}/"
        for package in packages
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert listed - {"specclient-stubs/", "deploy/", "tests/"} == there


@pytest.mark.parametrize("name", NAMES)
def test_relative_links_exist(name: str) -> None:
    path = PAGES[NAMES.index(name)]
    for target in re.findall(r"\]\((?!https?:)([^)#]*)", path.read_text(encoding="utf-8")):
        assert not target or (path.parent / target).exists(), target


def test_stated_provider_counts_equal_the_number_of_presets() -> None:
    counts = []
    for path in [*PAGES, ROOT / "CHANGELOG.md"]:
        counts += re.findall(r"(\d+) (?:known )?providers and servers", path.read_text(encoding="utf-8"))
    assert counts
    assert set(counts) == {str(len(PRESETS))}


def test_stated_openai_versions_equal_the_pinned_one() -> None:
    pins = [
        re.findall(r"openai==([\d.]+)", (ROOT / name).read_text(encoding="utf-8"))
        for name in ("pyproject.toml", "constraints.txt")
    ]
    assert pins[0] == pins[1]
    (pin,) = pins[0]
    stated = {
        (path.name, version)
        for path in PAGES
        if path.name != "benchmarks.md"  # its figures state the version that they were measured with
        for version in re.findall(r"`openai`(?: package)? (\d+\.\d+)", path.read_text(encoding="utf-8"))
    }
    assert {"README.md", "client.md"} <= {name for name, _ in stated}
    assert [page for page in stated if page[1] != pin.rpartition(".")[0]] == []


def test_the_readme_has_at_most_250_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 250


def test_the_command_reference_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "cli_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_of_local_models_lists_every_option() -> None:
    page = (ROOT / "docs/local.md").read_text()
    section = page.partition("### Options of a model")[2].partition("\n### ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    defaults = {"draft_length", "draft_tree", "verification"}
    assert named == {"path", *(field.name for field in fields(EngineOptions)), *defaults}


def test_the_page_of_local_models_lists_every_method() -> None:
    page = (ROOT / "docs" / "local.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| Drafting |"))
    assert [name for name in ENGINE_METHODS if f"`{name}`" not in row] == []


@pytest.mark.parametrize(
    "path", [*PAGES, ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"], ids=lambda path: path.name
)
def test_lists_are_lists_for_the_site_too(path: Path) -> None:
    # Python-Markdown needs an empty line before a list, and four spaces before a list in a list.
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        first, *others = paragraph.strip("\n").splitlines() or [""]
        assert first.startswith(("- ", "  ", "#")) or not [
            line for line in others if line.startswith("- ")
        ], first
        assert not re.search(r"^ {1,3}(- |```)", paragraph, re.MULTILINE), first
