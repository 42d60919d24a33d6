"""TensorRT-LLM: ``trtllm-serve`` and its YAML file with ``speculative_config``, as of TensorRT-LLM 1.4."""

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


def config(deployment: Deployment) -> YamlConfig:
    """Return the content of the YAML file. ``/prometheus/metrics`` needs ``return_perf_metrics``."""
    settings: dict[str, YamlValue | Mapping[str, YamlValue]] = {"return_perf_metrics": True}
    if deployment.dtype is not None:
        settings["dtype"] = deployment.dtype
    if deployment.method in ("draft", "ngram"):
        settings["disable_overlap_scheduler"] = True  # both draft outside the target's own graph
    if deployment.method != "none":
        settings["speculative_config"] = _speculative(deployment)
    return settings


def _speculative(deployment: Deployment) -> Mapping[str, YamlValue]:
    settings: dict[str, YamlValue] = {
        "decoding_type": ROW.methods[deployment.method],
        "max_draft_len": deployment.depth,
    }
    if deployment.method == "ngram":
        return settings | {"max_matching_ngram_size": _LONGEST_MATCH}
    settings["speculative_model"] = deployment.draft or ""
    if deployment.tree:
        top = max(deployment.widths)
        settings |= {
            "use_dynamic_tree": True,
            "dynamic_tree_max_topK": top,
            "max_total_draft_tokens": min(deployment.nodes, top * deployment.depth),
        }
    return settings


def yaml(settings: YamlConfig) -> str:
    """Return settings as YAML, whose double-quoted strings are those of JSON."""
    lines: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += [f"{key}:", *(f"  {name}: {_scalar(item)}" for name, item in value.items())]
        else:
            lines.append(f"{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _scalar(value: YamlValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _launch(deployment: Deployment, port: int) -> LaunchPlan:
    words = command_options(
        ("--served_model_name", deployment.served),
        ("--host", deployment.host),
        ("--port", port),
        ("--max_seq_len", deployment.context),
        ("--tp_size", parallel_degree(deployment.tensor_parallel)),
        ("--pp_size", parallel_degree(deployment.pipeline_parallel)),
        ("--config", _FILE),
    )
    url = base_url_of(deployment, port)
    notes = list(foreign_heads(deployment, "TensorRT-LLM"))
    if deployment.method == "draft" and deployment.same_tokenizer is None:
        notes.append(
            "Not checked: whether draft and target have the same tokenizer; otherwise no token is accepted."
        )
    if deployment.method != "none":
        notes.append("Requests cannot turn speculation off, and requests with unknown fields are rejected.")
    return LaunchPlan(
        ("trtllm-serve", deployment.target, *words),
        files={_FILE: yaml(config(deployment))},
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
        "eagle": "its PyTorch backend supports EAGLE-3 heads only",
        "peagle": "its PyTorch backend has no decoding type for P-EAGLE heads",
        "layer_skip": "it cannot draft with layers of the target",
        "union": "it drafts with one decoding type at a time",
    },
    trees=("eagle3",),
    one_tokenizer="it requires a draft and a target that were trained with the same one",
    sources=(
        _DOCS,
        "https://github.com/NVIDIA/TensorRT-LLM/blob/main/docs/source/features/speculative-decoding.md",
        "https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html",
    ),
    launch=_launch,
)
