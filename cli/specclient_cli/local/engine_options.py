"""Turn command-line words into a loaded engine and the prompts it is timed on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.text import Text
from specclient_local.loading.options import QUANTIZED, VOCABULARIES
from specclient_local.model.config import DTYPES
from specclient_local.request.params import ENGINE_METHODS

from specclient_cli.common import render
from specclient_cli.common.options import ParameterType
from specclient_cli.common.state import State

if TYPE_CHECKING:
    from specclient_local.engine.engine import Engine

F = TypeVar("F", bound=Callable[..., Any])

#: Options of :func:`loading_options` that the engine takes by these names.
_LOADING = (
    "heads",
    "layer_skip",
    "dtype",
    "draft_dtype",
    "device",
    "draft_device",
    "quantize",
    "draft_quantize",
    "draft_vocabulary",
    "context",
)


class MethodList(ParameterType):
    """Names of methods, with commas between them."""

    name = "methods"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        for name in names:
            if name not in ENGINE_METHODS:
                self.fail(f"{name!r} is no method; there are {', '.join(ENGINE_METHODS)}.", param, ctx)
        return tuple(dict.fromkeys(names))


class CountList(ParameterType):
    """Whole numbers, with commas between them, as ``1,4`` or ``0-10``."""

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
    """How many layers, or ``search``."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "search":
            return value
        if not str(value).isdecimal():
            self.fail(f"{value!r} is no number of layers; write one, or 'search'.", param, ctx)
        return click.IntRange(min=1).convert(value, param, ctx)


def model_options(function: F) -> F:
    """Add which models run, and how."""
    model = click.option(
        "-m",
        "--model",
        default="demo",
        show_default=True,
        help="'demo' (the bundled pair), a name of [local.models], a folder, or a hub id.",
    )
    threads = click.option(
        "--threads",
        type=click.IntRange(min=1),
        help="Threads to compute with. Default: as configured, or 1 for a small model.",
    )
    return model(loading_options(threads(function)))


def loading_options(function: F) -> F:
    """Add how models are loaded."""
    for option in reversed(
        [
            click.option(
                "--draft",
                "drafts",
                multiple=True,
                help="Folder or hub id of a smaller model that drafts; may be repeated. Default: what is "
                "configured with the model's name; none for a folder.",
            ),
            click.option(
                "--heads",
                multiple=True,
                help="Folder or hub id of Medusa or EAGLE heads of the model (methods medusa, eagle); may be "
                "given once for each. Those of demo are bundled:eagle3 and bundled:medusa.",
            ),
            click.option(
                "--layer-skip",
                type=LayerCount(),
                help="Let so many of the model's own first layers draft (method layer_skip), or 'search' for "
                "those that suit.",
            ),
            click.option(
                "--dtype",
                type=click.Choice(DTYPES),
                help="To compute in. Default: as configured, or float32.",
            ),
            click.option(
                "--draft-dtype", type=click.Choice(DTYPES), help="The draft's. Default: the model's."
            ),
            click.option(
                "--device",
                metavar="DEVICE",
                help="cpu, cuda, cuda:N or mps. Default: as configured, or a CUDA device if there is one.",
            ),
            click.option("--draft-device", metavar="DEVICE", help="The draft's. Default: the model's."),
            click.option(
                "--quantize",
                type=click.Choice(QUANTIZED),
                help="Hold the model's weights so; answers are then exactly those of the quantised model.",
            ),
            click.option(
                "--draft-quantize", type=click.Choice(QUANTIZED), help="Hold the draft's weights so."
            ),
            click.option(
                "--draft-vocabulary",
                type=click.Choice(VOCABULARIES),
                help="What is done about a draft of another tokenizer: hold it to common tokens, encode its "
                "text again, or refuse it. Default: as configured, or what is better.",
            ),
            click.option(
                "--context",
                type=click.IntRange(min=2),
                help="Tokens of prompt and answer together. Default: the model's own, at most 4096.",
            ),
        ]
    ):
        function = option(function)
    return function


