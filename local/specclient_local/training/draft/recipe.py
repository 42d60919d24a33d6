"""Turn the settings of a draft's training, and how far it is, into values that are passed around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from specclient_local.training.draft.samples import AnswerSampling
from specclient_local.training.losses import Loss

Precision = Literal["bfloat16", "float16", "float32"]


@dataclass(frozen=True, slots=True)
class DraftRecipe:
    """Every number a run depends on.

    Attributes:
        loss: see :func:`specclient_local.training.losses.distillation_loss`.
        steps: optimizer steps.
        batch: answers of a pass; ``accumulate`` passes make a step.
        lr: peak learning rate; it rises over ``warmup`` steps and then falls linearly to zero.
        prompts: answers of the target to learn from; ``heldout`` more are measured on.
        sampling: how they are made.
        precision: what passes compute in; the draft's weights stay in float32 until they are saved.
        seed: of the order in which answers are learnt.
        every: steps between measurements, each followed by a checkpoint.
    """

    loss: Loss = "kl"
    steps: int = 300
    batch: int = 8
    accumulate: int = 1
    lr: float = 2e-3
    warmup: int = 20
    prompts: int = 768
    heldout: int = 48
    sampling: AnswerSampling = field(default_factory=AnswerSampling)
    precision: Precision = "bfloat16"
    seed: int = 0
    every: int = 50


@dataclass(frozen=True, slots=True)
class DraftAgreement:
    """How well a draft says what its target would, on answers to prompts that neither learnt from.

    Attributes:
        drawn: chance that a token drawn at temperature 1 is accepted, Σ min(p, q).
        greedy: share of greedy tokens that the draft would have said.
        tokens_per_round: of greedy speculation with 4 drafted tokens, the target's own included.
    """

    drawn: float
    greedy: float
    tokens_per_round: float


@dataclass(frozen=True, slots=True)
class DraftProgress:
    """How far a run is.

    Attributes:
        stage: ``sample`` or ``train``.
        done, of: prompts answered, or steps done.
        loss: mean of the last 20 steps; None before the first.
        agreement: the last measurement; None while sampling.
        left_s: about how many seconds the stage still takes; None where nothing was done in it yet.
    """

    stage: Literal["sample", "train"]
    done: int
    of: int
    loss: float | None = None
    agreement: DraftAgreement | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class DraftTrainingResult:
    """What a run came to: the draft's agreement before and after it."""

    before: DraftAgreement
    after: DraftAgreement


@dataclass(frozen=True, slots=True)
class PromptCorpus:
    """What answers begin with.

    Attributes:
        texts, heldout: to learn from and to measure on.
        whole: whether they are prompts themselves, or files to cut prompts out of.
    """

    texts: Sequence[str]
    heldout: Sequence[str]
    whole: bool
