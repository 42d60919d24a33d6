"""Turn a server's name into its row, and with a pair into how it is started.

As of vLLM 0.33, SGLang 0.5.23, TensorRT-LLM 1.4 and the llama.cpp of September 2026.
"""

from __future__ import annotations

from specclient_local.export import llamacpp, sglang, trtllm, vllm
from specclient_local.export.deployment import Deployment, LaunchPlan, ServerSpec

SERVERS: dict[str, ServerSpec] = {row.name: row for row in (vllm.ROW, sglang.ROW, trtllm.ROW, llamacpp.ROW)}


def launch(server: str, asked: Deployment) -> LaunchPlan:
    """Return how a server is started with a pair.

    Args:
        server: a name of :data:`SERVERS`.
        asked: what is to be served.

    Raises:
        ConfigurationError: what the server cannot do.
    """
    row = SERVERS[server]
    row.check(asked)
    return row.launch(asked, asked.port or row.port)
