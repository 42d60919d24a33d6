"""``specclient chat``: a conversation in the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import click

from specclient.client.sync_client import OpenAI
from specclient.config import Settings
from specclient.errors import OpenAIError
from specclient.types.call import Call
from specclient_cli.common import calls, options, parameter_types, render
from specclient_cli.common.call_format import call_summary, cost_text
from specclient_cli.common.errors import PROGRAM, describe
from specclient_cli.common.state import State, pass_state

HELP = (
    "/exit quits, /reset clears the conversation, /model NAME changes the model, /cost shows the cost so far"
)
BUNDLED = ("local/demo", "local/demo-target")


@dataclass
class ChatSession:
    """A conversation.

    Attributes:
        model: ``PROVIDER/MODEL`` or ``auto``.
        params: the sampling options.
        extension: parameters that only the local engine knows.
        tags: tags of its calls in the ledger.
        system: the system message.
        messages: the messages so far, without the system message.
        done: the records of its calls, including incomplete ones but not rejected ones.
    """

    model: str
    params: dict[str, Any]
    extension: dict[str, Any]
    tags: dict[str, str]
    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    done: list[Call] = field(default_factory=list)

    def next_call(self, text: str) -> calls.PromptCall:
        """Return the call that sends the conversation with ``text`` as its last message."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        messages = [*first, *self.messages, {"role": "user", "content": text}]
        params = {"messages": messages, **calls.sampling_params("chat", self.model, self.params)}
        return calls.PromptCall(self.model, "chat", params, extension=self.extension, tags=self.tags)

    def add_reply(self, text: str, reply: str) -> None:
        """Append a user message and the reply to it."""
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]


@click.command(name="chat")
@options.model_option
@click.option("--system", help="System message at the start of the conversation.")
@options.sampling_options
@options.tag_option("Tag of the calls in the ledger; may be repeated.")
@pass_state
def command(state: State, /, model: str | None, system: str | None, **given: Any) -> None:
    """Chat with any model.

    In a terminal, the conversation continues until /exit or Ctrl-D; Ctrl-C stops an answer. Text from a pipe
    is one message and gets one answer. The bundled model local/demo only completes Python code.

    \b
    Commands in a chat: /exit, /reset, /model NAME, /cost, /help

    \b
    Examples:
      specclient chat -m openai/gpt-4.1-mini --system "Be brief."
      echo "def fibonacci(n):" | specclient chat -m local/demo

    Environment: SPECCLIENT_MODEL, SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys.
    """
    settings = state.settings()
    name = options.model_of(settings, model, None)
    extension = calls.engine_params(name, given.pop("draft_length"))
    tags = dict(given.pop("tags"))
    conversation = ChatSession(name, given, extension, tags, system)
    with state.client(settings) as client:
        if sys.stdin.isatty():
            _converse(client, conversation, settings)
        else:
            _answer(client, conversation, options.text_of("-"))


def _converse(client: OpenAI, conversation: ChatSession, settings: Settings) -> None:
    """Read and answer messages until the user quits."""
    _enable_history()
    click.echo(f"{conversation.model}: {HELP}", err=True)
    _warn_of_bundled(conversation.model)
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            click.echo()
            return
        if text == "/exit":
            return
        if text.startswith("/"):
            _run_command(conversation, text, settings)
        elif text:
            _try_answer(client, conversation, text)


def _try_answer(client: OpenAI, conversation: ChatSession, text: str) -> None:
    """Print an answer. An error or an interrupt ends the answer, not the conversation."""
    try:
        _answer(client, conversation, text)
        click.echo(call_summary(conversation.done[-1]), err=True)
    except OpenAIError as error:
        click.echo(f"{PROGRAM}: {describe(error)}", err=True)
    except KeyboardInterrupt:
        click.echo("\nstopped", err=True)


def _answer(client: OpenAI, conversation: ChatSession, text: str) -> None:
    """Stream an answer to stdout. A message whose answer fails is not part of the conversation."""
    reply = []
    stream = calls.stream_call(client, conversation.next_call(text))
    try:
        with stream:
            for segments in calls.segments(stream):
                piece = "".join(part for part, _ in segments)
                reply.append(piece)
                render.print_answer(piece)
        render.print_answer("\n")
    finally:
        conversation.done.append(stream.meta)
    conversation.add_reply(text, "".join(reply))


def _run_command(conversation: ChatSession, text: str, settings: Settings) -> None:
    """Run a command of the chat, a line that begins with a slash."""
    word, _, rest = text.partition(" ")
    if word == "/reset":
        conversation.messages.clear()
        click.echo("conversation cleared", err=True)
    elif word == "/model" and rest.strip():
        conversation.model, conversation.extension = rest.strip(), {}
        click.echo(f"model: {conversation.model}", err=True)
        _warn_of_bundled(conversation.model)
    elif word == "/model":
        click.echo(
            f"{conversation.model}; others: {', '.join(parameter_types.model_names(settings))}", err=True
        )
    elif word == "/cost":
        click.echo(_sum(conversation.done), err=True)
    else:
        click.echo(HELP if word == "/help" else f"{word} is unknown; {HELP}", err=True)


def _sum(done: list[Call]) -> str:
    known = [call.cost.total for call in done if call.cost.total is not None]
    tokens = sum(call.usage.completion or 0 for call in done)
    estimated = any(call.cost.estimated for call in done)
    total = cost_text(sum(known, Decimal(0)), estimated=estimated)
    unpriced = len(done) - len(known)
    more = f", and {unpriced} unpriced" if unpriced else ""
    answers = "1 answer" if len(done) == 1 else f"{len(done)} answers"
    return f"{answers}, {tokens} tokens, {total}{more}"


def _warn_of_bundled(model: str) -> None:
    if model in BUNDLED:
        click.echo(
            "This is the bundled demonstration model. It completes Python code and cannot hold a "
            "conversation.",
            err=True,
        )


def _enable_history() -> None:
    """Enable arrow keys and a history in ``input``, if the platform supports it."""
    try:
        import readline  # noqa: F401, PLC0415 - the import itself enables it
    except ImportError:
        return
