"""A pair of models turned into the command that starts another server with it."""

from __future__ import annotations

from specclient_local.export.deployment import METHODS, Deployment, Launch, Method, Server
from specclient_local.export.reading import kind_of_heads, same_tokenizer, sampling_defaults
from specclient_local.export.servers import SERVERS, launch

__all__ = [
    "METHODS",
    "SERVERS",
    "Deployment",
    "Launch",
    "Method",
    "Server",
    "kind_of_heads",
    "launch",
    "same_tokenizer",
    "sampling_defaults",
]
