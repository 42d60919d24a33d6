"""Turn folders of a pair into what a server must know of them: kind of heads, tokenizers, own sampling."""

from __future__ import annotations

from pathlib import Path

from specclient.errors import CheckpointError, ConfigurationError
from specclient_local.export.deployment import DeploymentMethod
from specclient_local.model.config import read_json


def heads_method(path: str) -> tuple[DeploymentMethod, str]:
    """Return the method that heads are for, and ``speculators`` where they are in its format, else ``""``.

    Args:
        path: a folder; only its ``config.json`` is read.

    Raises:
        ConfigurationError: no folder here, so that nothing tells.
        CheckpointError: a folder without ``config.json``, or a kind that is not known.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigurationError(
            f"heads are {path!r}, which is no folder here, so their kind is not known; name it with --method "
            "eagle, eagle3 or medusa, or fetch them first."
        )
    raw = read_json(folder / "config.json")
    kind = raw.get("speculators_model_type")
    if kind in ("eagle", "eagle3"):
        return ("eagle3" if kind == "eagle3" else "eagle"), "speculators"
    if kind is not None:
        raise CheckpointError(f"{folder}: speculators_model_type is {kind!r}; known are eagle and eagle3.")
    if "medusa_num_heads" in raw or raw.get("model_type") == "medusa":
        return "medusa", ""
    return ("eagle3" if "draft_vocab_size" in raw else "eagle"), ""


def same_tokenizer(target: str, draft: str) -> bool | None:
    """Return whether two models have one vocabulary; None where either is not here."""
    folders = [Path(path).expanduser() for path in (target, draft)]
    if not all((folder / "tokenizer.json").is_file() for folder in folders):
        return None
    from specclient_local.model.tokenizer import Tokenizer  # noqa: PLC0415 - imports a library

    first, second = map(Tokenizer, folders)
    return first.difference(second) is None


def sampling_defaults(target: str) -> tuple[str, ...]:
    """Return which parameters a target's ``generation_config.json`` sets that a server may refuse.

    Servers take that file's values for requests that name none.
    """
    file = Path(target).expanduser() / "generation_config.json"
    if not file.is_file():
        return ()
    said = read_json(file)
    return tuple(name for name in ("min_p",) if said.get(name))
