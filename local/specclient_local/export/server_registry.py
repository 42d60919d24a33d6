"""The supported servers by name, and the launch of a deployment on one of them.

As of vLLM 0.33, SGLang 0.5.23, TensorRT-LLM 1.4, the llama.cpp of September 2026, and transformers 5.23.
"""

from __future__ import annotations

from specclient_local.export import llamacpp, sglang, transformers, trtllm, vllm
from specclient_local.export.deployment import Deployment, LaunchPlan, ServerSpec

SERVERS: dict[str, ServerSpec] = {
    row.name: row for row in (vllm.ROW, sglang.ROW, trtllm.ROW, llamacpp.ROW, transformers.ROW)
}


def launch(server: str, deployment: Deployment) -> LaunchPlan:
    """Return the launch plan of a deployment.

    Args:
        server: a name in :data:`SERVERS`.
        deployment: the pair of models and its options.

    Raises:
        ConfigurationError: the server does not support the deployment.
    """
    row = SERVERS[server]
    row.check(deployment)
    return row.launch(deployment, deployment.port or row.port)
