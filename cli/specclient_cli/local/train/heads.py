"""``specclient local train heads``: train Medusa, EAGLE or P-EAGLE heads for a target."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from specclient_local.model.config import short_name

from specclient_cli.common import options, parameter_types
from specclient_cli.common.state import State, pass_state
from specclient_cli.local.model_pair import configured_model
from specclient_cli.local.train.data import SUFFIXES, read_texts, split_held_out
from specclient_cli.local.train.progress import progress_figures, show_progress
from specclient_cli.local.train.train_options import count_option, device_option, folder_option, target_option

if TYPE_CHECKING:
    from specclient_local.training.heads.recipe import HeadsProgress, HeadsRecipe

_STAGES = {"collect": "collecting answers", "train": "training"}
_KINDS = ("medusa", "eagle", "eagle3", "peagle")
_SUFFIXES = (*SUFFIXES, ".json", ".jsonl")


@click.command(name="heads")
@target_option
@click.option("--kind", type=click.Choice(_KINDS), required=True, help="Kind of heads.")
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    help='Prompts: a file with one object like {"prompt": "…"} per line, or a folder of texts. Default: '
    "the standard library, without the modules that were held out for the bundled models.",
)
@folder_option(
    "out",
    "Folder of the trained heads.",
    required=True,
)
@folder_option(
    "work",
    "Folder of hidden states and checkpoints, from which a run resumes. Default: OUT/work.",
)
@count_option("steps", 900, "Optimizer steps.")
@count_option("prompts", 3072, "Number of training answers of the target.")
@count_option("heldout", 96, "Number of held-out answers.")
@count_option("prompt-tokens", 32, "Tokens of a prompt.", 2)
@count_option("new", 96, "Tokens of an answer.", 16)
@count_option("batch", None, "Answers per pass. Default: 16; 32 for Medusa, 8 for P-EAGLE.")
@count_option("accumulate", 1, "Passes per optimizer step.")
@count_option(
    "depth",
    None,
    "Number of Medusa heads, or of tokens that an EAGLE or P-EAGLE head drafts in training. Default: 6; 4 "
    "for EAGLE.",
)
@count_option("layers", 2, "Layers of a P-EAGLE head.")
@click.option(
    "--start",
    metavar="FOLDER",
    help="Folder or hub id of an EAGLE-3 head with which a P-EAGLE head starts, such as bundled:eagle3.",
)
@count_option("blocks", 1, "Residual blocks per Medusa head.")
@count_option("ff", None, "Feed-forward width of an EAGLE head. Default: half of the target's width.")
@count_option("draft-vocab", 2048, "Vocabulary size of an EAGLE-3 head: the most frequent tokens.")
@click.option(
    "--taps",
    metavar="A,B,C",
    help="Layers whose output EAGLE-3 reads. Default: 0 (the embedding), the middle one, the last but one.",
)
@click.option(
    "--lr",
    type=parameter_types.NonNegativeFloat(above_zero=True),
    help="Peak learning rate. Default: 0.003; 0.02 for Medusa.",
)
@click.option(
    "--precision",
    type=click.Choice(["bfloat16", "float32"]),
    default="bfloat16",
    show_default=True,
    help="Data type of computation; weights stay in float32.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the initial parameters and all random draws.",
)
@device_option
@click.option("--threads", type=click.IntRange(min=1), help="Number of CPU threads. Default: that of torch.")
@options.json_option
@pass_state
def command(state: State, /, **given: Any) -> None:
    """Train Medusa, EAGLE or P-EAGLE heads for a frozen target.

    The target answers prompts, its hidden states are saved, and the heads learn to predict its next tokens
    from them. To resume an interrupted run, repeat the command. EAGLE and P-EAGLE heads are saved in the
    format of `speculators`, Medusa heads in that of their authors.

    \b
    Examples:
      specclient local train heads --kind eagle3 --out ./eagle3
      specclient local train heads --kind medusa --data src/ --out ./medusa
      specclient local train heads --kind peagle --start bundled:eagle3 --out out
      specclient local generate "def main():" --heads ./eagle3 --method eagle

    Environment: SPECCLIENT_CONFIG, HF_TOKEN, HF_HOME, NO_COLOR.
    """
    import torch  # noqa: PLC0415 - heavy
    from specclient_local.training.heads.trainer import train_heads  # noqa: PLC0415

    row = configured_model(state, given["target"])
    target = given["target"] if row is None else row.path
    texts, heldout = _texts(given["data"])
    recipe = _recipe(given)
    if given["threads"]:
        torch.set_num_threads(given["threads"])
    begun = time.monotonic()
    with show_progress(_STAGES, _figures, _HeadsTrainingLog()) as report:
        last = train_heads(
            target,
            texts,
            heldout,
            given["out"],
            recipe,
            work=given["work"],
            device=given["device"],
            on_progress=report,
        )
    _report(given, target, last, time.monotonic() - begun)


def _recipe(given: dict[str, Any]) -> HeadsRecipe:
    from specclient_local.training.heads.dataset import CollectionSettings  # noqa: PLC0415
    from specclient_local.training.heads.recipe import HeadsRecipe  # noqa: PLC0415

    same = (
        *("kind", "steps", "batch", "accumulate", "lr", "depth", "layers", "start", "blocks", "ff"),
        *("draft_vocab", "prompts", "heldout", "precision", "seed"),
    )
    collecting = CollectionSettings(given["prompt_tokens"], given["new"], seed=given["seed"])
    every = max(1, min(50, given["steps"] // 4))
    named = {name: given[name] for name in same}
    return HeadsRecipe(taps=_taps(given["taps"]), collecting=collecting, every=every, **named)


def _taps(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a list of layers; write numbers such as 2,4,6.", param_hint="--taps"
        ) from None


def _texts(data: Path | None) -> tuple[list[str], list[str]]:
    """Return training texts and held-out texts.

    Raises:
        ConfigurationError: there are fewer than two texts.
    """
    from specclient_local.measure.prompts import read_prompts  # noqa: PLC0415
    from specclient_local.training.corpus import split_modules  # noqa: PLC0415

    if data is None:
        return [m.text for m in split_modules("train")], [m.text for m in split_modules("heldout")]
    if data.is_dir():
        return split_held_out(dict(read_texts(data, _SUFFIXES)), data)
    return split_held_out({str(i): text for i, text in enumerate(read_prompts(data))}, data)


class _HeadsTrainingLog:
    """Prints a line for each evaluation and at the end of each stage."""

    def __init__(self) -> None:
        self._before: Sequence[float] = ()

    def __call__(self, progress: HeadsProgress) -> None:
        if progress.done == progress.of or progress.accepted != self._before:
            self._before = progress.accepted
            click.echo(f"{_STAGES[progress.stage]} {_figures(progress)}", err=True)


def _figures(progress: HeadsProgress) -> str:
    if not progress.accepted:
        return progress_figures(progress, [])
    first = f"held out: first token accepted {progress.accepted[0]:.1%}"
    return progress_figures(progress, [first, f"{progress.tokens_per_round:.2f} tokens per round"])


def _report(given: dict[str, Any], target: str, last: HeadsProgress, seconds: float) -> None:
    size = sum(path.stat().st_size for path in given["out"].glob("*.safetensors"))
    if given["as_json"]:
        values = {
            "target": target,
            "kind": given["kind"],
            "out": str(given["out"]),
            "bytes": size,
            "seconds": round(seconds, 1),
            "accepted": [round(share, 4) for share in last.accepted],
            "tokens_per_round": round(last.tokens_per_round, 4),
        }
        click.echo(json.dumps(values))
        return
    shares = " ".join(f"{share:.1%}" for share in last.accepted)
    click.echo(
        f"{given['kind']} heads of {short_name(target)}: {given['out']}, {size / 1e6:.2f} MB, {seconds:.0f} s"
    )
    click.echo(
        f"held-out greedy chains: accepted up to each depth {shares}; "
        f"{last.tokens_per_round:.2f} tokens per round"
    )
