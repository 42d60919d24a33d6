"""Aliases in the commands: shown by ``config show`` and ``route explain``, checked, and given to keys."""

from __future__ import annotations

import json

import pytest

ALIASES = '[aliases]\n"gpt-4o" = "mine/m-large"\n"gpt-4*" = "m-large"\n"best" = "auto"\n'


@pytest.fixture
def aliased(hosted, in_empty_folder):
    """The configuration of ``hosted`` with aliases."""
    file = in_empty_folder / "specclient.toml"
    file.write_text(file.read_text() + ALIASES)
    return file


def test_show_lists_the_aliases(run, aliased) -> None:
    code, out, _ = run("config", "show", "aliases", "--json")
    assert code == 0
    assert json.loads(out)["settings"]["aliases"] == {
        "value": {"gpt-4o": "mine/m-large", "gpt-4*": "m-large", "best": "auto"},
        "source": "file",
    }


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('"x" = "nowhere/model"', "alias 'x': unknown provider 'nowhere'"),
        ('"x" = "y"\n"y" = "x"', "alias 'x' leads back to itself"),
    ],
)
def test_an_alias_without_a_model_is_named_by_check_and_by_every_command(
    run, in_empty_folder, line, error
) -> None:
    (in_empty_folder / "specclient.toml").write_text(f"[aliases]\n{line}\n")
    code, out, _ = run("config", "check", "--json")
    (finding,) = json.loads(out)
    assert (code, finding["level"]) == (3, "problem")
    assert error in finding["text"]
    code, _, err = run("complete", "hello")
    assert code != 0
    assert error in err


def test_explain_shows_aliases_and_where_a_name_is_served(run, aliased) -> None:
    code, out, _ = run("route", "explain", "hi")
    assert code == 0
    assert "aliases: gpt-4o = mine/m-large, gpt-4* = m-large, best = auto" in " ".join(out.split())
    for name, route in (("gpt-4o", "mine/m-large"), ("gpt-4-x", "mine/m-large"), ("demo", "local/demo")):
        decision = json.loads(run("route", "explain", "hi", "-m", name, "--json")[1])
        assert decision["chosen"] == route
    assert "named by the caller as 'gpt-4o'" in " ".join(
        run("route", "explain", "hi", "-m", "gpt-4o")[1].split()
    )
    routed = json.loads(run("route", "explain", "hi", "-m", "best", "--json")[1])
    assert len(routed["candidates"]) == 2
    code, _, err = run("route", "explain", "hi", "-m", "gpt-4o", "--minimize", "cost")
    assert code == 2
    assert "a policy chooses the model" in err


def test_commands_that_call_or_price_a_model_take_aliases(run, aliased, hosted) -> None:
    code, out, err = run("complete", "-m", "gpt-4o", "hello")
    assert code == 0, err
    assert out.strip()
    assert hosted.requests[-1].json["model"] == "m-large"
    code, out, _ = run("models", "show", "gpt-4o", "--json")
    assert json.loads(out)["model"] == "mine/m-large"
    code, _, err = run("cost", "estimate", str(aliased), "-m", "best")
    assert code == 2
    assert "chooses a model for each call" in err


def test_a_key_is_made_with_aliases_that_the_configuration_can_resolve(run, aliased) -> None:
    code, out, _ = run("serve", "keys", "create", "alice", "--alias", "gpt-5=mine/m-large", "--json")
    assert code == 0
    assert json.loads(out)["aliases"] == {"gpt-5": "mine/m-large"}
    (listed,) = json.loads(run("serve", "keys", "list", "--json")[1])["keys"]
    assert listed["aliases"] == {"gpt-5": "mine/m-large"}
    for given, error in (
        ("gpt-5=nowhere/x", "alias 'gpt-5': unknown provider 'nowhere'"),
        ("a=a", "alias 'a' leads back to itself"),
        ("gpt-5", "'gpt-5' is not an alias; write NAME=MODEL"),
    ):
        code, _, err = run("serve", "keys", "create", "bob", "--alias", given)
        assert code != 0
        assert error in " ".join(err.split())
