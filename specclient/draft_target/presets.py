"""Presets of the draft-target workflow: pairs of models, and draft depths by task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from specclient.config import FILE_NAME, Settings
from specclient.errors import ConfigurationError
from specclient.routing.choose.draft_pairs import CLIENT_SIDE_PAIRS

Task = Literal["chat", "documents", "code", "long_context"]

#: Tokens per segment of a draft: one or two sentences, or a few lines of code.
SEGMENT_TOKENS = 32

#: Minimum and maximum draft depth by task, in segments; the maximum is the default. The values are those of
#: tutorials of this workflow (among them HolySheep AI's articles on speculative decoding over chat APIs): a
#: starting point, not measured by us. There they are the K of speculative decoding, tokens between two
#: verifications. Over chat calls a verification is a whole request, which a few tokens cannot pay for;
#: therefore K counts segments of :data:`SEGMENT_TOKENS` tokens here.
DEPTHS: Mapping[Task, tuple[int, int]] = MappingProxyType(
    {"chat": (3, 4), "documents": (5, 6), "code": (4, 5), "long_context": (2, 3)}
)


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Two models, each ``provider/model``: the ``draft`` answers first, the ``target`` last."""

    draft: str
    target: str


#: Pairs by purpose, from :data:`specclient.routing.choose.draft_pairs.CLIENT_SIDE_PAIRS`.
PAIRS: Mapping[str, ModelPair] = MappingProxyType(
    {name: ModelPair(row.draft, row.target) for name, row in CLIENT_SIDE_PAIRS.items()}
)


def pair_of(settings: Settings, name: str, draft: str | None, target: str | None) -> ModelPair:
    """Return the models of a call.

    Args:
        name: of a pair; the configuration's pairs take precedence over :data:`PAIRS`.
        draft, target: models that replace the pair's.

    Raises:
        ConfigurationError: no pair has this name, or a model's name is not a string.
    """
    for role, model in (("draft", draft), ("target", target)):
        if model is not None and not (isinstance(model, str) and model):
            raise ConfigurationError(
                f"{role} is {model!r}; it must be a model's name, such as 'openai/gpt-4.1' or 'local/demo'"
            )
    if draft is not None and target is not None:
        return ModelPair(draft, target)
    configured = settings.pairs.get(name) if isinstance(name, str) else None
    if configured is not None:
        return ModelPair(draft or configured.draft, target or configured.target)
    preset = PAIRS.get(name) if isinstance(name, str) else None
    if preset is None:
        known = ", ".join(dict.fromkeys([*PAIRS, *settings.pairs]))
        raise ConfigurationError(
            f"pair is {name!r}; it must be one of {known}, or a [pairs.NAME] table with draft and target in "
            f"{settings.source or FILE_NAME}"
        )
    return ModelPair(draft or preset.draft, target or preset.target)


def depth_of(task: Any, depth: Any) -> int:
    """Return the depth of a call in segments: ``depth`` if given, else the maximum of its task.

    Raises:
        ConfigurationError: the task is unknown, or the depth is not a positive whole number.
    """
    if task not in get_args(Task):
        raise ConfigurationError(f"task is {task!r}; it must be one of {', '.join(get_args(Task))}")
    if depth is None:
        return DEPTHS[task][1]
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise ConfigurationError(
            f"depth is {depth!r}; it must be a whole number of segments of {SEGMENT_TOKENS} tokens, 1 or more"
        )
    return depth
