"""``specclient local export``: commands for other servers, and their registration in the configuration."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest
from loopback_server import OpenAIServer
from specclient_local.model.config import BUNDLED

from specclient import OpenAI
from specclient.config import Settings, load


def test_a_configured_pair_becomes_a_command(run, pair, local) -> None:
    code, out, err = run("local", "export", "demo", "--to", "vllm", "--depth", "5")
    assert (code, err) == (0, "")
    assert f"vllm serve {pair[0]}" in out
    assert f'"model": "{pair[1]}", "num_speculative_tokens": 5' in out
    assert "--served-model-name demo" in out
    assert "Not checked" not in out, "both tokenizers are available"
    plain = run("local", "export", "demo-target", "--to", "vllm")[1]
    assert "--speculative-config" not in plain, "the model is configured as plain"


def test_the_whole_export_is_printed_as_json(run, pair, local) -> None:
    arguments = ("--to", "trtllm", "--tp", "2", "--context", "256", "--dtype", "float16", "--json")
    code, out, _ = run("local", "export", "demo", *arguments)
    result = json.loads(out)
    assert (code, result["server"], result["registered"]) == (0, "trtllm", None)
    assert result["command"][:2] == ["trtllm-serve", str(pair[0])]
    assert {"--tp_size", "--max_seq_len"} <= set(result["command"])
    assert 'dtype: "float16"' in result["files"]["trtllm.yaml"]
    assert result["deployment"]["same_tokenizer"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--heads", "org/medusa", "--method", "medusa", "--to", "vllm"), "Medusa"),
        (("--heads", "org/heads", "--to", "vllm"), "--method"),
        (("--method", "ngram", "--to", "vllm", "--sampling", "min_p"), "400"),
        (("--draft", "a/b", "--to", "llama.cpp", "--widths", "2,2"), "only chains"),
        (("--method", "eagle3", "--to", "sglang"), "add --heads"),
        (("--method", "layer_skip", "--to", "sglang"), "with layers of the target"),
    ],
)
def test_a_setup_the_server_does_not_support_is_refused(run, arguments, message) -> None:
    code, out, err = run("local", "export", "org/big", *arguments)
    assert (code, out) == (3, "")
    assert message in err


def test_malformed_options_are_usage_errors(run) -> None:
    for arguments in (("--widths", "2,x"), ("--widths", "0"), ("--url", "http://h/v1")):
        code, _, err = run("local", "export", "org/big", "--draft", "a/b", "--to", "sglang", *arguments)
        assert code == 2, err


def test_heads_of_another_method_than_given_are_refused(run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 2}')
    code, _, err = run(
        "local", "export", "org/big", "--to", "vllm", "--heads", str(tmp_path), "--method", "eagle3"
    )
    assert code == 3
    assert "omit --method" in err


def test_bundled_models_are_exported_as_folders(run) -> None:
    command = ("local", "export", "demo", "--heads", "bundled:eagle3", "--to", "vllm")
    for method in ((), ("--method", "eagle3")):
        code, out, err = run(*command, *method)
        assert (code, err) == (0, "")
        assert f'"method": "eagle3", "model": "{BUNDLED / "eagle3"}"' in out
        assert "bundled:" not in out
    models = ("bundled:target", "--draft", "bundled:draft")
    out = run("local", "export", *models, "--to", "vllm")[1]
    assert f"vllm serve {BUNDLED / 'target'}" in out
    assert f'"model": "{BUNDLED / "draft"}"' in out
    code, _, err = run("local", "export", "demo", "--heads", "bundled:nope", "--to", "vllm")
    assert code != 0
    assert "bundled:nope is not bundled; allowed are bundled:draft" in err


def test_registering_creates_a_configuration_file(run, in_empty_folder: Path) -> None:
    code, out, err = run("local", "export", "org/big", "--to", "sglang", "--register", "cluster")
    assert (code, err) == (0, "registered cluster/big in specclient.toml\n")
    assert out.startswith("python3 -m sglang.launch_server")
    settings = load()
    table = settings.providers["cluster"]
    assert (table.base_url, table.models, table.metrics) == ("http://127.0.0.1:30000/v1", ("big",), True)
    assert table.capabilities is not None
    assert table.capabilities.telemetry == ("sglang",)
    assert settings.candidates == (*Settings().candidates, "cluster/big"), "the defaults still hold"
    assert stat.S_IMODE(Path("specclient.toml").stat().st_mode) == 0o600


def test_registering_keeps_the_rest_of_the_file(run, in_empty_folder: Path) -> None:
    file = in_empty_folder / "specclient.toml"
    before = (
        "# mine, with care\n"
        'candidates = [\n    "local/demo",  # first\n]\n\n'
        "[providers.old]  # stays\n"
        'base_url = "http://h:1/v1"\n\n'
        '[prices."old/m"]\ninput = 0.10\noutput = 0.40\n'
    )
    file.write_text(before)
    file.chmod(0o640)
    arguments = ("local", "export", "org/big", "--to", "vllm", "--register", "cluster")
    for _ in range(2):  # repeating it changes nothing
        assert run(*arguments, "--url", "http://gpu:8000/v1", "--api-key-env", "CLUSTER_KEY")[0] == 0
        after = file.read_text()
        assert [line for line in before.splitlines() if line not in after.splitlines()] == []
        written = tomllib.loads(after)
        assert written["candidates"] == ["local/demo", "cluster/big"]
        assert written["providers"]["cluster"]["api_key_env"] == "CLUSTER_KEY"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert run(*arguments, "--url", "http://gpu:8000/v1", "--served-name", "second")[0] == 0
    assert load().providers["cluster"].models == ("big", "second")
    code, _, err = run(*arguments, "--url", "http://elsewhere:8000/v1")
    assert code == 3
    assert "another server" in err
    assert run(*arguments, "--url", "no url")[0] == 3
    assert tomllib.loads(file.read_text())["providers"]["cluster"]["base_url"] == "http://gpu:8000/v1"


def test_a_trtllm_servers_metrics_url_follows_its_base_url(run) -> None:
    arguments = ("local", "export", "org/big", "--to", "trtllm", "--register", "cluster")
    assert run(*arguments, "--url", "http://gpu:9/v1")[0] == 0
    assert load().providers["cluster"].metrics == "http://gpu:9/prometheus/metrics"


def test_a_registered_route_can_be_called(run, openai_server: OpenAIServer) -> None:
    """A server at the registered base URL answers calls of the route."""
    arguments = ("--to", "vllm", "--register", "cluster", "--url", openai_server.base_url)
    assert run("local", "export", "org/big", *arguments)[0] == 0
    with OpenAI() as client:
        answer = client.chat.completions.create(
            model="cluster/big", messages=[{"role": "user", "content": "hello"}]
        )
    assert answer.choices[0].message.content
    assert answer.meta.route.chosen == "cluster/big"
