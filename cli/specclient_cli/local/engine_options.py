"""Options shared by the commands of ``specclient local``, and the engine and prompts made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.text import Text
from specclient_local.loading.options import KV_CACHES, QUANTIZED, VOCABULARIES
from specclient_local.model.config import DTYPES, short_name
from specclient_local.request.params import ENGINE_METHODS

from specclient_cli.common import render
from specclient_cli.common.parameter_types import ParameterType

if TYPE_CHECKING:
    from specclient_local.engine.engine import Engine

    from specclient_cli.local.model_pair import LocalModelPair

F = TypeVar("F", bound=Callable[..., Any])


class MethodList(ParameterType):
    """Names of decoding methods, separated by commas."""

    name = "methods"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        for name in names:
            if name not in ENGINE_METHODS:
                self.fail(
                    f"{name!r} is not a method; the methods are {', '.join(ENGINE_METHODS)}.", param, ctx
                )
        return tuple(dict.fromkeys(names))


class CountList(ParameterType):
    """Whole numbers separated by commas, such as ``1,4`` or ``0-10``."""

    name = "counts"

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found: list[int] = []
        try:
            for part in str(value).split(","):
                first, _, last = part.partition("-")
                found += range(int(first), int(last or first) + 1)
        except ValueError:
            found = []
        if not found or min(found) < self.low or max(found) > self.high:
            allowed = f"whole numbers from {self.low} to {self.high}"
            self.fail(f"{value!r} are not {allowed}, such as 1,4 or 2-6.", param, ctx)
        return tuple(dict.fromkeys(found))


class LayerCount(ParameterType):
    """A number of layers, or ``search``."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "search":
            return value
        if not str(value).isdecimal():
            self.fail(f"{value!r} is not a number of layers; write a number, or 'search'.", param, ctx)
        return click.IntRange(min=1).convert(value, param, ctx)


def model_options(function: F) -> F:
    """Add the options that select and load models."""
    model = click.option(
        "-m",
        "--model",
        default="demo",
        show_default=True,
        help="'demo' (the bundled pair), a NAME of [local.models.NAME], a folder, a GGUF file, or a hub id.",
    )
    threads = click.option(
        "--threads",
        type=click.IntRange(min=1),
        help="Number of CPU threads. Default: as configured, or 1 for a small model.",
    )
    return model(loading_options(threads(function)))


#: Options that select how to draft.
_DRAFTING_OPTIONS = (
    click.option(
        "--draft",
        "drafts",
        multiple=True,
        help="Folder or hub id of a draft model; may be repeated. Default: the draft configured for the "
        "model; none for a folder.",
    ),
    click.option(
        "--heads",
        multiple=True,
        help="Folder or hub id of Medusa, EAGLE or P-EAGLE heads for the model (methods medusa, eagle, "
        "peagle), or the model's own checkpoint for the MTP head that it ships (method mtp); may be given "
        "once for each kind. The heads for demo are bundled:eagle3 and bundled:medusa.",
    ),
    click.option(
        "--layer-skip",
        type=LayerCount(),
        help="Draft with this number of the model's first layers (method layer_skip), or 'search' for the "
        "best layers.",
    ),
)
#: Options that select how the models compute.
_COMPUTING_OPTIONS = (
    click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        help="Data type of computation. Default: as configured, or float32.",
    ),
    click.option(
        "--draft-dtype",
        type=click.Choice(DTYPES),
        help="Data type of the draft's computation. Default: that of the model.",
    ),
    click.option(
        "--device",
        metavar="DEVICE",
        help="cpu, cuda, cuda:N or mps. Default: as configured, or a CUDA device if there is one.",
    ),
    click.option("--draft-device", metavar="DEVICE", help="Device of the draft. Default: that of the model."),
    click.option(
        "--quantize",
        type=click.Choice(QUANTIZED),
        help="Quantization of the model's weights. Answers are then exactly those of the quantized model.",
    ),
    click.option(
        "--draft-quantize", type=click.Choice(QUANTIZED), help="Quantization of the draft's weights."
    ),
    click.option(
        "--draft-vocabulary",
        type=click.Choice(VOCABULARIES),
        help="How to use a draft with another tokenizer: restrict it to the common tokens (shared), "
        "re-encode its text (retokenised), or refuse it (same). Default: as configured, or the better "
        "way (auto).",
    ),
    click.option(
        "--context",
        type=click.IntRange(min=2),
        help="Maximum tokens of prompt and answer. Default: the model's maximum, at most 4096.",
    ),
    click.option(
        "--kv-cache",
        type=click.Choice(KV_CACHES),
        help="Keys and values with a place for each position of each request (contiguous), or in pages "
        "that requests take and share (paged). Default: as configured, or contiguous.",
    ),
    click.option(
        "--cache-tokens",
        type=click.IntRange(min=64),
        help="Tokens that pages hold, of all requests together. Default: as configured, or what requests "
        "can use and memory has room for.",
    ),
)


