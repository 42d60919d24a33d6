"""``specclient local`` decodes a configured model as the configuration says, unless options say otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ASK = ("local", "generate", "def f(x):", "-m", "mine", "--max-tokens", "8", "--json")


@pytest.fixture(autouse=True)
def _mine(local: Path, pair: tuple[Path, Path]) -> None:
    """Configure ``mine``, which has a draft but drafts by n-grams."""
    target, draft = pair
    local.write_text(
        f'[local]\nthreads = 1\n[local.models.mine]\npath = "{target}"\ndraft = "{draft}"\nmethod = "ngram"\n'
        "draft_length = 2\n"
    )


@pytest.mark.parametrize(
    ("options", "method"),
    [((), "ngram"), (("--method", "draft"), "draft"), (("--method", "plain"), "plain")],
)
def test_the_configured_method_is_the_default(run, options: tuple[str, ...], method: str) -> None:
    code, out, _ = run(*ASK, *options)
    assert code == 0
    assert json.loads(out)["speculation"]["method"] == method


def test_drafts_of_the_command_line_replace_the_configured_method(run, pair: tuple[Path, Path]) -> None:
    _, out, _ = run(*ASK, "--draft", str(pair[1]))
    assert json.loads(out)["speculation"]["method"] == "draft"


def test_profile_uses_the_configured_method(run) -> None:
    code, out, _ = run("local", "profile", "-m", "mine", "--new", "8", "--count", "1", "--json")
    assert code == 0
    assert "draft passes" not in {stage["name"] for stage in json.loads(out)["stages"] if stage["share"]}


def test_the_configured_verification_is_the_default(run, local: Path, pair: tuple[Path, Path]) -> None:
    """A seed draws other tokens by another rule, which shows which one was used."""
    text = local.read_text().replace('method = "ngram"', 'method = "draft"\nverification = "token"')
    local.write_text(text.replace("draft_length = 2", "draft_length = 6"))
    differ = 0
    for seed in range(6):
        ask = (*ASK[:-2], "24", "--json", "--temperature", "1", "--seed", str(seed))
        answers = [
            json.loads(run(*ask, *options)[1])["token_ids"]
            for options in ((), ("--verification", "token"), ("--verification", "block"))
        ]
        assert answers[0] == answers[1]
        differ += answers[0] != answers[2]
    assert differ


def test_an_unknown_verification_is_refused_with_the_allowed_ones(run) -> None:
    code, _, err = run(*ASK, "--verification", "both")
    assert code == 2
    assert "'both' is not one of 'block', 'token'" in err
