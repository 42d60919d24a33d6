"""From a target, its drafts and its heads to the deployment that a server is started with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specclient.errors import ConfigurationError
from specclient_local.export.checkpoint_facts import heads_method, same_tokenizer, sampling_defaults
from specclient_local.export.deployment import Deployment, DeploymentMethod
from specclient_local.model.config import BUNDLED, BUNDLED_MARK, local_folder

SERVED_METHODS = {"plain": "none", "eagle": "heads", "peagle": "heads", "medusa": "heads"}
"""The methods of ``[local.models.NAME]`` that servers know by another name; ``heads`` is the kind of the
heads.
"""


def pair_deployment(
    target: str,
    *,
    method: str = "auto",
    drafts: Sequence[str] = (),
    heads: Sequence[str] = (),
    depth: int | None = None,
    widths: tuple[int, ...] = (),
    context: int | None = None,
    dtype: str | None = None,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    host: str = "127.0.0.1",
    port: int | None = None,
    name: str | None = None,
    sampling: Sequence[str] = (),
) -> Deployment:
    """Return the deployment of a pair of models.

    Args:
        target: folder or hub id of the target; ``demo`` and ``bundled:…`` are the bundled checkpoints.
        method: a :data:`DeploymentMethod`; ``heads`` for the kind of the heads; ``auto`` for heads if there
            are any, else for the draft model if there is one.
        drafts: folders or hub ids of draft models; servers use only one.
        heads: folders or hub ids of EAGLE, P-EAGLE or Medusa heads; the first is used.
        depth: draft length; None for the number of widths, or 4.
        widths, context, dtype, tensor_parallel, pipeline_parallel, host, port, name: see :class:`Deployment`.
        sampling: parameters that requests will use; those that the target's ``generation_config.json`` sets
            are added.

    Raises:
        CheckpointError: a bundled checkpoint does not exist, or a configuration is invalid.
        ConfigurationError: there are several drafts, or the kind of the heads is unknown.
    """
    target = unbundled(target)
    chosen, draft, layout = _drafting(method, [*map(unbundled, drafts)], [*map(unbundled, heads)])
    deployment = Deployment(
        target=target,
        method=chosen,
        draft=draft,
        depth=depth or len(widths) or 4,
        widths=widths,
        context=context,
        dtype=dtype,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        host=host,
        port=port,
        name=name,
        sampling=tuple(dict.fromkeys([*sampling, *sampling_defaults(target)])),
        format=layout,
    )
    if chosen != "draft" or draft is None:
        return deployment
    return replace(deployment, same_tokenizer=same_tokenizer(target, draft))


def unbundled(name: str) -> str:
    """Return the folder of a bundled checkpoint, for ``demo`` the target's, or else the name itself."""
    if name == "demo" and not Path(name).is_dir():
        return str(BUNDLED / "target")
    return str(local_folder(name)) if name.startswith(BUNDLED_MARK) else name


def _drafting(
    method: str, drafts: Sequence[str], heads: Sequence[str]
) -> tuple[DeploymentMethod, str | None, str]:
    """Return the method, the checkpoint of the draft or heads, and the format of heads."""
    if method == "auto":
        method = "heads" if heads else "draft" if drafts else "none"
    if method == "draft" and len(drafts) > 1:
        raise ConfigurationError(
            f"drafts are {', '.join(drafts)}; a server uses only one, choose it with --draft."
        )
    if method == "draft":
        return "draft", drafts[0] if drafts else None, ""
    if method in ("heads", "eagle", "eagle3", "peagle", "medusa") and heads:
        return _heads_method(method, heads[0])
    return ("eagle3" if method == "heads" else method), None, ""  # type: ignore[return-value]  # checked by the server's row


def _heads_method(method: str, heads: str) -> tuple[DeploymentMethod, str, str]:
    """Return the kind of heads: from their folder, or as given if they are not local."""
    if method == "heads":
        kind, layout = heads_method(heads)
        return kind, heads, layout
    try:
        kind, layout = heads_method(heads)
    except ConfigurationError:
        return method, heads, ""  # type: ignore[return-value]  # as above
    if method != kind and not (method == "eagle" and kind == "eagle3"):
        raise ConfigurationError(
            f"method is {method!r}, but the heads {heads} are for {kind}; omit --method."
        )
    return kind, heads, layout
