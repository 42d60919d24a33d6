"""``specclient demo``: decoding side by side, routing and cost, with the bundled models."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from specclient.client.sync_client import OpenAI
from specclient.config import Settings
from specclient.errors import EngineError
from specclient.providers import Endpoint
from specclient.reports.reader import CallFilter, ReportSet, read_reports
from specclient.runtime.number_format import format_duration
from specclient.types import inference_methods
from specclient.types.call import Call
from specclient.types.policy import Policy
from specclient.types.request import Request
from specclient_cli.common import calls, options, parameter_types, render
from specclient_cli.common.call_format import call_values, speculation_summary, tokens_per_s
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost import report
from specclient_cli.route import explain

PLAIN_MODEL, SPECULATIVE_MODEL = "local/demo-target", "local/demo"
CANDIDATES = (SPECULATIVE_MODEL, PLAIN_MODEL, "openai/gpt-4.1-nano", "openai/gpt-4.1-mini")
PROMPT = "def read_json(path):\n"
#: Prompts to route, one per policy.
ROUTED = ("class Stack:\n", "def fibonacci(n):\n", "def test_sorted():\n")
#: Tokens of a short call. Warm-up calls are as long as the routed ones, because predictions use them. 32
#: tokens are enough for every kernel to run once before the measured calls.
SHORT_TOKENS = 32


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One demonstration.

    Attributes:
        client: sends the calls.
        state: the options of the command line.
        settings: the settings of the client.
        tag: value of the tag ``demo`` of all its calls, which identifies them in the ledger.
        deny: hosted routes that have a key; the demonstration does not use them, so it costs nothing.
    """

    client: OpenAI
    state: State
    settings: Settings
    tag: str
    deny: tuple[str, ...]

    def prompt_call(
        self,
        step: str,
        prompt: str,
        tokens: int,
        model: str = parameter_types.AUTO,
        policy: Policy | None = None,
    ) -> calls.PromptCall:
        """Return a greedy call, so that both decoding methods must give the same text."""
        return calls.PromptCall(
            model=model,
            form="text",
            params={"prompt": prompt, "max_tokens": tokens, "temperature": 0},
            policy=policy,
            extension={"origins": True} if policy is None else {},
            tags={"demo": self.tag, "step": step},
        )


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """A finished call, its text and its title in the output."""

    title: str
    prompt: str
    text: str
    call: Call


@click.command(name="demo")
@click.option(
    "--prompt", default=PROMPT, help="Python code to complete. Default: the first line of a small function."
)
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=160, show_default=True, help="Tokens to generate."
)
@options.json_option
@pass_state
def command(state: State, prompt: str, max_tokens: int, as_json: bool) -> None:
    """Show plain and speculative decoding, routing, and the cost of both.

    The bundled target model completes a prompt twice, greedily: token by token, and with a small draft model
    whose tokens it verifies. The command fails if the texts differ. Then 'auto' routes three prompts by three
    policies, and the ledger reports the cost of all calls. The demo needs no key and no network. It shows
    hosted routes, but does not call them.

    \b
    Examples:
      specclient demo
      specclient demo --prompt "class Stack:" --max-tokens 96
      specclient demo --json | jq .speedup

    Environment: SPECCLIENT_LEDGER, SPECCLIENT_CONFIG, NO_COLOR.
    """
    # Each call is in the ledger when it is shown, so that an interrupted demo leaves complete records.
    settings = state.settings().model_copy(update={"candidates": CANDIDATES, "ledger_durability": "sync"})
    with state.client(settings) as client:
        run = DemoRun(client, state, settings, uuid.uuid4().hex[:8], _routes_with_key(state, settings))
        if as_json:
            _print_json(run, prompt, max_tokens)
            return
        _introduce(run)
        pair = _side_by_side(run, prompt, max_tokens)
        _compare(*pair)
        _show_routes(run)
    _show_costs(run)