def loading_options(function: F) -> F:
    """Add the options that load models."""
    for option in reversed((*_DRAFTING_OPTIONS, *_COMPUTING_OPTIONS)):
        function = option(function)
    return function


def prompt_options(new: int) -> Callable[[F], F]:
    """Add the options for the prompts of a measurement.

    Args:
        new: default number of new tokens per answer.
    """

    def add(function: F) -> F:
        for option in reversed(
            [
                click.option(
                    "--prompts",
                    type=click.Path(exists=True, dir_okay=False, path_type=Path),
                    help='File with one object like {"prompt": "…"} per line, or with one prompt as text. '
                    "Default: source code that the bundled models were not trained on.",
                ),
                click.option(
                    "--count",
                    type=click.IntRange(min=1),
                    default=8,
                    show_default=True,
                    help="Number of prompts, from the start of the file.",
                ),
                click.option(
                    "--new",
                    type=click.IntRange(min=1),
                    default=new,
                    show_default=True,
                    help="Maximum new tokens of an answer.",
                ),
            ]
        ):
            function = option(function)
        return function

    return add


draft_length_option = click.option(
    "--draft-length",
    type=click.IntRange(0, 10),
    help="Drafted tokens per pass. Default: adapted to the measured acceptance rate and cost.",
)
batch_option = click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of prompts answered concurrently.",
)
repeat_option = click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Number of measured runs; figures are their medians.",
)


def prompts_of(engine: Engine, given: Mapping[str, Any]) -> list[list[int]]:
    """Return the token ids of the prompts given by the options of :func:`prompt_options`.

    Prints on stderr how many prompts do not fit the context.

    Raises:
        ConfigurationError: the file has no prompts, or none fits the context.
    """
    from specclient_local.measure.prompts import encode_fitting, held_out, read_prompts  # noqa: PLC0415

    if given["prompts"] is None:
        texts = [engine.tokenizer.decode(ids) for ids in held_out(engine.tokenizer, given["count"])]
    else:
        texts = read_prompts(given["prompts"])[: given["count"]]
    fit, left = encode_fitting(engine.tokenizer, texts, given["new"], engine.context)
    if left:
        click.echo(f"{left} of {len(texts)} prompts exceed the context and are skipped", err=True)
    return fit


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show a status line on a terminal; yield the function that updates it."""
    screen = render.console(stderr=True)
    if not screen.is_terminal or screen.is_dumb_terminal:
        yield lambda _: None
        return
    with screen.status(Text("loading …", render.DIM)) as status:
        yield lambda text: status.update(Text(text, render.DIM))


def format_milliseconds(seconds: float | None) -> str:
    """Return seconds as milliseconds to three digits."""
    return render.UNKNOWN if seconds is None else f"{seconds * 1e3:.3g} ms"


def format_number(value: float | None, form: str = ".2f") -> str:
    """Return a formatted number; a dash if it is unknown."""
    return render.UNKNOWN if value is None else format(value, form)


def run_heading(models: LocalModelPair, engine: Engine, prompts: Sequence[Sequence[int]], new: int) -> str:
    """Return a heading with models, prompts and threads of a measurement."""
    names = " + ".join(map(short_name, (models.target, *models.drafts)))
    threads = f"{engine.threads} thread{'' if engine.threads == 1 else 's'}"
    return f"{names} · {len(prompts)} prompts, {new} new tokens each · {threads}"
