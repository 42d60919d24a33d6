"""Presets of the draft-target workflow: pairs of models, and draft depths by task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from specclient.config import FILE_NAME, Settings
from specclient.errors import ConfigurationError
from specclient.routing.choose.draft_pairs import CLIENT_SIDE_PAIRS

Task = Literal["chat", "documents", "code", "long_context"]

#: Tokens per segment of a draft: one or two sentences, or a few lines of code.
SEGMENT_TOKENS = 32

_ADVISED_DEPTHS: Mapping[Task, tuple[int, int]] = MappingProxyType(
    {"chat": (3, 4), "documents": (5, 6), "code": (4, 5), "long_context": (2, 3)}
)

#: Minimum and maximum draft length by task, in tokens. The values are those of tutorials of this workflow
#: (among them HolySheep AI's articles on speculative decoding over chat APIs), which call them
#: ``speculation_depth`` and send them as the draft call's ``max_tokens``. They are the K of speculative
#: decoding, tokens between two verifications, and not measured by us.
DEPTHS_TOKENS: Mapping[Task, tuple[int, int]] = _ADVISED_DEPTHS

#: Minimum and maximum draft depth by task, in segments; the maximum is the default. The numbers are those of
#: :data:`DEPTHS_TOKENS`: a starting point. Over chat calls a verification is a whole request, which a few
#: tokens cannot pay for; therefore they count segments of :data:`SEGMENT_TOKENS` tokens here.
DEPTHS: Mapping[Task, tuple[int, int]] = _ADVISED_DEPTHS

#: The ``depth_tokens`` that stands for the maximum of :data:`DEPTHS_TOKENS` for the call's task.
BY_TASK: Final = "task"

DepthTokens = int | Literal["task"]


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


@dataclass(frozen=True, slots=True)
class DraftLength:
    """The maximum length of a draft.

    Attributes:
        tokens: the draft call's token limit.
        segments: the depth in segments of :data:`SEGMENT_TOKENS`; None where it was given in tokens.
    """

    tokens: int
    segments: int | None = None


def draft_length_of(task: Any, depth: Any, depth_tokens: Any) -> DraftLength:
    """Return the draft's length: what is given, else the maximum of the task in segments.

    Args:
        task: one of :data:`Task`.
        depth: in segments of :data:`SEGMENT_TOKENS` tokens, or None.
        depth_tokens: in tokens, or ``"task"`` for the maximum of the task in tokens, or None.

    Raises:
        ConfigurationError: the task is unknown, both lengths are given, or one is not a positive whole
            number.
    """
    if task not in get_args(Task):
        raise ConfigurationError(f"task is {task!r}; it must be one of {', '.join(get_args(Task))}")
    if depth is not None and depth_tokens is not None:
        raise ConfigurationError(
            f"depth is {depth!r} and depth_tokens is {depth_tokens!r}; give depth (in segments of "
            f"{SEGMENT_TOKENS} tokens) or depth_tokens (in tokens), not both"
        )
    if depth_tokens is not None:
        if depth_tokens == BY_TASK:
            return DraftLength(DEPTHS_TOKENS[task][1])
        if not _is_positive(depth_tokens):
            raise ConfigurationError(
                f"depth_tokens is {depth_tokens!r}; it must be a whole number of tokens, 1 or more, or "
                f"{BY_TASK!r} for the task's preset"
            )
        return DraftLength(depth_tokens)
    segments = DEPTHS[task][1] if depth is None else depth
    if not _is_positive(segments):
        raise ConfigurationError(
            f"depth is {depth!r}; it must be a whole number of segments of {SEGMENT_TOKENS} tokens, 1 or more"
        )
    return DraftLength(segments * SEGMENT_TOKENS, segments)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
