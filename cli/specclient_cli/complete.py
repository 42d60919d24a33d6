"""``specclient complete``: one prompt, one answer."""

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
    help="Print text as it arrives, or only once it is complete. Default: --stream, but --no-stream with "
    "--json.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["text", "chat"]),
    help="How to send the prompt: as text to complete, or as a user message. Default: text for local models, "
    "chat for all others.",
)
@click.option("--system", help="System message before the prompt; implies --as chat.")
@options.policy_options
@options.tag_option("Tag of the call in the ledger; may be repeated.")
@click.option("--stats", is_flag=True, help="Print the one-line summary even if stderr is not a terminal.")
@options.json_option
@pass_state
def command(state: State, /, prompt: str, **given: Any) -> None:
    """Complete a text, or answer a prompt, with any model.

    PROMPT is the text, or - to read it from stdin. The answer goes to stdout; one line with tokens, speed,
    cost and acceptance rate goes to stderr. With --json, the output is one object with the text and the
    call's record; with --json --stream, it is one object per line, with the record in the last one.

    \b
    Examples:
      specclient complete "def fibonacci(n):" -m local/demo --stream
      specclient complete - -m openai/gpt-4.1-mini < question.txt
      specclient complete "def f(x):" --minimize latency --max-cost 0.001
      specclient complete "import json" -m local/demo --json | jq .speculation

    Environment: SPECCLIENT_MODEL, SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys.
    """
    settings = state.settings()
    ask = _prompt_call(settings, options.text_of(prompt), given)
    streamed = not given["as_json"] if given["streamed"] is None else given["streamed"]
    with state.client(settings) as client:
        if streamed:
            _print_stream(client, ask, as_json=given["as_json"], stats=given["stats"])
        else:
            _print_answer(client, ask, as_json=given["as_json"], stats=given["stats"])


def _prompt_call(settings: Any, text: str, given: dict[str, Any]) -> calls.PromptCall:
    """Return the call that the options describe."""
    policy = options.policy_of(settings, **{name: given[name] for name in options.POLICY})
    model = options.model_of(settings, given["model"], policy)
    form = given["form"] or ("chat" if given["system"] else calls.prompt_form(model))
    if form == "text" and given["system"]:
        raise click.UsageError("--system works only with chats; omit --as text.")
    sampling = {name: given[name] for name in ("max_tokens", "temperature", "top_p", "seed", "stop")}
    return calls.PromptCall(
        model=model,
        form=form,
        params=calls.prompt_params(form, text, system=given["system"])
        | calls.sampling_params(form, model, sampling),
        policy=policy,
        extension=calls.engine_params(model, given["draft_length"]),
        tags=dict(given["tags"]),
    )


def _print_stream(client: OpenAI, ask: calls.PromptCall, *, as_json: bool, stats: bool) -> None:
    with calls.stream_call(client, ask) as stream:
        for segments in calls.segments(stream):
            text = "".join(text for text, _ in segments)
            render.print_answer(json.dumps({"text": text}) + "\n" if as_json else text)
    render.print_answer((json.dumps({"text": None, **call_values(stream.meta)}) if as_json else "") + "\n")
    _summary(call_summary(stream.meta), wanted=stats)


def _print_answer(client: OpenAI, ask: calls.PromptCall, *, as_json: bool, stats: bool) -> None:
    text, call = calls.complete_call(client, ask)
    render.print_answer((json.dumps({"text": text, **call_values(call)}) if as_json else text) + "\n")
    _summary(call_summary(call), wanted=stats)


def _summary(text: str, *, wanted: bool) -> None:
    if wanted or sys.stderr.isatty():
        click.echo(text, err=True)
