"""Launch commands for other servers: every option against the servers' documentation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from specclient_local.export import (
    DEPLOYMENT_METHODS,
    SERVERS,
    Deployment,
    LaunchPlan,
    heads_method,
    launch,
    same_tokenizer,
    sampling_defaults,
)
from tiny_models import write_checkpoint

from specclient.errors import CheckpointError, ConfigurationError
from specclient.providers import PRESETS

#: Options on the pages in each row's ``sources``, as of November 2026.
DOCUMENTED = {
    "vllm": {
        # docs.vllm.ai: configuration/engine_args, cli/serve; features/speculative_decoding/acceptance_metrics
        "--served-model-name", "--host", "--port", "--max-model-len", "--dtype", "--tensor-parallel-size",
        "--pipeline-parallel-size", "--speculative-config", "--per-request-spec-decode-metrics",
    },
    "sglang": {
        # docs.sglang.io: advanced_features/server_arguments, advanced_features/speculative_decoding
        "-m", "--model-path", "--served-model-name", "--host", "--port", "--context-length", "--dtype",
        "--tp-size", "--pp-size", "--speculative-algorithm", "--speculative-draft-model-path",
        "--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens",
        "--speculative-ngram-max-bfs-breadth", "--enable-metrics",
    },
    "trtllm": {
        # nvidia.github.io/TensorRT-LLM: commands/trtllm-serve
        "--served_model_name", "--host", "--port", "--max_seq_len", "--tp_size", "--pp_size", "--config",
    },
    "llama.cpp": {
        # tools/server/README.md after the options were renamed (pull request 22397)
        "--model", "--alias", "--host", "--port", "--ctx-size", "--split-mode", "--tensor-split",
        "--spec-type", "--spec-draft-model", "--spec-draft-n-max", "--spec-ngram-simple-size-n",
        "--spec-ngram-simple-size-m", "--metrics",
    },
    "transformers": {
        # huggingface.co/docs/transformers: serving; its options are its help's
        "--host", "--port", "--dtype",
    },
}  # fmt: skip
CONVERT = {"--outfile", "--outtype", "--target-model-dir"}  # convert_hf_to_gguf.py; pull request 18039

#: Keys of ``--speculative-config`` (features/speculative_decoding: schema, draft_model, n_gram).
VLLM_KEYS = {
    "method", "model", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max",
    "use_heterogeneous_vocab", "parallel_drafting",
}  # fmt: skip

#: Keys of the YAML (features/speculative-decoding, llm-api/reference: TorchLlmArgs).
TRTLLM_KEYS = {"dtype", "disable_overlap_scheduler", "return_perf_metrics", "speculative_config"}
TRTLLM_SPECULATIVE = {
    "decoding_type", "max_draft_len", "speculative_model", "max_matching_ngram_size", "use_dynamic_tree",
    "dynamic_tree_max_topK", "max_total_draft_tokens",
}  # fmt: skip

DRAFTED = Deployment(target="org/big", method="draft", draft="org/small", depth=5, same_tokenizer=True)


def _deployment(method: str) -> Deployment:
    drafts = method in ("draft", "eagle", "eagle3", "peagle", "medusa")
    return Deployment(target="org/big", method=method, draft="org/small" if drafts else None, depth=5)


def _value(found: LaunchPlan, option: str) -> str:
    words = list(found.command)
    assert words.count(option) == 1, words
    return words[words.index(option) + 1]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("method", DEPLOYMENT_METHODS)
def test_commands_use_documented_options_and_unsupported_methods_raise_with_advice(
    server: str, method: str
) -> None:
    deployment = replace(
        _deployment(method), context=2048, dtype="bfloat16", tensor_parallel=2, host="0.0.0.0", port=9000
    )
    row = SERVERS[server]
    if method != "none" and method not in row.methods:
        with pytest.raises(ConfigurationError, match=rf"^{row.title}: method is '{method}'.*choose --method"):
            launch(server, deployment)
        return
    found = launch(server, deployment)
    used = {word for word in found.command if word.startswith("-")}
    assert used <= DOCUMENTED[server]
    for words in found.before:
        if words[0] == "python3":
            assert {word for word in words if word.startswith("-")} <= CONVERT
    assert _value(found, "--port") == "9000"
    assert found.base_url == "http://127.0.0.1:9000/v1", "clients do not connect to 0.0.0.0"


@pytest.mark.parametrize("server", SERVERS)
def test_a_method_of_the_engine_that_no_server_has_raises_with_advice(server: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"method is 'bigrams', but only the engine.*choose --method"
    ):
        launch(server, _deployment("bigrams"))


@pytest.mark.parametrize("server", SERVERS)
def test_every_method_is_supported_or_has_a_reason(server: str) -> None:
    row = SERVERS[server]
    assert set(row.methods) | set(row.missing) | {"none"} == set(DEPLOYMENT_METHODS)
    assert not set(row.methods) & set(row.missing)
    assert row.provider in PRESETS
    assert str(row.port) in PRESETS[row.provider].base_url
    assert all(source.startswith("https://") for source in row.sources)


def test_vllm_drafts_with_p_eagle_heads_as_the_models_cards_say() -> None:
    """The cards of amazon/gpt-oss-20b-p-eagle and -120b-p-eagle have this object."""
    written = json.loads(_value(launch("vllm", _deployment("peagle")), "--speculative-config"))
    wanted = {"method": "eagle3", "model": "org/small", "num_speculative_tokens": 5}
    assert written == {**wanted, "parallel_drafting": True}


def test_vllms_speculative_config_has_only_documented_keys() -> None:
    for method in SERVERS["vllm"].methods:
        written = json.loads(_value(launch("vllm", _deployment(method)), "--speculative-config"))
        assert set(written) <= VLLM_KEYS
        assert written["num_speculative_tokens"] == 5
    assert json.loads(_value(launch("vllm", DRAFTED), "--speculative-config")) == {
        "method": "draft_model",
        "model": "org/small",
        "num_speculative_tokens": 5,
    }
    assert "--speculative-config" not in launch("vllm", _deployment("none")).command


def test_different_tokenizers_are_exported_only_to_servers_that_support_them() -> None:
    deployment = replace(DRAFTED, same_tokenizer=False)
    written = json.loads(_value(launch("vllm", deployment), "--speculative-config"))
    assert written["use_heterogeneous_vocab"] is True
    for server in ("sglang", "trtllm", "llama.cpp"):
        with pytest.raises(ConfigurationError, match=r"different tokenizers.*export to vllm"):
            launch(server, deployment)
        unknown = launch(server, replace(DRAFTED, same_tokenizer=None))
        assert any(note.startswith("Not checked") for note in unknown.notes)


@pytest.mark.parametrize("parameter", ["min_p", "logit_bias"])
def test_sampling_parameters_that_vllm_rejects_raise(parameter: str) -> None:
    deployment = replace(DRAFTED, sampling=("top_k", parameter))
    with pytest.raises(ConfigurationError, match=rf"{parameter}.*400.*--method none"):
        launch("vllm", deployment)
    launch("vllm", replace(deployment, method="none"))
    launch("sglang", deployment)


def test_tree_sizes_are_converted_to_each_servers_options() -> None:
    deployment = replace(_deployment("eagle3"), depth=3, widths=(4, 2, 1))  # 4 + 8 + 8 drafted tokens
    found = launch("sglang", deployment)
    options = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    assert [_value(found, option) for option in options] == ["3", "4", "21"], "SGLang counts the root"
    wide = launch(
        "sglang", replace(deployment, widths=(4, 4, 4))
    )  # 84 drafted tokens, of which 4 + 16 + 16 are scored
    assert _value(wide, options[2]) == "37"
    written = yaml.safe_load(launch("trtllm", deployment).files["trtllm.yaml"])["speculative_config"]
    assert written["use_dynamic_tree"] is True
    assert (written["dynamic_tree_max_topK"], written["max_total_draft_tokens"]) == (4, 12), (
        "topK × depth at most"
    )
    for server in ("vllm", "llama.cpp"):
        with pytest.raises(ConfigurationError, match="only chains"):
            launch(server, deployment)
        launch(server, replace(deployment, widths=(1, 1, 1)))


def test_trtllms_yaml_has_only_documented_keys() -> None:
    for method in SERVERS["trtllm"].methods:
        text = launch(
            "trtllm", replace(_deployment(method), draft='it\'s: a "path" é', dtype="float16")
        ).files
        written = yaml.safe_load(text["trtllm.yaml"])
        assert set(written) <= TRTLLM_KEYS
        assert set(written["speculative_config"]) <= TRTLLM_SPECULATIVE
        assert written["dtype"] == "float16"
        if method != "ngram":
            assert written["speculative_config"]["speculative_model"] == 'it\'s: a "path" é'
    metrics = launch("trtllm", replace(DRAFTED, port=9000)).metrics
    assert metrics == "http://127.0.0.1:9000/prometheus/metrics"


def test_pipeline_parallelism_is_rejected_if_speculation_does_not_support_it() -> None:
    over = replace(DRAFTED, pipeline_parallel=2)
    for server, way_out in (("vllm", "eagle3"), ("sglang", "none")):
        with pytest.raises(ConfigurationError, match=f"pipeline_parallel is 2.*--method {way_out}"):
            launch(server, over)
        launch(server, replace(over, method="none"))
    launch("vllm", replace(over, method="eagle3"))
    assert _value(launch("trtllm", over), "--pp_size") == "2"
    split = launch("llama.cpp", over)
    assert (_value(split, "--split-mode"), _value(split, "--tensor-split")) == ("layer", "1,1")
    assert _value(launch("llama.cpp", replace(DRAFTED, tensor_parallel=3)), "--split-mode") == "row"
    with pytest.raises(ConfigurationError, match="cannot combine them"):
        launch("llama.cpp", replace(over, tensor_parallel=2))


def test_llamacpp_downloads_and_converts_models_that_are_not_gguf() -> None:
    found = launch("llama.cpp", replace(DRAFTED, target="org/m", draft="other/m", dtype="bfloat16"))
    made = [words[words.index("--outfile") + 1] for words in found.before if "--outfile" in words]
    assert len(set(made)) == 2, "models with equal names get different files"
    assert [_value(found, "--model"), _value(found, "--spec-draft-model")] == made
    assert found.before[0] == ("hf", "download", "org/m", "--local-dir", "m")
    assert all("bf16" in words for words in found.before if "--outfile" in words)
    ready = replace(DRAFTED, target="/models/a.gguf", draft="/models/b.gguf")
    assert launch("llama.cpp", ready).before == ()
    heads = launch("llama.cpp", replace(_deployment("eagle3"), target="/big", draft="/heads"))
    assert heads.before[-1][-2:] == ("--target-model-dir", "/big")
    with pytest.raises(ConfigurationError, match="name that folder"):
        launch("llama.cpp", replace(_deployment("eagle3"), target="/big.gguf"))


@pytest.mark.skipif(shutil.which("sh") is None, reason="no POSIX shell")
@pytest.mark.parametrize("server", SERVERS)
def test_the_script_passes_arguments_unchanged_through_a_shell(server: str, tmp_path: Path) -> None:
    """Stub programs with the commands' names record their arguments."""
    odd = '/models/it\'s $(touch broken) "b" `c` \\ *'
    method = "draft" if "draft" in SERVERS[server].methods else "none"
    deployment = replace(DRAFTED, target=odd, draft=odd + "2", name="a b;c", method=method)
    found = launch(server, deployment)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in {found.command[0], *(words[0] for words in found.before)}:
        program = programs / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" > "{tmp_path}/called"\n')
        program.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    env = {"PATH": f"{programs}{os.pathsep}{os.defpath}"}
    subprocess.run(["sh", "-eu"], input=found.script, text=True, cwd=work, env=env, check=True)
    called = (tmp_path / "called").read_text().split("\0")[:-1]
    assert called == list(found.command[1:])
    for name, text in found.files.items():
        assert (work / name).read_text() == text
    assert {path.name for path in work.iterdir()} == set(found.files)


