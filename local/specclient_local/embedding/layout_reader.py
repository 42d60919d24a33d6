"""The reader of sentence-transformers checkpoints: their modules, from JSON files as untrusted input.

The format is that of the ``sentence-transformers`` package: ``modules.json`` lists a model of the
transformers library, a pooling of its hidden states, and the steps that transform the pooled vector. Code
from a checkpoint is never run, so only the package's own modules are supported. This module does not import
torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from specclient.errors import CheckpointError
from specclient_local.embedding.layout import (
    ACTIVATIONS,
    MAX_DIMENSIONS,
    POOLING_FIELDS,
    POOLING_MODES,
    DenseLayout,
    EmbeddingLayout,
    LayerNormLayout,
    NormalizeLayout,
    PoolingLayout,
    VectorStep,
)
from specclient_local.model.checkpoint_files import (
    check_regular,
    checkpoint_errors,
    label,
    read_json,
    read_json_list,
    shown,
    whole_number,
)

MODULES_FILE = "modules.json"
#: Largest ``max_seq_length``, in tokens.
MAX_TOKENS = 2**24
_MAX_MODULES = 32
_PACKAGE = "sentence_transformers."
#: Names of the file with ``max_seq_length``; those besides the first are of old checkpoints.
_LENGTH_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
#: Tables of arguments for the library's loaders. Most arguments would change the embeddings; they are
#: refused.
_LOADER_ARGUMENTS = (
    "processing_kwargs",
    "config_args",
    "config_kwargs",
    "tokenizer_args",
    "processor_kwargs",
)
_HARMLESS_ARGUMENTS = frozenset({"trust_remote_code", "padding_side", "use_fast"})


def is_embedding_checkpoint(folder: Path) -> bool:
    """Return whether a folder has the file that lists a sentence-transformers model's modules."""
    return (folder / MODULES_FILE).is_file()


def read_layout(folder: Path) -> EmbeddingLayout:
    """Read the modules of a checkpoint; its weights are not read.

    Raises:
        CheckpointError: one line that names the file, the value and what is supported.
    """
    path = folder / MODULES_FILE
    if not path.exists():
        raise CheckpointError(
            f"{folder} has no {MODULES_FILE}, which every sentence-transformers checkpoint has; name such a "
            'checkpoint, or leave kind = "embedding" out if this is a chat model.'
        )
    with checkpoint_errors(path):
        modules = [_module(path, row) for row in _rows(path)]
    (first, transformer), *others = modules
    if first != "Transformer" or not others or others[0][0] != "Pooling":
        names = ", ".join(name for name, _ in modules)
        raise CheckpointError(
            f"{path}: the modules are {names}; supported are Transformer, Pooling, and after them any of "
            f"{', '.join(_STEPS)}."
        )
    pooling = _pooling(others[0][1] / "config.json")
    size, steps = len(pooling.modes) * pooling.hidden_size, []
    for name, place in others[1:]:
        if name not in _STEPS:
            raise CheckpointError(
                f"{path}: module {name} follows Pooling; supported there are {', '.join(_STEPS)}."
            )
        step = _STEPS[name](place, size)
        if isinstance(step, DenseLayout):
            size = step.outputs
        if step is not None:
            steps.append(step)
    max_tokens, length_file, lower_case = _text_limits(transformer)
    prompts, default_prompt = _prompts(folder / "config_sentence_transformers.json")
    return EmbeddingLayout(
        folder=folder,
        transformer=transformer,
        pooling=pooling,
        steps=tuple(steps),
        dimensions=size,
        max_tokens=max_tokens,
        length_file=length_file,
        lower_case=lower_case,
        prompts=prompts,
        default_prompt=default_prompt,
    )


def _rows(path: Path) -> list[Any]:
    rows = read_json_list(path)
    if not 1 <= len(rows) <= _MAX_MODULES:
        raise CheckpointError(f"{path} lists {len(rows)} modules; supported are 1 to {_MAX_MODULES}.")
    return rows


def _module(path: Path, row: Any) -> tuple[str, Path]:
    """Return the class's name of a module and its folder.

    Raises:
        CheckpointError: the module is code from the checkpoint or unknown, or its folder is elsewhere.
    """
    kind, place = row["type"], row["path"]
    if not isinstance(kind, str) or not kind.startswith(_PACKAGE):
        raise CheckpointError(
            f"{path}: module {shown(kind)} is code of the checkpoint, which would need trust_remote_code and "
            "is never run; choose a checkpoint whose modules are sentence-transformers' own."
        )
    name = kind.rpartition(".")[2]
    if name not in ("Transformer", "Pooling", *_STEPS):
        raise CheckpointError(
            f"{path}: module {label(kind)} is not supported; supported are Transformer, Pooling, "
            f"{', '.join(_STEPS)}."
        )
    parts = Path(place).parts if isinstance(place, str) else ("..",)
    if ".." in parts or Path(place).is_absolute() or not place.isprintable():
        raise CheckpointError(
            f"{path}: path {shown(place)} of a module must be a folder inside the checkpoint."
        )
    return name, path.parent / place