def _routes_with_key(state: State, settings: Settings) -> tuple[str, ...]:
    """Return the hosted candidates that have a key."""
    places = state.async_client(settings).pipeline.destinations
    found = ((name, places.get(name.partition("/")[0])) for name in settings.candidates)
    return tuple(name for name, place in found if isinstance(place, Endpoint) and place.key is not None)


def _warm_up(run: DemoRun, prompt: str) -> float:
    """Load the models and use both decoding methods once; return the seconds it took."""
    begun = time.perf_counter()
    calls.complete_call(run.client, run.prompt_call("load", prompt, SHORT_TOKENS, PLAIN_MODEL))
    for model in (PLAIN_MODEL, SPECULATIVE_MODEL):
        calls.complete_call(run.client, run.prompt_call("warm-up", prompt, SHORT_TOKENS, model))
    return time.perf_counter() - begun


def _introduce(run: DemoRun) -> None:
    render.print_paragraph("Speculative decoding, exactly", render.HEADING)
    render.print_paragraph(
        "One model completes one prompt twice and always takes its most likely token: first token by token, "
        "then with a small draft model that proposes tokens. The model accepts a proposed token if it would "
        "have chosen the same one. Both models are tiny and made for this demo: their text only looks like "
        "Python."
    )
    with render.spinner("loading the bundled models …"):
        taken = _warm_up(run, PROMPT)
    render.print_paragraph(
        f"loaded and warmed up in {taken:.1f} s: three short calls, which are recorded but not part of the "
        f"timing below",
        render.DIM,
    )
    click.echo()


def _side_by_side(run: DemoRun, prompt: str, max_tokens: int) -> tuple[DemoAnswer, DemoAnswer]:
    """Stream both completions one after the other, so that they do not share the machine."""
    titles = (f"plain · {PLAIN_MODEL}", f"speculative · {SPECULATIVE_MODEL}")
    answers = []
    with render.AnswerPanes(titles, time.perf_counter) as panes:
        for i, (model, title) in enumerate(zip((PLAIN_MODEL, SPECULATIVE_MODEL), titles, strict=True)):
            panes.begin(i, prompt)
            ask = run.prompt_call(title.partition(" ")[0], prompt, max_tokens, model)
            text = ""
            with calls.stream_call(run.client, ask) as stream:
                for segments in calls.segments(stream):
                    text += "".join(part for part, _ in segments)
                    panes.add(i, segments)
            answers.append(DemoAnswer(title, prompt, text, stream.meta))
            panes.end(i, _figures(stream.meta))
    render.print_legend()
    return answers[0], answers[1]


def _figures(call: Call) -> str:
    speed = tokens_per_s(call)
    parts = [f"{call.usage.completion} tokens in {format_duration(call.serving_s)}"]
    if speed is not None:
        parts.append(f"{speed:.0f} tokens/s")
    return " · ".join(parts)


def _compare(plain: DemoAnswer, speculative: DemoAnswer) -> None:
    """Print that both texts are identical, and the gain of speculation.

    Raises:
        EngineError: the texts differ.
    """
    _must_agree(plain.text, speculative.text)
    render.print_paragraph(f"✓ the texts are identical, all {len(plain.text)} characters", render.GOOD)
    stats = speculative.call.speculation
    gained = [
        f"{_speedup(plain.call, speculative.call):.2f}× as fast",
        *(speculation_summary(stats) if stats else []),
    ]
    if stats and stats.drafted:
        gained.append(f"{stats.drafted} drafted, {stats.accepted} accepted, {stats.steps} target passes")
    render.print_paragraph(" · ".join(gained))


def _must_agree(plain: str, speculative: str) -> None:
    if plain == speculative:
        return
    pairs = zip(plain, speculative, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(plain), len(speculative)))
    raise EngineError(
        f"the texts differ from character {at} on: plain {plain[at : at + 20]!r}, speculative "
        f"{speculative[at : at + 20]!r}; decoding is not exact on this machine; please report it with your "
        f"torch version"
    )


