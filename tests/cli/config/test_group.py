"""``specclient config``: writing the template, showing settings with their sources, and checking them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from specclient_cli.config.template import TEMPLATE

from specclient.config import Settings, load


def test_init_writes_a_template_that_changes_no_setting(run, in_empty_folder) -> None:
    code, out, _ = run("config", "init")
    file = in_empty_folder / "specclient.toml"
    assert (code, out) == (0, "wrote specclient.toml\n")
    assert file.read_text() == TEMPLATE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load(env={}).model_dump() == Settings().model_dump()
    assert [p.name for p in in_empty_folder.iterdir()] == ["specclient.toml"], "init left another file behind"


def test_every_commented_setting_of_the_template_is_valid(tmp_path: Path) -> None:
    settable = (line for line in TEMPLATE.splitlines() if line.startswith("#") and line[1] != " ")
    file = tmp_path / "all.toml"
    file.write_text("\n".join(line[1:] for line in settable))
    settings = load(file, env={})

    def unset_fields(model) -> set[str]:
        return set(type(model).model_fields) - model.model_fields_set

    assert unset_fields(settings) == set(), "a setting is missing in the template"
    assert unset_fields(settings.local) == set()
    assert unset_fields(settings.local.models["big"]) == {"env"}
    assert unset_fields(settings.local.models["served"]) == set()
    assert unset_fields(settings.local.models["mini"]) == {"draft", "env", "method"}
    assert unset_fields(settings.fleets["big"]) == {"heads"}
    pools = settings.fleets["big"].pools.values()  # which have one of several lengths and addresses each
    assert set.intersection(*map(unset_fields, pools)) == set()
    assert unset_fields(settings.prices["mine/llama"]) == set()
    assert unset_fields(settings.policies["fast"]) == set()
    assert unset_fields(settings.budgets["team"]) == {"tokens"}
    assert unset_fields(settings.providers["mine"]) == {"api_key", "headers", "price_provider"}


def test_init_replaces_a_file_only_with_force(run, in_empty_folder) -> None:
    file = in_empty_folder / "specclient.toml"
    file.write_text('default_model = "mine"\n')
    code, _, err = run("config", "init")
    assert (code, err.count("\n")) == (3, 1)
    assert "--force" in err
    assert file.read_text() == 'default_model = "mine"\n'
    assert run("config", "init", "--force")[0] == 0
    assert file.read_text() == TEMPLATE


def test_init_writes_to_a_given_path(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("config", "init", "--path", str(tmp_path / "new" / "a.toml"))[0] == 0
    assert (tmp_path / "new" / "a.toml").read_text() == TEMPLATE
    assert run("--config", str(tmp_path / "b.toml"), "config", "init")[0] == 0
    monkeypatch.setenv("SPECCLIENT_CONFIG", str(tmp_path / "c.toml"))
    assert run("config", "init")[0] == 0
    assert (tmp_path / "b.toml").read_text() == (tmp_path / "c.toml").read_text() == TEMPLATE
    (tmp_path / "file").write_text("")
    code, _, err = run("config", "init", "--path", str(tmp_path / "file" / "x.toml"))
    assert (code, err.count("\n")) == (3, 1)
    assert "--path" in err


def test_a_failed_init_keeps_the_old_file(run, in_empty_folder, monkeypatch) -> None:
    file = in_empty_folder / "specclient.toml"
    file.write_text("# mine\n")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    code, _, err = run("config", "init", "--force")
    assert code == 3
    assert "No space left" in err
    assert file.read_text() == "# mine\n"
    assert [p.name for p in in_empty_folder.iterdir()] == ["specclient.toml"]


def test_show_states_the_source_of_each_setting(run, in_empty_folder, monkeypatch) -> None:
    (in_empty_folder / "specclient.toml").write_text(
        'default_model = "a"\ntransport = "httpx"\n[local]\nslots = 7\n'
        '[providers.mine]\nbase_url = "http://127.0.0.1:1/v1"\napi_key = "sk-very-secret"\n'
        '[providers.mine.headers]\nauthorization = "Bearer sk-other-secret"\n'
    )
    monkeypatch.setenv("SPECCLIENT_TRANSPORT", "aiohttp")
    code, out, _ = run("config", "show", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["file"] == str(in_empty_folder / "specclient.toml")
    settings = shown["settings"]
    assert settings["default_model"] == {"value": "a", "source": "file"}
    assert settings["transport"] == {"value": "aiohttp", "source": "SPECCLIENT_TRANSPORT"}
    assert settings["ledger"]["source"] == "SPECCLIENT_LEDGER"
    assert settings["default_provider"] == {"value": "openai", "source": "default"}
    assert settings["local.slots"] == {"value": 7, "source": "file"}
    assert settings["local.threads"] == {"value": None, "source": "default"}
    assert settings["providers.mine.api_key"] == {"value": "set", "source": "file"}
    text = run("config", "show")[1]
    assert "secret" not in out + text
    assert ["local.slots", "file", "7"] in [line.split() for line in text.splitlines()]


def test_show_lists_only_the_configured_capabilities(run, in_empty_folder) -> None:
    (in_empty_folder / "specclient.toml").write_text(
        '[providers.mine]\nbase_url = "http://h"\ncapabilities = { prefill = false, telemetry = ["vllm"] }\n'
    )
    shown = json.loads(run("config", "show", "providers", "--json")[1])["settings"]
    assert shown["providers.mine.capabilities"]["value"] == {"prefill": False, "telemetry": ["vllm"]}


def test_check_names_a_missing_base_url(run, in_empty_folder) -> None:
    (in_empty_folder / "specclient.toml").write_text('default_model = "baseten/m"\n')
    code, out, _ = run("config", "check")
    assert code == 3
    assert "baseten: no address: give base_url under [providers.baseten]" in out


def test_show_can_be_limited_to_sections(run) -> None:
    code, out, _ = run("config", "show", "local", "transport", "--json")
    assert code == 0
    assert {key.partition(".")[0] for key in json.loads(out)["settings"]} == {"local", "transport"}
    code, _, err = run("config", "show", "nothing")
    assert (code, "nothing" in err, "candidates" in err) == (2, True, True)


def test_show_hides_a_database_password(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCLIENT_LEDGER", "postgresql://me:hunter2@db.example/costs")
    _, out, _ = run("config", "show")
    assert "db.example/costs" in out
    assert "hunter2" not in out


def test_show_hides_passwords_in_urls(run, in_empty_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (in_empty_folder / "specclient.toml").write_text(
        "[providers.mine]\n"
        'base_url = "https://user:hunter2@host.example/v1"\n'
        'metrics = "https://user:hunter2@host.example/metrics"\n'
    )
    monkeypatch.setenv("SPECCLIENT_LEDGER", "postgresql://db.example/costs?user=me&password=hunter2")
    monkeypatch.setenv("SPECCLIENT_REDIS_URL", "redis://:hunter2@cache.example:6379/0")
    for words in ((), ("--json",)):
        _, out, err = run("config", "show", *words)
        assert "host.example" in out
        assert "db.example" in out
        assert "hunter2" not in out + err
    _, out, err = run("config", "check")
    assert "hunter2" not in out + err


def test_show_says_which_variables_of_a_fleet_are_set(run, in_empty_folder) -> None:
    (in_empty_folder / "specclient.toml").write_text(
        '[fleets.f]\npath = "bundled:target"\nenv = { HF_TOKEN = "hunter2" }\n'
    )
    _, out, _ = run("config", "show", "fleets", "--json")
    assert json.loads(out)["settings"]["fleets.f.env"]["value"] == {"HF_TOKEN": "set"}
    assert "hunter2" not in out


def test_check_finds_no_problem_in_a_fresh_installation(run) -> None:
    code, out, _ = run("config", "check")
    assert code == 0
    assert not [line for line in out.splitlines() if line.startswith("problem")]
    assert "openai: no key: set OPENAI_API_KEY" in out


def test_check_accepts_bundled_models(run, in_empty_folder) -> None:
    (in_empty_folder / "specclient.toml").write_text(
        '[local.models.x]\npath = "demo"\nheads = ["bundled:eagle3", "bundled:medusa"]\n'
        '[local.models.y]\npath = "bundled:target"\ndraft = "bundled:draft"\nheads = "org/heads"\n'
    )
    code, out, _ = run("config", "check", "--json")
    assert code == 0
    assert [f["level"] for f in json.loads(out) if f["about"] == "local/x"] == []
    findings = [(f["level"], f["text"]) for f in json.loads(out) if f["about"] == "local/y"]
    assert findings == [("note", "heads 'org/heads' is a hub id, which is not checked")]


@pytest.mark.parametrize(
    ("text", "about", "message"),
    [
        ("x = [", "file", "not valid TOML"),
        ("colour = 1", "file", "colour"),
        ('transport = "pigeon"', "file", "pigeon"),
        ('[policies.p]\nminimize = "luck"', "file", "luck"),
        ("[policies.p]\nmax_latency_s = nan", "file", "nan"),
        ('[prices."a/b"]\ninput = -1\noutput = 1', "file", "-1"),
        ("[providers.mine]", "file", "base_url"),
        ('default_provider = "nobody"', "file", "nobody"),
        ('candidates = ["groq/llama"]', "groq", "GROQ_API_KEY"),
        ('candidates = ["nobody/llama"]', "nobody", "unknown provider"),
        ('[judge]\nmodel = "nobody/llama"', "nobody", "unknown provider"),
        ('[local.models.x]\npath = "./nothing"', "local/x", "config.json"),
        ('[local.models.x]\npath = "./nothing.gguf"', "local/x", "does not exist; name a GGUF file"),
        ('[local.models.x]\npath = "org/model"\ndraft = "/nothing/at/all"', "local/x", "/nothing/at/all"),
        ('[local.models.x]\npath = "demo"\nheads = "./nope"', "local/x", "heads: ./nope is not a folder"),
        ('[local.models.x]\npath = "demo"\nheads = ["bundled:nope"]', "local/x", "bundled:eagle3"),
        (
            '[local.models.x]\npath = "demo"\nquantise = "int4"',
            "local/x",
            "did you mean 'quantize'?",
        ),
        (
            '[local.models.x]\npath = "demo"\nmethod = "sufix"',
            "local/x",
            "method is 'sufix'; allowed are auto",
        ),
        ('[local.models.x]\npath = "demo"\nengine = "vlm"', "local/x", "engine is 'vlm'"),
        ('[local.models.x]\npath = "demo"\nkind = "embedding"\ntruncate = 3', "local/x", "truncate is 3"),
        ('[fleets.f]\npath = "bundled:target"\nmemory = "lots"', "fleet f", "memory is 'lots'; write a size"),
        (
            '[fleets.f]\npath = "bundled:target"\n[fleets.f.pools.a]\ndraft_length = 3',
            "fleet f",
            "has no draft",
        ),
    ],
    ids=str,
)
def test_check_finds_problems(run, in_empty_folder, text: str, about: str, message: str) -> None:
    (in_empty_folder / "specclient.toml").write_text(text + "\n")
    code, out, _ = run("config", "check", "--json")
    assert code == 3
    problems = [f for f in json.loads(out) if f["level"] == "problem"]
    assert [f["about"] for f in problems] == [about]
    assert message in problems[0]["text"]
    assert "problem" in run("config", "check")[1]


def test_check_reads_the_header_of_a_gguf_file(run, in_empty_folder) -> None:
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    (in_empty_folder / "model.gguf").write_bytes(b"GGUF\x03")
    (in_empty_folder / "specclient.toml").write_text('[local.models.x]\npath = "model.gguf"\n')
    code, out, _ = run("config", "check", "--json")
    problems = [finding["text"] for finding in json.loads(out) if finding["level"] == "problem"]
    assert code == 3
    assert problems == ["path: model.gguf: the header is truncated; download it again."]


def test_check_finds_a_broken_ledger_and_a_missing_engine(run, tmp_path, monkeypatch) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"no database" * 100)
    monkeypatch.setenv("SPECCLIENT_LEDGER", str(broken))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, _ = run("config", "check", "--json")
    problems = {f["about"]: f["text"] for f in json.loads(out) if f["level"] == "problem"}
    assert code == 3
    assert set(problems) == {"ledger", "local engine"}
    assert "pip install 'specclient[local]'" in problems["local engine"]


def test_an_unreadable_configuration_stops_every_command(run, tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'default_model = "\xff"\n')
    for words in (["cost", "report"], ["complete", "x"], ["config", "show"], ["models"], ["demo"]):
        code, out, err = run("--config", str(tmp_path / "latin.toml"), *words)
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert "latin.toml" in err
    code, _, err = run("--config", str(tmp_path / "none.toml"), "models")
    assert code == 3
    assert "specclient config init" in err


def test_a_missing_engine_names_the_install_command(shell, in_empty_folder) -> None:
    (in_empty_folder / "torch.py").write_text("raise ModuleNotFoundError('no torch here', name='torch')\n")
    done = shell("complete", "x", "-m", "local/demo")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "pip install 'specclient[local]'" in done.stderr
