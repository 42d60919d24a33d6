"""``specclient serve keys``: creating, listing and revoking keys, and their effect on ``serve``."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

KEY = re.compile(r"sk-sc-[A-Za-z0-9_-]{43}\n")


def _listed(run, *more: str) -> list[dict]:
    code, out, err = run("serve", "keys", "list", "--json", *more)
    assert (code, err) == (0, "")
    return json.loads(out)["keys"]


def test_a_key_is_printed_once_and_not_stored(run) -> None:
    code, out, err = run("serve", "keys", "create", "alice")
    assert code == 0
    assert KEY.fullmatch(out), "stdout must contain the key only, for scripts"
    assert "shown only now" in err
    secret = out.strip()[12:]
    _, table, _ = run("serve", "keys", "list")
    assert "alice" in table
    assert secret not in table + err + json.dumps(_listed(run))
    ledger = Path(os.environ["SPECCLIENT_LEDGER"])
    held = b"".join(path.read_bytes() for path in ledger.parent.glob(f"{ledger.name}*"))
    assert b"alice" in held
    assert secret.encode() not in held


def test_a_keys_limits_are_listed(run) -> None:
    words = ["--budget", "5/day", "--requests-per-minute", "60", "--tokens-per-minute", "90000"]
    words += ["-m", "openai/*", "-m", "local/demo", "--tag", "team=web", "--expires", "90d"]
    assert run("serve", "keys", "create", "ci", *words)[0] == 0
    code, out, _ = run("serve", "keys", "create", "bob", "--json")
    assert code == 0
    assert KEY.fullmatch(json.loads(out)["key"] + "\n")
    ci, bob = _listed(run)
    assert bob["budget_usd"] is bob["requests_per_minute"] is bob["used_at"] is None
    left = datetime.fromisoformat(ci.pop("expires_at")) - datetime.now(UTC)
    assert timedelta(days=89, hours=23) < left <= timedelta(days=90)
    assert ci.pop("prefix").startswith("sk-sc-")
    assert ci.pop("created_at")
    assert ci == {
        "name": "ci", "status": "active", "budget_usd": "5.000000000", "spent_usd": "0.000000000",
        "period": "day", "requests_per_minute": 60, "tokens_per_minute": 90000,
        "models": ["openai/*", "local/demo"], "tags": {"team": "web"}, "revoked_at": None, "used_at": None,
        "aliases": {},
    }  # fmt: skip
    _, table, _ = run("serve", "keys", "list")
    for cell in ("$5.00/day", "90,000", "openai/* local/demo", "team=web", "never"):
        assert cell in table


def test_a_revoked_key_is_no_longer_listed(run) -> None:
    run("serve", "keys", "create", "alice")
    (alice,) = _listed(run)
    assert run("serve", "keys", "revoke", alice["prefix"])[:2] == (0, f"revoked alice ({alice['prefix']}…)\n")
    assert _listed(run) == []
    assert [key["status"] for key in _listed(run, "--all")] == ["revoked"]
    assert "To make one" in run("serve", "keys", "list")[1]
    code, _, err = run("serve", "keys", "revoke", "alice")
    assert (code, "the keys are: none" in err) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["create"], 2, "NAME"),
        (["create", "a b"], 3, "1 to 64 letters"),
        (["create", "a", "--budget", "0"], 2, "not an amount"),
        (["create", "a", "--budget", "5/week"], 2, "5/day"),
        (["create", "a", "--budget", "1.2.3"], 2, "not an amount"),
        (["create", "a", "--budget", "."], 2, "not an amount"),
        (["create", "a", "--expires", "yesterday"], 2, "is not a time"),
        (["create", "a", "--expires", "2020-01-31"], 3, "in the past"),
        (["create", "a", "--requests-per-minute", "0"], 2, "0"),
        (["create", "a", "--tag", "key=b"], 3, "cannot be set"),
        (["revoke", "nobody"], 3, "no key has the name or prefix 'nobody'"),
    ],
)
def test_invalid_arguments_are_named(run, words: list[str], code: int, message: str) -> None:
    found, out, err = run("serve", "keys", *words)
    assert (found, message in err, out) == (code, True, ""), err


def test_keys_need_a_ledger(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCLIENT_LEDGER", "off")
    code, _, err = run("serve", "keys", "create", "alice")
    assert (code, "keys are stored in the ledger" in err) == (3, True)


def test_config_given_to_serve_applies_to_keys(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("SPECCLIENT_LEDGER")
    file = tmp_path / "other.toml"
    file.write_text(f'ledger = "{tmp_path / "other.sqlite3"}"\n')
    assert run("serve", "--config", str(file), "keys", "create", "alice")[0] == 0
    assert (tmp_path / "other.sqlite3").exists()


def test_a_stored_key_permits_listening_on_other_addresses(run) -> None:
    """The host is not an address of this machine: without a key, the command fails before it binds."""
    serve = ("serve", "--host", "203.0.113.1", "--port", "0")
    code, _, err = run(*serve)
    assert (code, "serve keys create NAME" in err) == (3, True)
    run("serve", "keys", "create", "alice")
    code, _, err = run(*serve)
    assert (code, "cannot listen on" in err) == (3, True), "a key exists, but the address does not"
    run("serve", "keys", "revoke", "alice")
    code, _, err = run(*serve)
    assert (code, "there is no key" in err) == (3, True)


@pytest.mark.parametrize(
    "words",
    [["--model", "local/demo"], ["--model", "mine/x", "--preload", "-m", "local/demo"], ["--preload"]],
)
def test_loading_a_local_model_per_worker_needs_an_option(run, words: list[str]) -> None:
    Path("specclient.toml").write_text('[providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\n')
    code, out, err = run("serve", "--port", "0", "--workers", "2", *words)
    assert (code, out) == (2, "")
    assert "its own copy of local/demo" in err
    assert "--model-per-worker" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nredis_url = 'nonsense://:open-sesame@h'", "redis://HOST"),
        ("[server]\nredis_url = 5", "server.redis_url"),
    ],
)
def test_an_invalid_redis_url_is_refused_and_not_repeated(run, text: str, message: str) -> None:
    Path("specclient.toml").write_text(text)
    code, _, err = run("serve", "--port", "0")
    assert (code, message in err, "open-sesame" in err) == (3, True, False), err


def test_the_redis_url_of_the_environment_overrides_the_file_and_is_hidden(run, monkeypatch) -> None:
    Path("specclient.toml").write_text("[server]\nredis_url = 'redis://:open-sesame@h'\n")
    assert run("config", "show", "server.redis_url", "--json")[1].count('"source": "file"') == 1
    monkeypatch.setenv("SPECCLIENT_REDIS_URL", "redis://:swordfish@h")
    code, out, _ = run("config", "show", "server")
    assert code == 0
    assert "SPECCLIENT_REDIS_URL" in out
    assert "open-sesame" not in out
    assert "swordfish" not in out
