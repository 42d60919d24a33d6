"""Start commands of other inference servers for a pair of models."""

from __future__ import annotations

from specclient_local.export.checkpoint_facts import heads_method, same_tokenizer, sampling_defaults
from specclient_local.export.deployment import (
    DEPLOYMENT_METHODS,
    Deployment,
    DeploymentMethod,
    LaunchPlan,
    ServerProgram,
    ServerSpec,
)
from specclient_local.export.pair_deployment import pair_deployment
from specclient_local.export.server_registry import SERVERS, launch

__all__ = [
    "DEPLOYMENT_METHODS",
    "SERVERS",
    "Deployment",
    "DeploymentMethod",
    "LaunchPlan",
    "ServerProgram",
    "ServerSpec",
    "heads_method",
    "launch",
    "pair_deployment",
    "same_tokenizer",
    "sampling_defaults",
]
