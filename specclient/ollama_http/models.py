"""The served models in Ollama's form, and the version of the API.

Fields: https://github.com/ollama/ollama/blob/main/docs/api.md. What is not known, such as the size of a
hosted model, is empty or 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from specclient.types.backend import BackendModel
from specclient.types.model_kind import EMBEDDING_KIND
from specclient.version import VERSION

__all__ = ["model_list", "shown_details", "version_fields"]

#: The version of Ollama whose API is served; clients compare it with the least version that they need.
API_VERSION = "0.12.0"
#: The time when a model was changed is unknown.
_MODIFIED = "1970-01-01T00:00:00Z"
_CAPABILITIES = ("completion", "tools")


def version_fields() -> dict[str, str]:
    """Return the version of Ollama's API, and that of this package."""
    return {"version": API_VERSION, "specclient": VERSION}


def model_list(names: Iterable[str]) -> dict[str, Any]:
    """Return the models of ``/api/tags``."""
    return {"models": [_listed(name) for name in names]}


def shown_details(model: str, engine_model: BackendModel | None) -> dict[str, Any]:
    """Return the facts of a model for ``/api/show``.

    Args:
        model: ``provider/model``.
        engine_model: the facts of an engine's model; None for a hosted model.
    """
    info: dict[str, Any] = {"general.basename": model}
    is_embedding = engine_model is not None and engine_model.kind == EMBEDDING_KIND
    if engine_model is not None:
        info |= {"general.architecture": "specclient", "specclient.target": engine_model.target}
        info |= {"specclient.method": engine_model.method}
        if engine_model.draft is not None:
            info["specclient.draft"] = engine_model.draft
        if engine_model.context is not None:
            info["specclient.context_length"] = engine_model.context
        if engine_model.dimensions is not None:
            info["specclient.embedding_length"] = engine_model.dimensions
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "modified_at": _MODIFIED,
        "details": _details(),
        "model_info": info,
        "capabilities": ["embedding"] if is_embedding else list(_CAPABILITIES),
    }


def _listed(name: str) -> dict[str, Any]:
    digest = hashlib.sha256(name.encode()).hexdigest()  # distinguishes models; nothing is known of the files
    return {
        "name": name,
        "model": name,
        "modified_at": _MODIFIED,
        "size": 0,
        "digest": digest,
        "details": _details(),
    }


def _details() -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "",
        "family": "",
        "families": [],
        "parameter_size": "",
        "quantization_level": "",
    }
