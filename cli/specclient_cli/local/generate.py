"""Turn a prompt into text as it comes and one line of figures: ``specclient local generate``."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text
from specclient_local.request.params import ENGINE_METHODS

from specclient_cli.common import options, render
from specclient_cli.common.call_format import speculation
from specclient_cli.common.state import State, pass_state
from specclient_cli.local.engine_options import format_milliseconds, model_options, model_pair, progress

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation, Piece
    from specclient_local.request.params import Parameters

_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "draft_length", "method")


@click.command(name="generate")
@click.argument("prompt")
@model_options
@click.option(
    "--method",
    type=click.Choice(ENGINE_METHODS),
    help="How tokens are drafted. Default: by heads if there are any, else by the draft, else plain.",
)
@options.sampling_options
@click.option(
    "--top-k", type=click.IntRange(min=0), help="Draw from so many likeliest tokens; 0 takes all of them."
)
@click.option(
    "--min-p",
    type=options.NonNegativeFloat(1),
    help="Draw from tokens at least this share as likely as the likeliest.",
)
@click.option("--show-drafts", is_flag=True, help="Mark in a terminal what was drafted and accepted.")
@options.json_option
@pass_state
def command(state: State, /, prompt: str, **given: Any) -> None:
    """Continue a text, and say how fast.

    PROMPT is the text, or - to read it from stdin. The answer goes to stdout as it comes; then a line on
    stderr: tokens, tokens a second, time to the first token (TTFT), share of drafts accepted, tokens a pass
    of the target. Greedy unless --temperature is given.

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
    params.update({name: given[name] for name in _SAMPLING if given[name] is not None})  # type: ignore[typeddict-item]
    if given["stop"]:
        params["stop"] = given["stop"]
    with progress():
        engine = models.load(1)
    with engine:
        begun = time.perf_counter()
        generation: Generation | None = None
        for piece in engine.stream(text, **params):
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
    """Print a piece of the answer at once."""
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
        generation: the whole answer.
        seconds: from the request to its last token.
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
        *speculation(generation.speculation),
        str(generation.speculation.method),
    ]
    return " · ".join(parts)
