"""``specclient local train draft``: train a draft model for a target."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from specclient_local.model.config import short_name

from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.local.model_pair import configured_model
from specclient_cli.local.train.data import load_texts
from specclient_cli.local.train.progress import progress_figures, show_progress
from specclient_cli.local.train.train_options import count_option, device_option, folder_option, target_option

if TYPE_CHECKING:
    from specclient_local.training.draft.recipe import (
        DraftAgreement,
        DraftProgress,
        DraftRecipe,
        DraftTrainingResult,
    )

_LOSSES = ("kl", "hard", "tv")
_STAGES = {"sample": "sampling answers", "train": "training"}
_LINE_S = 10.0
"""Seconds between two progress lines if stderr is not a terminal."""


class TemperatureList(parameter_types.ParameterType):
    """Numbers of 0 or more, separated by commas."""

    name = "temperatures"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        each = parameter_types.NonNegativeFloat()
        return tuple(each.convert(part, param, ctx) for part in str(value).split(","))


@click.command(name="draft")
@target_option
@click.option(
    "--draft",
    help="Folder or hub id of the initial draft, which has the target's vocabulary; it is not changed. "
    "Default: the draft configured for the target.",
)
@click.option(
    "--data",
    required=True,
    help='Prompts: a file with one object like {"prompt": "…"} per line, a folder of texts, or a data set '
    "of the hub. One text in ten is held out.",
)
@folder_option(
    "out",
    "Folder of the trained draft.",
    required=True,
)
@folder_option(
    "work",
    "Folder of sampled answers and checkpoints, from which a run resumes. Default: OUT/work.",
)
@click.option(
    "--loss",
    type=click.Choice(_LOSSES),
    default="kl",
    show_default=True,
    help="Loss: kl (forward KL divergence to the target), hard (its most likely token), or tv (total "
    "variation).",
)
@count_option("steps", 300, "Optimizer steps.")
@count_option("prompts", 768, "Number of training answers of the target.")
@count_option("heldout", 48, "Number of held-out answers.", 2)
@count_option("prompt-tokens", 64, "Maximum tokens of a prompt; longer ones are cut.")
@count_option("new", 192, "Maximum tokens of an answer.", 2)
@count_option("batch", 8, "Answers per pass.")
@count_option("accumulate", 1, "Passes per optimizer step.")
@count_option("slots", 32, "Answers sampled concurrently.")
@count_option("warmup", 20, "Steps of learning-rate warm-up; afterwards the rate decays to zero.", 0)
@count_option("every", 50, "Steps between two evaluations; each writes a checkpoint.")
@click.option(
    "--temperatures",
    type=TemperatureList(),
    default="0,1",
    show_default=True,
    metavar="T,…",
    help="Sampling temperatures of the answers, in turn; 0 is greedy.",
)
@click.option(
    "--lr",
    type=parameter_types.NonNegativeFloat(above_zero=True),
    default=2e-3,
    show_default=True,
    help="Peak learning rate.",
)
@click.option(
    "--precision",
    type=click.Choice(["bfloat16", "float16", "float32"]),
    default="bfloat16",
    show_default=True,
    help="Data type of computation; weights stay in float32 until they are saved.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random draws."
)
@device_option
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Number of CPU threads. Default: 1 for a small target, else that of torch.",
)
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Train a draft model for a target on your texts.

    The target answers the prompts, and the draft learns the target's distribution at each position. The
    acceptance rate is measured on held-out texts before and after: for sampled tokens (the probability that a
    token of the draft is accepted, Σ min(p, q)) and for greedy tokens. To resume an interrupted run, repeat
    the command. The result and the checkpoints are Hugging Face folders.

    \b
    Examples:
      specclient local train draft --data src/ --out ./my-draft
      specclient local train draft -m big --draft small --data my.jsonl --out ./d
      specclient local bench --model big --draft ./d --prompts my.jsonl

    Environment: SPECCLIENT_CONFIG, HF_TOKEN, HF_HOME, NO_COLOR.
    """
    from specclient_local.training.draft.recipe import PromptCorpus  # noqa: PLC0415
    from specclient_local.training.draft.trainer import train_draft  # noqa: PLC0415 - imports torch

    row = configured_model(state, given["target"])
    target = given["target"] if row is None else row.path
    draft = given["draft"] or (row.options.draft[0] if row is not None and row.options.draft else None)
    corpus, recipe = PromptCorpus(*load_texts(given["data"])), _recipe(given)
    begun = time.monotonic()
    with show_progress(_STAGES, _figures, _DraftTrainingLog(time.monotonic)) as report:
        found = train_draft(
            target,
            draft,
            corpus,
            given["out"],
            recipe,
            work=given["work"],
            device=given["device"],
            threads=given["threads"],
            on_progress=report,
        )
    _report(given, target, draft, found, time.monotonic() - begun)


def _recipe(given: dict[str, Any]) -> DraftRecipe:
    from specclient_local.training.draft.recipe import DraftRecipe  # noqa: PLC0415
    from specclient_local.training.draft.samples import AnswerSampling  # noqa: PLC0415

    names = (
        *("loss", "steps", "batch", "accumulate", "lr", "warmup", "prompts", "heldout", "precision"),
        *("seed", "every"),
    )
    sampling = AnswerSampling(
        given["prompt_tokens"], given["new"], given["temperatures"], given["slots"], given["seed"]
    )
    return DraftRecipe(sampling=sampling, **{name: given[name] for name in names})


class _DraftTrainingLog:
    """Prints a line for each evaluation, at the end of each stage, and every few seconds.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._at = clock, clock()
        self._before: DraftAgreement | None = None

    def __call__(self, progress: DraftProgress) -> None:
        now, evaluated = self._clock(), progress.agreement is not self._before
        if evaluated or progress.done == progress.of or now - self._at >= _LINE_S:
            self._before, self._at = progress.agreement, now
            click.echo(f"{_STAGES[progress.stage]} {_figures(progress)}", err=True)


def _figures(progress: DraftProgress) -> str:
    found = progress.agreement
    return progress_figures(progress, [] if found is None else [f"held out: {_agreement(found)}"])


def _agreement(found: DraftAgreement) -> str:
    return (
        f"{found.drawn:.1%} of sampled and {found.greedy:.1%} of greedy tokens accepted, "
        f"{found.tokens_per_round:.2f} tokens per round"
    )


def _report(
    given: dict[str, Any], target: str, draft: str | None, found: DraftTrainingResult, seconds: float
) -> None:
    size = sum(path.stat().st_size for path in given["out"].glob("*.safetensors"))
    if given["as_json"]:
        values = {
            "target": target,
            "draft": draft,
            "out": str(given["out"]),
            "loss": given["loss"],
            "bytes": size,
            "seconds": round(seconds, 1),
            **{name: asdict(getattr(found, name)) for name in ("before", "after")},
        }
        click.echo(json.dumps(values))
        return
    render.print_paragraph(
        f"draft of {short_name(target)}: {given['out']}, {size / 1e6:.2f} MB, {seconds:.0f} s"
    )
    render.print_paragraph(f"held out, before: {_agreement(found.before)}")
    better = found.after.drawn > found.before.drawn or found.after.greedy > found.before.greedy
    render.print_paragraph(
        f"held out, after:  {_agreement(found.after)}", render.GOOD if better else render.BAD
    )