def _speedup(plain: Call, speculative: Call) -> float:
    return (tokens_per_s(speculative) or 0.0) / (tokens_per_s(plain) or 1.0)


def _routes(run: DemoRun) -> Iterator[DemoAnswer]:
    """Send each prompt to the route that its policy chooses."""
    yield _route(run, "the fastest", ROUTED[0], _policy(run, "latency"))
    yield _route(run, "the cheapest", ROUTED[1], _policy(run, "cost"))
    limit = _limit_between(run, ROUTED[2])
    within = _policy(run, "cost", max_latency_s=limit)
    yield _route(run, f"the cheapest within {limit:g} s", ROUTED[2], within)


def _policy(run: DemoRun, minimize: str, **limits: float) -> Policy:
    """Return a policy without exploration."""
    return Policy(minimize=minimize, deny=run.deny, explore=0, **limits)  # type: ignore[arg-type]


def _limit_between(run: DemoRun, prompt: str) -> float:
    """Return a latency limit between the candidates' predictions, in seconds, so that it rules one out."""
    params = {"prompt": prompt, "max_tokens": SHORT_TOKENS}
    request = Request(inference_methods.COMPLETION, parameter_types.AUTO, params, policy=_policy(run, "cost"))
    now = run.client.router.decide(request)
    predicted = [c.latency_range_s[1] for c in now.candidates if c.latency_range_s is not None]
    low, high = min(predicted, default=1.0), max(predicted, default=1.0)
    middle = (low + high) / 2
    rounded = (float(f"{middle:.{digits}g}") for digits in (1, 2, 3))
    return next((value for value in rounded if low <= value < high), middle)


def _route(run: DemoRun, title: str, prompt: str, policy: Policy) -> DemoAnswer:
    text, call = calls.complete_call(
        run.client, run.prompt_call("routed", prompt, SHORT_TOKENS, policy=policy)
    )
    return DemoAnswer(title, prompt, text, call)


def _show_routes(run: DemoRun) -> None:
    click.echo()
    render.print_paragraph('Routing: model="auto"', render.HEADING)
    for answered in _routes(run):
        click.echo()
        render.print_paragraph(
            f"{answered.prompt.strip()}  →  {answered.title}: {answered.call.route.chosen}", "bold"
        )
        explain.print_decision(answered.call.route)


def _spent(run: DemoRun) -> ReportSet:
    return read_reports(run.state.ledger(), [("model", "tag:step")], CallFilter(tags={"demo": run.tag}))


def _show_costs(run: DemoRun) -> None:
    click.echo()
    render.print_paragraph(f"specclient cost report --tag demo={run.tag} --by model,tag:step", render.HEADING)
    found = _spent(run)
    if found.calls:
        report.print_report(found)
    else:
        report.print_no_calls(run.state.ledger().location, filtered=True)


def _print_json(run: DemoRun, prompt: str, max_tokens: int) -> None:
    load_s = _warm_up(run, prompt)
    measured = {}
    for step, model in (("plain", PLAIN_MODEL), ("speculative", SPECULATIVE_MODEL)):
        ask = run.prompt_call(step, prompt, max_tokens, model)
        with calls.stream_call(run.client, ask) as stream:
            text = "".join(part for segments in calls.segments(stream) for part, _ in segments)
        measured[step] = DemoAnswer(step, prompt, text, stream.meta)
    plain, speculative = measured["plain"], measured["speculative"]
    _must_agree(plain.text, speculative.text)
    values: dict[str, Any] = {
        "run": run.tag,
        "load_s": load_s,
        "identical": True,
        "speedup": _speedup(plain.call, speculative.call),
        **{name: _values(answered) for name, answered in measured.items()},
        "routed": [_values(answered) for answered in _routes(run)],
        "report": _spent(run).reports[0].to_json(),
    }
    click.echo(json.dumps(values))


def _values(answered: DemoAnswer) -> dict[str, Any]:
    return {"prompt": answered.prompt, "text": answered.text, **call_values(answered.call)}
