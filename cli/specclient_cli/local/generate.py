"""``specclient local generate``: a completion as it is generated, and its figures."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text
from specclient_local.request.params import ENGINE_METHODS, PARAMETER_RULES, SamplingParams
from specclient_local.request.validation import IntegerRange, NumberRange, OneOf, OrNone, ValueCheck

from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.call_format import speculation_summary
from specclient_cli.common.state import State, pass_state
from specclient_cli.local.engine_options import format_milliseconds, model_options, progress
from specclient_cli.local.model_pair import model_pair

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation, Piece
    from specclient_local.request.params import Parameters


def parameter_options(function: options.F) -> options.F:
    """Add an option for each parameter of the engine whose rule has a help text."""
    for name, rule in reversed([*PARAMETER_RULES.items()]):
        if rule.option is not None:
            flag = f"--{name.replace('_', '-')}"
            function = click.option(flag, type=_option_type(rule.usable), help=rule.option)(function)
    return function


def _option_type(usable: ValueCheck) -> parameter_types.ParameterType | None:
    """Return the type of the option for values that a check allows; None for any text."""
    if isinstance(usable, OrNone):
        usable = usable.usable
    if isinstance(usable, OneOf):
        return click.Choice(usable.words)
    if isinstance(usable, IntegerRange):
        return click.IntRange(usable.low, usable.high)
    if not isinstance(usable, NumberRange):
        return None
    high = None if math.isinf(usable.high) else usable.high
    if usable.low == 0.0:
        return parameter_types.NonNegativeFloat(high, above_zero=usable.open_low)
    return click.FloatRange(usable.low, high, min_open=usable.open_low)


@click.command(name="generate")
@click.argument("prompt")
@model_options
@click.option(
    "--method",
    type=click.Choice(ENGINE_METHODS),
    help="Decoding method. Default: as configured, else heads if there are any, else the draft, else plain.",
)
@options.sampling_options
@parameter_options
@click.option("--show-drafts", is_flag=True, help="Highlight drafted and accepted tokens in a terminal.")
@options.json_option
@pass_state
def command(state: State, /, prompt: str, **given: Any) -> None:
    """Complete a text and print the speed.

    PROMPT is the text, or - to read it from stdin. The answer goes to stdout as it is generated. Then one
    line goes to stderr: tokens, tokens per second, time to the first token (TTFT), acceptance rate and
    tokens per target pass. Decoding is greedy unless --temperature is given.

    \b
    Examples:
      specclient local generate "def fibonacci(n):" --show-drafts
      specclient local generate - --model ./llama-3.2-1b < prompt.txt
      specclient local generate "import " --temperature 0.8 --seed 1 --json

    Environment: SPECCLIENT_CONFIG, NO_COLOR.
    """
    text = options.text_of(prompt)
    models = model_pair(state, given)
    params: Parameters = {"temperature": 0.0}
    names = [field.name for field in fields(SamplingParams)]
    params.update({name: given[name] for name in names if given.get(name) not in (None, ())})  # type: ignore[typeddict-item]
    with progress():
        engine = models.load(1)
    with engine:
        begun = time.perf_counter()
        generation: Generation | None = None
        for piece in engine.stream(text, **models.with_defaults(params)):
            if not given["as_json"]:
                _show(piece, marked=given["show_drafts"])
            generation = piece.generation
        seconds = time.perf_counter() - begun
    assert generation is not None
    values = figures(generation, seconds)
    if given["as_json"]:
        click.echo(json.dumps({**models.values, **values}))
        return
    render.print_answer("\n")
    click.echo(_line(generation, values), err=True)


def _show(piece: Piece, *, marked: bool) -> None:
    """Print a part of the answer without delay."""
    if not marked:
        render.print_answer(piece.text)
        return
    screen = render.console()
    for text, drafted in piece.segments:
        shown = render.printable(text) if screen.is_terminal else text
        screen.print(Text(shown, render.DRAFTED if drafted else ""), end="", soft_wrap=True)


def figures(generation: Generation, seconds: float) -> dict[str, Any]:
    """Return an answer and its figures as ``--json`` prints them.

    Args:
        generation: the complete answer.
        seconds: time from the request to the last token.
    """
    count, ttft = len(generation.token_ids), generation.timings.ttft_s
    return {
        "text": generation.text,
        "token_ids": generation.token_ids,
        "finish_reason": generation.finish_reason,
        "prompt_tokens": generation.prompt_tokens,
        "tokens": count,
        "seconds": seconds,
        "tokens_per_s": count / seconds if seconds else None,
        "ttft_s": ttft,
        "tpot_s": (seconds - ttft) / (count - 1) if count > 1 else None,
        "speculation": asdict(generation.speculation),
    }


def _line(generation: Generation, values: dict[str, Any]) -> str:
    count = values["tokens"]
    parts = [
        f"{count} token{'' if count == 1 else 's'}",
        f"{values['tokens_per_s']:.3g} tokens/s",
        f"TTFT {format_milliseconds(values['ttft_s'])}",
        *speculation_summary(generation.speculation),
        str(generation.speculation.method),
    ]
    return " · ".join(parts)