def prompt_options(new: int) -> Callable[[F], F]:
    """Add what is answered while it is timed; ``new`` tokens an answer by default."""

    def add(function: F) -> F:
        for option in reversed(
            [
                click.option(
                    "--prompts",
                    type=click.Path(exists=True, dir_okay=False, path_type=Path),
                    help='File with an object like {"prompt": "…"} a line, or else one prompt that is all of '
                    "it. Default: source code that the bundled pair was not trained on.",
                ),
                click.option(
                    "--count",
                    type=click.IntRange(min=1),
                    default=8,
                    show_default=True,
                    help="Prompts, the first ones of the file.",
                ),
                click.option(
                    "--new",
                    type=click.IntRange(min=1),
                    default=new,
                    show_default=True,
                    help="Most tokens of an answer.",
                ),
            ]
        ):
            function = option(function)
        return function

    return add


draft_length_option = click.option(
    "--draft-length",
    type=click.IntRange(0, 10),
    help="Tokens drafted for each pass. Default: adapted to the measured acceptance and cost.",
)
batch_option = click.option(
    "--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Prompts answered at a time."
)
repeat_option = click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs of each that count; figures are their medians.",
)


@dataclass(frozen=True, slots=True)
class LocalModelPair:
    """The models that are meant, before they are loaded.

    Attributes:
        target: folder or hub id; ``drafts``: likewise, in the order in which their guesses are tried.
        options: of :meth:`specclient_local.engine.engine.Engine.load`.
    """

    target: str
    drafts: tuple[str, ...]
    options: Mapping[str, Any]

    def load(self, slots: int, *, prefix_cache: bool = True) -> Engine:
        """Load them.

        Args:
            slots: requests at once.
            prefix_cache: whether prompts that were read before are read again; what is timed must be.

        Raises:
            CheckpointError, ConfigurationError: see :meth:`specclient_local.engine.engine.Engine.load`.
        """
        from specclient_local.engine.engine import Engine  # noqa: PLC0415 - imports torch

        options = {**self.options, "slots": slots, "prefix_cache": prefix_cache}
        return Engine.load(self.target, list(self.drafts) or None, **options)

    @property
    def values(self) -> dict[str, Any]:
        """Return which models these are, as ``--json`` prints it."""
        return {"model": self.target, "drafts": list(self.drafts)}


def model_pair(state: State, given: Mapping[str, Any]) -> LocalModelPair:
    """Return the models that the options of :func:`model_options` stand for.

    Raises:
        ConfigurationError: a configuration that cannot be used.
    """
    from specclient_local.loading.configured_models import read_configured_models  # noqa: PLC0415 - checks what is installed

    settings = state.settings().local
    row = read_configured_models(settings.model_dump()).get(str(given["model"]).removeprefix("local/"))
    configured = {} if row is None else dict(row.load_options)
    drafts = configured.pop("draft", ())
    asked = {name: given[name] for name in _LOADING if name in given}
    asked["threads"] = given.get("threads") or settings.threads
    options = {**configured, **{name: value for name, value in asked.items() if value not in (None, ())}}
    named = given["drafts"] or ([drafts] if isinstance(drafts, str) else drafts)
    return LocalModelPair(given["model"] if row is None else row.path, tuple(named), options)


def prompts_of(engine: Engine, given: Mapping[str, Any]) -> list[list[int]]:
    """Return the token ids of the prompts that the options of :func:`prompt_options` stand for.

    Says on stderr how many do not fit the context.

    Raises:
        ConfigurationError: a file without prompts, or none that fits.
    """
    from specclient_local.measure.prompts import encode_fitting, held_out, read_prompts  # noqa: PLC0415

    if given["prompts"] is None:
        texts = [engine.tokenizer.decode(ids) for ids in held_out(engine.tokenizer, given["count"])]
    else:
        texts = read_prompts(given["prompts"])[: given["count"]]
    fit, left = encode_fitting(engine.tokenizer, texts, given["new"], engine.context)
    if left:
        click.echo(f"{left} of {len(texts)} prompts exceed the context and are left out", err=True)
    return fit


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show on a terminal what runs now; give what is to be told of it."""
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
    """Return a number, or the mark of an unknown one."""
    return render.UNKNOWN if value is None else format(value, form)


def short_name(path: str) -> str:
    """Return what tells a checkpoint from others: the last two parts of its path, or its hub id."""
    return "/".join(Path(path).parts[-2:])


def run_heading(models: LocalModelPair, engine: Engine, prompts: Sequence[Sequence[int]], new: int) -> str:
    """Say in one line what was timed."""
    names = " + ".join(map(short_name, (models.target, *models.drafts)))
    threads = f"{engine.threads} thread{'' if engine.threads == 1 else 's'}"
    return f"{names} · {len(prompts)} prompts, {new} new tokens each · {threads}"
