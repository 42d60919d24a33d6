"""Settings, progress and results of draft training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from specclient_local.training.draft.samples import AnswerSampling
from specclient_local.training.losses import Loss

Precision = Literal["bfloat16", "float16", "float32"]


@dataclass(frozen=True, slots=True)
class DraftRecipe:
    """The settings of a training run.

    Attributes:
        loss: see :func:`specclient_local.training.losses.distillation_loss`.
        steps: optimizer steps.
        batch: answers per pass.
        accumulate: passes per step.
        lr: peak learning rate; it rises over ``warmup`` steps and then falls linearly to zero.
        warmup: steps of linear rise.
        prompts: number of prompts whose answers the draft is trained on.
        heldout: number of further prompts for measurements.
        sampling: settings for sampling the target's answers.
        precision: data type of passes; the draft's weights stay in float32 until they are saved.
        seed: seed of the order of answers.
        every: steps between measurements; a checkpoint follows each.
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
    """A draft's agreement with its target on held-out prompts.

    Attributes:
        drawn: probability that a token sampled at temperature 1 is accepted, Σ min(p, q).
        greedy: share of the target's greedy tokens that are also the draft's most likely tokens.
        tokens_per_round: mean tokens per round of greedy speculation with 4 drafted tokens, including the
            target's own.
    """

    drawn: float
    greedy: float
    tokens_per_round: float


@dataclass(frozen=True, slots=True)
class DraftProgress:
    """The progress of a run.

    Attributes:
        stage: ``sample`` or ``train``.
        done: answered prompts, or finished steps.
        of: their total.
        loss: mean of the last 20 steps; None before the first.
        agreement: the last measurement; None while sampling.
        left_s: estimated seconds until the end of the stage; None at its start.
    """

    stage: Literal["sample", "train"]
    done: int
    of: int
    loss: float | None = None
    agreement: DraftAgreement | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class DraftTrainingResult:
    """The draft's agreement with its target before and after the run."""

    before: DraftAgreement
    after: DraftAgreement


@dataclass(frozen=True, slots=True)
class PromptCorpus:
    """The texts from which prompts are taken.

    Attributes:
        texts: texts for training.
        heldout: texts for measurements.
        whole: whether each text is one prompt; otherwise prompts are cut from it.
    """

    texts: Sequence[str]
    heldout: Sequence[str]
    whole: bool
