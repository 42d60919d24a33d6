"""vLLM: ``vllm serve`` with the keys of ``--speculative-config``, as of vLLM 0.33."""

from __future__ import annotations

import json
from typing import Any

from specclient_local.export.deployment import (
    Deployment,
    LaunchPlan,
    ServerProgram,
    ServerSpec,
    base_url_of,
    command_options,
    parallel_degree,
)

_DOCS = "https://docs.vllm.ai/en/latest/features/speculative_decoding/"

_LOOKUP = {"prompt_lookup_min": 2, "prompt_lookup_max": 5}
"""The values of the documentation's example; by default vLLM looks up only runs of five tokens."""


def speculative_config(deployment: Deployment) -> dict[str, Any]:
    """Return the object of ``--speculative-config``; empty without speculation."""
    if deployment.method == "none":
        return {}
    config: dict[str, Any] = {"method": ROW.methods[deployment.method]}
    if deployment.draft is not None and deployment.method != "ngram":
        config["model"] = deployment.draft
    config["num_speculative_tokens"] = deployment.depth
    if deployment.method == "peagle":
        config["parallel_drafting"] = True
    if deployment.method == "ngram":
        config |= _LOOKUP
    if deployment.method == "draft" and deployment.same_tokenizer is False:
        config["use_heterogeneous_vocab"] = True
    return config


def _launch(deployment: Deployment, port: int) -> LaunchPlan:
    config = speculative_config(deployment)
    words = command_options(
        ("--served-model-name", deployment.served),
        ("--host", deployment.host),
        ("--port", port),
        ("--max-model-len", deployment.context),
        ("--dtype", deployment.dtype),
        ("--tensor-parallel-size", parallel_degree(deployment.tensor_parallel)),
        ("--pipeline-parallel-size", parallel_degree(deployment.pipeline_parallel)),
        ("--speculative-config", json.dumps(config) if config else None),
        ("--per-request-spec-decode-metrics", "summary" if config else None),
    )
    url = base_url_of(deployment, port)
    return LaunchPlan(
        ("vllm", "serve", deployment.target, *words), notes=_notes(deployment), base_url=f"{url}/v1"
    )


def _notes(deployment: Deployment) -> tuple[str, ...]:
    if deployment.method == "none":
        return ()
    notes = ["With speculation, vLLM answers requests with min_p or logit_bias with status 400."]
    if deployment.method == "draft" and deployment.same_tokenizer is False:
        notes.append("The draft proposes only its most likely tokens among those in both vocabularies.")
    if deployment.method == "draft" and deployment.same_tokenizer is None:
        notes.append(
            "Not checked: whether draft and target have the same tokenizer. If they do not, add "
            '"use_heterogeneous_vocab": true to the object.'
        )
    return tuple(notes)


_PROGRAM = ServerProgram(
    help=(("vllm", "serve", "--help=all"), ("vllm", "serve", "--help")),  # older versions lack "=all"
    version=("vllm", "--version"),
    optional=("--per-request-spec-decode-metrics",),
    key_variable="VLLM_API_KEY",
)

ROW = ServerSpec(
    name="vllm",
    title="vLLM",
    provider="vllm",
    port=8000,
    methods={
        "draft": "draft_model",
        "ngram": "ngram",
        "eagle": "eagle",
        "eagle3": "eagle3",
        "peagle": "eagle3",
    },
    missing={
        "medusa": "vLLM has served no Medusa heads since mid-2026",
        "layer_skip": "vLLM cannot draft with layers of the target",
        "union": "vLLM drafts with one method at a time",
    },
    refused=("min_p", "logit_bias"),
    pipelined=("none", "eagle3"),
    sources=(
        _DOCS,
        "https://github.com/vllm-project/vllm/blob/main/docs/features/speculative_decoding/draft_model.md",
        "https://github.com/vllm-project/vllm/blob/main/docs/features/speculative_decoding/acceptance_metrics.md",
        "https://github.com/vllm-project/vllm/pull/55623",
        "https://github.com/vllm-project/vllm/pull/32887",
    ),
    launch=_launch,
    program=_PROGRAM,
)
