"""Turn the name of a pair and of a task into two models and a depth: the workflow's facts, as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from specclient.config import FILE_NAME, Settings
from specclient.errors import ConfigurationError
from specclient.routing.choose.draft_pairs import CLIENT_SIDE_PAIRS

Task = Literal["chat", "documents", "code", "long_context"]

#: Tokens of one segment of a draft: a sentence or two, or a few lines of code.
SEGMENT_TOKENS = 32

#: Shallowest and deepest draft by task, in segments; the deepest is the default. The numbers are those that
#: tutorials of this workflow give (HolySheep AI's articles on speculative decoding over chat APIs among
#: them): where to start from, measured by nobody here. They mean the K of speculative decoding there, tokens
#: between two verifications; over chat calls a verification is a whole request, which a few tokens never pay
#: for, so that K counts segments of :data:`SEGMENT_TOKENS` here.
DEPTHS: Mapping[Task, tuple[int, int]] = MappingProxyType(
    {"chat": (3, 4), "documents": (5, 6), "code": (4, 5), "long_context": (2, 3)}
)


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Two models, each ``provider/model``: the ``draft`` answers first, the ``target`` has the last word."""

    draft: str
    target: str


#: Pairs by what they are for: those that :data:`specclient.routing.choose.draft_pairs.CLIENT_SIDE_PAIRS`
#: knows more of.
PAIRS: Mapping[str, ModelPair] = MappingProxyType(
    {name: ModelPair(row.draft, row.target) for name, row in CLIENT_SIDE_PAIRS.items()}
)


def pair_of(settings: Settings, name: str, draft: str | None, target: str | None) -> ModelPair:
    """Return the models of a call: those that are named, else the pair's, the configuration's first.

    Raises:
        ConfigurationError: no pair has this name, with those there are; or a model that is no name.
    """
    for what, model in (("draft", draft), ("target", target)):
        if model is not None and not (isinstance(model, str) and model):
            raise ConfigurationError(
                f"{what} is {model!r}; it must be a model's name, such as 'openai/gpt-4.1' or 'local/demo'"
            )
    if draft is not None and target is not None:
        return ModelPair(draft, target)
    own = settings.pairs.get(name) if isinstance(name, str) else None
    if own is not None:
        return ModelPair(draft or own.draft, target or own.target)
    preset = PAIRS.get(name) if isinstance(name, str) else None
    if preset is None:
        known = ", ".join(dict.fromkeys([*PAIRS, *settings.pairs]))
        raise ConfigurationError(
            f"pair is {name!r}; it must be one of {known}, or a [pairs.NAME] table with draft and target in "
            f"{settings.source or FILE_NAME}"
        )
    return ModelPair(draft or preset.draft, target or preset.target)


def depth_of(task: Any, depth: Any) -> int:
    """Return the depth of a call: what is given, else the deepest that its task has.

    Raises:
        ConfigurationError: an unknown task, or a depth that is no positive number of segments.
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
