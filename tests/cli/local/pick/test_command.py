"""``specclient local pick`` on tiny random models: table, chart, JSON, and the configuration it writes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from specclient_cli.local.pick.config_tables import write_pair_tables
from specclient_local.loading.configured_models import BUNDLED, read_configured_models

from specclient.config import load
from specclient.errors import ConfigurationError

QUICK = ("--count", "2", "--new", "12", "--depth", "3", "--repeat", "1", "--threads", "1")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    rows = [{"prompt": "def f(x):\n    return self.x == (x)", "task": "code"}, {"prompt": "Hello there"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_candidates_are_shown_as_a_table_with_bars_and_a_recommendation(
    run, local, pair, prompts, tmp_path
) -> None:
    chart = tmp_path / "pick.png"
    arguments = ("local", "pick", "--data", str(prompts), "--candidates", f"{pair[1]},ngram", *QUICK)
    code, out, err = run(*arguments, "--save", str(chart))
    assert code == 0, err
    heading, columns, *lines = out.splitlines()
    assert "2 prompts, 12 new tokens each" in heading
    assert columns.split()[:3] == ["candidate", "method", "α"]
    assert "break-even" in columns
    assert "█" in out
    assert "is under the break-even of" in out, "a random draft is refused"
    assert lines[-1].startswith(("take ", "use plain decoding"))
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_all_results_are_printed_as_json(run, local, pair, prompts) -> None:
    code, out, _ = run(
        "local", "pick", "--data", str(prompts), "--candidates", str(pair[1]), *QUICK, "--json"
    )
    result = json.loads(out)
    assert code == 0
    (one,) = result["candidates"]
    assert (one["name"], one["method"]) == (str(pair[1]), "draft")
    assert set(one["by_task"]) == {"chat", "code"}, "a row's own task, or else the router's classification"
    assert one["refused"].startswith(f"acceptance {one['alpha']:.2f} is under the break-even")
    assert result["recommended"] is None


def test_a_refused_candidate_is_not_written(run, local, pair, prompts) -> None:
    before = local.read_text()
    code, _, err = run(
        "local", "pick", "--data", str(prompts), "--candidates", str(pair[1]), *QUICK, "--write", str(local)
    )
    assert code == 3
    assert "nothing is written" in err
    assert "is under the break-even of" in err
    assert local.read_text() == before


def test_prompts_that_exceed_the_context_are_an_error(run, local, tmp_path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps({"prompt": "x" * 4000}) + "\n")
    code, _, err = run("local", "pick", "--data", str(file), "--candidates", "ngram", *QUICK)
    assert code == 3
    assert "no prompt of" in err


def test_the_choice_is_written_for_the_engine_and_the_router(run, local, prompts) -> None:
    """Skipped where the bundled draft does not pay off, as on machines that cannot compile passes."""
    models = ("--target", str(BUNDLED / "target"), "--candidates", str(BUNDLED / "draft"))
    arguments = ("local", "pick", "--data", str(prompts), *models, *QUICK)
    code, _, err = run(*arguments, "--write", str(local), "--name", "code")
    if code == 3:
        pytest.skip(f"the bundled draft does not pay here: {err}")
    assert "wrote [local.models.code], [local.models.code-draft], [pairs.code]" in err
    settings = load(local)
    pair, model = settings.pairs["code"], settings.local.models["code"]
    assert model.method == "draft"
    assert set(pair.acceptance) == {"chat", "code"}
    assert 0 < pair.cost_ratio < 1
    assert "add 'local/code' to candidates" in err
    local.write_text('candidates = ["local/code"]\n' + local.read_text())
    _, out, _ = run("route", "explain", "Hello there", "--json")
    (explained,) = json.loads(out)["candidates"]
    assert explained["acceptance_rate"] == pytest.approx(pair.acceptance["chat"]), (
        "the router starts with the measured acceptance"
    )


TEXT = """# mine
candidates = ["local/demo"]  # the only one

[local.models.other] # keep
path = "a" # why
"""


def test_writing_a_choice_keeps_the_rest_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "specclient.toml"
    file.write_text(TEXT)
    file.chmod(0o640)
    drafting = {"draft": "small", "method": "draft", "draft_length": 4}
    measured = {"acceptance": {"code": 0.72}, "cost_ratio": 0.11}
    written = write_pair_tables(file, "code", "big", drafting, measured)
    assert written == ["[local.models.code]", "[local.models.code-draft]", "[pairs.code]"]
    text = file.read_text()
    for line in TEXT.splitlines():
        assert line in text
    assert file.stat().st_mode & 0o777 == 0o640
    settings = load(file)
    assert settings.pairs["code"].target == "local/code"
    assert settings.pairs["code"].acceptance == {"code": 0.72}
    assert settings.pairs["code"].cost_ratio == 0.11
    assert settings.local.models["code"].draft == "small"
    assert read_configured_models(settings.local.model_dump())["code"].draft_defaults == (4, None)
    assert settings.local.models[settings.pairs["code"].draft.removeprefix("local/")].path == "small"
    write_pair_tables(file, "code", "big", {"method": "ngram"}, {})
    again = tomllib.loads(file.read_text())
    assert again["local"]["models"]["code"] == {"path": "big", "method": "ngram"}, (
        "the old table must be replaced, not merged"
    )
    assert again["local"]["models"]["other"] == {"path": "a"}
    assert again["candidates"] == ["local/demo"]
    assert "# why" in file.read_text()


def test_a_missing_file_is_created_and_invalid_toml_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    write_pair_tables(file, "mine", "demo", {"heads": "h", "method": "eagle"}, {})
    assert tomllib.loads(file.read_text()) == {
        "local": {"models": {"mine": {"path": "demo", "heads": "h", "method": "eagle"}}}
    }
    file.write_text("[broken")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        write_pair_tables(file, "mine", "demo", {"method": "ngram"}, {})