def _pooling(path: Path) -> PoolingLayout:
    raw = read_json(path)
    with checkpoint_errors(path):
        size = _size(raw, path, "embedding_dimension", "word_embedding_dimension")
        given = raw.get("pooling_mode")
        if given is None:
            modes = tuple(mode for name, mode in POOLING_FIELDS.items() if raw.get(name)) or ("mean",)
        else:
            modes = (given,) if isinstance(given, str) else tuple(given)
        unknown = [mode for mode in modes if mode not in POOLING_MODES]
        unknown += [name for name in raw if name.startswith("pooling_mode_") and name not in POOLING_FIELDS]
        if unknown or not 1 <= len(modes) <= len(POOLING_MODES):
            raise CheckpointError(
                f"{path}: pooling mode {shown(unknown[0] if unknown else given)} is not supported; supported "
                f"are {', '.join(POOLING_MODES)}."
            )
        return PoolingLayout(size, modes, bool(raw.get("include_prompt", True)))


def _size(raw: Mapping[str, Any], path: Path, *names: str) -> int:
    """Return a size by the first of its names that the file has."""
    name = next((name for name in names if name in raw), names[-1])
    return whole_number(raw, name, path, 1, MAX_DIMENSIONS)


def _check_input(path: Path, raw: Mapping[str, Any]) -> None:
    """Refuse a module that reads or writes anything but the pooled vector."""
    for name in ("module_input_name", "module_output_name"):
        if raw.get(name) not in (None, "sentence_embedding"):
            raise CheckpointError(
                f"{path}: {name} is {shown(raw[name])}; only modules of the sentence_embedding are supported."
            )


def _check_size(path: Path, name: str, stated: int, size: int) -> None:
    if stated != size:
        raise CheckpointError(
            f"{path}: {name} is {stated}, but the vector before it has {size} numbers; the modules belong to "
            "different models."
        )


def _dense(folder: Path, size: int) -> DenseLayout:
    path = folder / "config.json"
    raw = read_json(path)
    with checkpoint_errors(path):
        _check_input(path, raw)
        _check_size(path, "in_features", _size(raw, path, "in_features"), size)
        activation = raw.get("activation_function", "torch.nn.modules.activation.Tanh")
        name = str(activation).rpartition(".")[2]
        if not str(activation).startswith("torch.nn.") or name not in ACTIVATIONS:
            raise CheckpointError(
                f"{path}: activation_function {shown(activation)} is not supported; supported are "
                f"{', '.join(ACTIVATIONS)} of torch.nn."
            )
        outputs = _size(raw, path, "out_features")
        bias, residual = bool(raw.get("bias", True)), bool(raw.get("use_residual", False))
        return DenseLayout(folder, size, outputs, bias, name, residual)


def _layer_norm(folder: Path, size: int) -> LayerNormLayout:
    path = folder / "config.json"
    raw = read_json(path)
    with checkpoint_errors(path):
        _check_size(path, "dimension", _size(raw, path, "dimension"), size)
    return LayerNormLayout(folder, size)


def _normalize(folder: Path, size: int) -> NormalizeLayout:
    del size
    path = folder / "config.json"
    if path.exists():  # older checkpoints have neither file nor folder
        raw = read_json(path)
        with checkpoint_errors(path):
            _check_input(path, raw)
    return NormalizeLayout()


def _dropout(folder: Path, size: int) -> None:
    """Return None: dropout has an effect in training only."""
    del folder, size


#: Modules that may follow the pooling, by class.
_STEPS: Mapping[str, Callable[[Path, int], VectorStep | None]] = {
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Normalize": _normalize,
    "Dropout": _dropout,
}


def _text_limits(folder: Path) -> tuple[int | None, Path | None, bool]:
    """Return ``max_seq_length``, its file, and whether texts are changed to lower case."""
    path = next((folder / name for name in _LENGTH_FILES if (folder / name).exists()), None)
    if path is None:
        return None, None, False
    raw = read_json(path)
    with checkpoint_errors(path):
        task = raw.get("transformer_task", "feature-extraction")
        if task != "feature-extraction":
            raise CheckpointError(
                f"{path}: transformer_task is {shown(task)}; only feature-extraction gives embeddings."
            )
        for name in _LOADER_ARGUMENTS:
            extra = sorted(set(raw.get(name) or {}) - _HARMLESS_ARGUMENTS)
            if extra:
                raise CheckpointError(f"{path}: {name} sets {shown(extra[0])}, which is not supported.")
        given = raw.get("max_seq_length")
        limit = None if given is None else whole_number(raw, "max_seq_length", path, 1, MAX_TOKENS)
        return limit, path, bool(raw.get("do_lower_case", False))


def _prompts(path: Path) -> tuple[Mapping[str, str], str | None]:
    """Return the prompts by name, and the name of the default one."""
    check_regular(path)
    if not path.exists():
        return {}, None
    raw = read_json(path)
    with checkpoint_errors(path):
        kind = raw.get("model_type", "SentenceTransformer")
        if kind != "SentenceTransformer":
            raise CheckpointError(
                f"{path}: model_type is {shown(kind)}; only a SentenceTransformer embeds texts."
            )
        given = raw.get("prompts") or {}
        prompts = {name: text for name, text in given.items() if text is not None}
        for name, text in prompts.items():
            if not isinstance(text, str):
                raise CheckpointError(
                    f"{path}: the prompt {shown(name)} is {shown(text)}; it must be a string."
                )
        default = raw.get("default_prompt_name")
        if default is not None and default not in prompts:
            raise CheckpointError(
                f"{path}: default_prompt_name is {shown(default)}; the prompts are {label(sorted(prompts))}."
            )
        return prompts, default
