"""Facts of checkpoint folders that start commands depend on: kind of heads, tokenizers, sampling defaults."""

from __future__ import annotations

from pathlib import Path

from specclient.errors import CheckpointError, ConfigurationError
from specclient_local.export.deployment import DeploymentMethod
from specclient_local.model.checkpoint_files import read_json, shown


def heads_method(path: str) -> tuple[DeploymentMethod, str]:
    """Return the method of heads, and their format: ``speculators``, or ``""`` for that of their authors.

    Args:
        path: a folder; only its ``config.json`` is read.

    Raises:
        ConfigurationError: the folder does not exist on this machine.
        CheckpointError: the folder has no ``config.json``, or the kind of heads is unknown.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigurationError(
            f"heads are {path!r}, which is not a folder on this machine, so their kind is unknown; name it "
            "with --method eagle, eagle3, peagle or medusa, or download the heads first."
        )
    raw = read_json(folder / "config.json")
    kind = raw.get("speculators_model_type")
    known: dict[object, DeploymentMethod] = {"eagle": "eagle", "eagle3": "eagle3", "peagle": "peagle"}
    if kind in known:
        return known[kind], "speculators"
    if kind is not None:
        raise CheckpointError(
            f"{folder}: speculators_model_type is {shown(kind)}; supported are eagle, eagle3 and peagle."
        )
    if "medusa_num_heads" in raw or raw.get("model_type") == "medusa":
        return "medusa", ""
    if "draft_vocab_size" not in raw:
        return "eagle", ""
    from specclient_local.model.heads.eagle_checkpoint import MASK_NAMES  # noqa: PLC0415 - imports torch

    return ("peagle" if any(raw.get(name) is not None for name in MASK_NAMES) else "eagle3"), ""


def same_tokenizer(target: str, draft: str) -> bool | None:
    """Return whether two models have the same vocabulary; None if one of them is not on this machine."""
    folders = [Path(path).expanduser() for path in (target, draft)]
    if not all((folder / "tokenizer.json").is_file() for folder in folders):
        return None
    from specclient_local.model.tokenizer import Tokenizer  # noqa: PLC0415 - imports a library

    first, second = map(Tokenizer, folders)
    return first.difference(second) is None


def sampling_defaults(target: str) -> tuple[str, ...]:
    """Return the parameters in a target's ``generation_config.json`` that a server may reject.

    Servers use the values in that file as defaults of requests.
    """
    file = Path(target).expanduser() / "generation_config.json"
    if not file.is_file():
        return ()
    defaults = read_json(file)
    return tuple(name for name in ("min_p",) if defaults.get(name))
