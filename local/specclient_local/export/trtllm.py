"""Turn a pair into ``trtllm-serve`` and its YAML: ``speculative_config``, as of TensorRT-LLM 1.4."""

from __future__ import annotations

import json
from collections.abc import Mapping

from specclient_local.export.deployment import (
    Deployment,
    LaunchPlan,
    ServerSpec,
    base_url_of,
    command_options,
    foreign_heads,
    parallel_degree,
)

_DOCS = "https://nvidia.github.io/TensorRT-LLM/features/speculative-decoding.html"
_FILE = "trtllm.yaml"
_LONGEST_MATCH = 4

YamlValue = str | int | bool
YamlConfig = Mapping[str, YamlValue | Mapping[str, YamlValue]]


def config(asked: Deployment) -> YamlConfig:
    """Return what the YAML says; the counters of ``/prometheus/metrics`` need ``return_perf_metrics``."""
    said: dict[str, YamlValue | Mapping[str, YamlValue]] = {"return_perf_metrics": True}
    if asked.dtype is not None:
        said["dtype"] = asked.dtype
    if asked.method in ("draft", "ngram"):
        said["disable_overlap_scheduler"] = True  # both draft outside the target's own graph
    if asked.method != "none":
        said["speculative_config"] = _speculative(asked)
    return said


def _speculative(asked: Deployment) -> Mapping[str, YamlValue]:
    said: dict[str, YamlValue] = {
        "decoding_type": ROW.methods[asked.method],
        "max_draft_len": asked.depth,
    }
    if asked.method == "ngram":
        return said | {"max_matching_ngram_size": _LONGEST_MATCH}
    said["speculative_model"] = asked.draft or ""
    if asked.tree:
        top = max(asked.widths)
        said |= {
            "use_dynamic_tree": True,
            "dynamic_tree_max_topK": top,
            "max_total_draft_tokens": min(asked.nodes, top * asked.depth),
        }
    return said


def yaml(said: YamlConfig) -> str:
    """Write settings as YAML: its double-quoted strings are those of JSON."""
    lines: list[str] = []
    for key, value in said.items():
        if isinstance(value, Mapping):
            lines += [f"{key}:", *(f"  {name}: {_scalar(each)}" for name, each in value.items())]
        else:
            lines.append(f"{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _scalar(value: YamlValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _launch(asked: Deployment, port: int) -> LaunchPlan:
    words = command_options(
        ("--served_model_name", asked.served),
        ("--host", asked.host),
        ("--port", port),
        ("--max_seq_len", asked.context),
        ("--tp_size", parallel_degree(asked.tensor_parallel)),
        ("--pp_size", parallel_degree(asked.pipeline_parallel)),
        ("--config", _FILE),
    )
    url = base_url_of(asked, port)
    notes = list(foreign_heads(asked, "TensorRT-LLM"))
    if asked.method == "draft" and asked.same_tokenizer is None:
        notes.append(
            "Not checked: that draft and target have one tokenizer, without which nothing is accepted."
        )
    if asked.method != "none":
        notes.append("Requests cannot turn speculation off, and unknown fields of a request are refused.")
    return LaunchPlan(
        ("trtllm-serve", asked.target, *words),
        files={_FILE: yaml(config(asked))},
        notes=tuple(notes),
        base_url=f"{url}/v1",
        metrics=f"{url}/prometheus/metrics",
    )


ROW = ServerSpec(
    name="trtllm",
    title="TensorRT-LLM",
    provider="tensorrt-llm",
    port=8000,
    methods={"draft": "DraftTarget", "ngram": "NGram", "eagle3": "Eagle3"},
    missing={
        "medusa": "its PyTorch backend has no decoding type for Medusa heads",
        "eagle": "its PyTorch backend loads EAGLE-3 heads alone",
        "layer_skip": "it drafts with no layers of the target",
        "union": "it drafts with one decoding type at a time",
    },
    trees=("eagle3",),
    one_tokenizer="its draft and target must have been trained with one",
    sources=(
        _DOCS,
        "https://github.com/NVIDIA/TensorRT-LLM/blob/main/docs/source/features/speculative-decoding.md",
        "https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html",
    ),
    launch=_launch,
)