def test_inconsistent_deployments_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="add --draft"):
        Deployment(target="org/big", method="draft")
    with pytest.raises(ConfigurationError, match="add --heads"):
        Deployment(target="org/big", method="eagle")
    with pytest.raises(ConfigurationError, match="one width per level"):
        replace(DRAFTED, widths=(2, 2))


def test_an_unknown_sampling_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"parameter 'min-p' is unknown; known are .*min_p"):
        replace(DRAFTED, sampling=("top_k", "min-p"))


def test_heads_tokenizers_and_sampling_defaults_are_read_from_folders(tmp_path: Path) -> None:
    target = write_checkpoint(tmp_path / "target")
    other = write_checkpoint(tmp_path / "other", vocab_size=280)
    assert same_tokenizer(str(target), str(target)) is True
    assert same_tokenizer(str(target), str(other)) is False
    assert same_tokenizer(str(target), "org/elsewhere") is None
    assert sampling_defaults(str(target)) == ()
    (target / "generation_config.json").write_text('{"min_p": 0.05, "top_p": 0.9}')
    assert sampling_defaults(str(target)) == ("min_p",)
    heads = tmp_path / "heads"
    heads.mkdir()
    for raw, kind in (
        ({"speculators_model_type": "eagle3"}, ("eagle3", "speculators")),
        ({"speculators_model_type": "eagle"}, ("eagle", "speculators")),
        ({"speculators_model_type": "peagle"}, ("peagle", "speculators")),
        ({"draft_vocab_size": 100, "ptd_token_id": 7}, ("peagle", "")),
        ({"draft_vocab_size": 100}, ("eagle3", "")),
        ({"num_hidden_layers": 1}, ("eagle", "")),
        ({"medusa_num_heads": 4}, ("medusa", "")),
    ):
        (heads / "config.json").write_text(json.dumps(raw))
        assert heads_method(str(heads)) == kind
    (heads / "config.json").write_text('{"speculators_model_type": "mlp"}')
    with pytest.raises(CheckpointError, match="supported are eagle, eagle3 and peagle"):
        heads_method(str(heads))
    with pytest.raises(ConfigurationError, match="name it with --method"):
        heads_method("org/heads")


def test_notes_warn_about_heads_in_another_format() -> None:
    deployment = replace(_deployment("eagle3"), format="speculators")
    assert not launch("vllm", deployment).notes[1:]
    for server in ("sglang", "trtllm", "llama.cpp"):
        assert any("format of speculators" in note for note in launch(server, deployment).notes)
