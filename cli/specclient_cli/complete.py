"""Turn one prompt into text on stdout: the command ``specclient complete``."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from specclient.client.sync_client import OpenAI
from specclient_cli.common import calls, options, render
from specclient_cli.common.call_format import call_summary, call_values
from specclient_cli.common.state import State, pass_state


@click.command(name="complete")
@click.argument("prompt")
@options.model_option
@options.sampling_options
@click.option(
    "--stream/--no-stream",
    "streamed",
    default=None,
    help="Print text as it comes, or only when it is whole. Default: as it comes, but whole with --json.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["text", "chat"]),
    help="Continue the prompt as text, or send it as a user's message. Default: text for local models, "
    "chat for all others.",
)
@click.option("--system", help="A system message before the prompt; implies --as chat.")
@options.policy_options
@options.tag_option("Label the call in the ledger; may be repeated.")
@click.option("--stats", is_flag=True, help="Print the one-line summary even where stderr is no terminal.")
@options.json_option
@pass_state
def command(state: State, /, prompt: str, **given: Any) -> None:
    """Continue a text, or answer it, with any model.

    PROMPT is the text, or - to read it from stdin. The answer alone goes to stdout; a line with tokens,
    speed, cost and acceptance goes to stderr. With --json the answer is one object with its record; with
    --json --stream it is one object a line, the record last.

    \b
    Examples:
      specclient complete "def fibonacci(n):" -m local/demo --stream
      specclient complete - -m openai/gpt-4.1-mini < question.txt
      specclient complete "def f(x):" --minimize latency --max-cost 0.001
      specclient complete "import json" -m local/demo --json | jq .speculation

    Environment: SPECCLIENT_MODEL, SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys.
    """
    settings = state.settings()
    ask = _ask(settings, options.text_of(prompt), given)
    streamed = not given["as_json"] if given["streamed"] is None else given["streamed"]
    with state.client(settings) as client:
        if streamed:
            _print_stream(client, ask, as_json=given["as_json"], stats=given["stats"])
        else:
            _print_whole(client, ask, as_json=given["as_json"], stats=given["stats"])


def _ask(settings: Any, text: str, given: dict[str, Any]) -> calls.PromptCall:
    """Read the options into a call."""
    policy = options.policy_of(settings, **{name: given[name] for name in options.POLICY})
    model = options.model_of(settings, given["model"], policy)
    form = given["form"] or ("chat" if given["system"] else calls.prompt_form(model))
    if form == "text" and given["system"]:
        raise click.UsageError("--system needs a chat; leave out --as text.")
    drawn = {name: given[name] for name in ("max_tokens", "temperature", "top_p", "seed", "stop")}
    return calls.PromptCall(
        model=model,
        form=form,
        params=calls.content(form, text, system=given["system"]) | calls.sampling_params(form, model, drawn),
        policy=policy,
        extension=calls.extension(model, given["draft_length"]),
        tags=dict(given["tags"]),
    )


def _print_stream(client: OpenAI, ask: calls.PromptCall, *, as_json: bool, stats: bool) -> None:
    with calls.stream_call(client, ask) as stream:
        for segments in calls.segments(stream):
            text = "".join(text for text, _ in segments)
            render.print_answer(json.dumps({"text": text}) + "\n" if as_json else text)
    render.print_answer((json.dumps({"text": None, **call_values(stream.meta)}) if as_json else "") + "\n")
    _summary(call_summary(stream.meta), wanted=stats)


def _print_whole(client: OpenAI, ask: calls.PromptCall, *, as_json: bool, stats: bool) -> None:
    text, call = calls.complete_call(client, ask)
    render.print_answer((json.dumps({"text": text, **call_values(call)}) if as_json else text) + "\n")
    _summary(call_summary(call), wanted=stats)


def _summary(text: str, *, wanted: bool) -> None:
    if wanted or sys.stderr.isatty():
        click.echo(text, err=True)
