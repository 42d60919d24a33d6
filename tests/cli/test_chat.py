"""``specclient chat``: a conversation in a terminal, and a single prompt from a pipe."""

from __future__ import annotations

import io
import os
import signal
import sys

import pytest
from loopback_server import TEXT, broken_stream, events, reply
from pseudo_terminal import Terminal

from specclient.ledger.ledger import Ledger

FRAME = b'data: {"choices": [{"index": 0, "delta": {"content": "half "}}]}\n\n'


@pytest.fixture
def terminal_chat(hosted, monkeypatch):
    """A conversation with ``mine/m-large`` in a terminal."""
    monkeypatch.setenv(
        "SPECCLIENT_LEDGER_DURABILITY", "sync"
    )  # the test reads the rows during the conversation
    terminal = Terminal("chat", "-m", "mine/m-large", "--system", "Be brief.", "--tag", "team=a", width=200)
    terminal.read_until("> ")
    yield terminal
    if terminal.process.poll() is None:
        terminal.process.kill()
        terminal.wait()


def _say(terminal: Terminal, text: str, until: str = "> ") -> str:
    before = len(terminal.output)
    terminal.type(text + "\n")
    return terminal.read_until(lambda output: until in output[before:].partition("\n")[2])[before:]


def test_a_conversation_keeps_its_messages_until_reset(terminal_chat, hosted) -> None:
    assert "/reset" in terminal_chat.output
    assert TEXT in _say(terminal_chat, "one")
    _say(terminal_chat, "two")
    first, second = (r.json["messages"] for r in hosted.requests)
    assert first == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"}]
    assert second == [*first, {"role": "assistant", "content": TEXT}, {"role": "user", "content": "two"}]
    assert "conversation cleared" in _say(terminal_chat, "/reset")
    assert "model: mine/m-small" in _say(terminal_chat, "/model mine/m-small")
    _say(terminal_chat, "three")
    assert hosted.requests[2].json["model"] == "m-small"
    assert [m["content"] for m in hosted.requests[2].json["messages"]] == ["Be brief.", "three"]
    assert "mine/m-small; others:" in _say(terminal_chat, "/model")
    assert "/nope is unknown" in _say(terminal_chat, "/nope")
    rows = Ledger(os.environ["SPECCLIENT_LEDGER"]).rows()
    assert [row.tags for row in rows] == [{"team": "a"}] * 3
    total = sum(row.completion_tokens for row in rows)
    assert f"3 answers, {total} tokens, $" in _say(terminal_chat, "/cost")
    terminal_chat.type("/exit\n")
    assert terminal_chat.wait() == 0


def test_a_failed_request_is_dropped_and_the_conversation_continues(terminal_chat, hosted) -> None:
    hosted.script(reply(400, {"error": {"message": "no thanks"}}))
    assert "specclient: 400" in _say(terminal_chat, "one")
    assert TEXT in _say(terminal_chat, "two")
    assert [m["content"] for m in hosted.requests[1].json["messages"]] == ["Be brief.", "two"]
    assert "1 answer, " in _say(terminal_chat, "/cost")
    terminal_chat.type("\x04")
    assert terminal_chat.wait() == 0


def test_interrupt_stops_an_answer(terminal_chat, hosted) -> None:
    hosted.script(broken_stream(FRAME, how="hang"))
    _say(terminal_chat, "one", until="half ")
    terminal_chat.process.send_signal(signal.SIGINT)
    terminal_chat.read_until(
        lambda output: "> " in output.partition("stopped")[2]
    )  # the prompt after the interrupted answer
    assert TEXT in _say(terminal_chat, "two")
    assert [row.status for row in Ledger(os.environ["SPECCLIENT_LEDGER"]).rows()] == ["cancelled", "ok"]
    assert terminal_chat.interrupt() == 130


def test_control_characters_of_an_answer_are_escaped(terminal_chat, hosted) -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "a\\u001b[2Jb\\u0007"}}]}\n\n'
    hosted.script(events(frame))
    assert "a␛[2Jb␇" in _say(terminal_chat, "one")


def test_a_piped_prompt_is_answered_once(run, hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines"))
    code, out, err = run("chat", "-m", "mine/m-large")
    assert (code, out, err) == (0, f"{TEXT}\n", "")
    assert [r.json["messages"] for r in hosted.requests] == [[{"role": "user", "content": "two\nlines"}]]


def test_a_refused_piped_prompt_is_an_error(run, hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello"))
    hosted.script(reply(400, {"error": {"message": "no thanks"}}))
    code, out, err = run("chat", "-m", "mine/m-large")
    assert (code, out) == (1, "")
    assert err == "specclient: 400 BadRequestError: no thanks\n"


def test_the_bundled_model_warns_that_it_cannot_converse(local) -> None:
    terminal = Terminal("chat", "--max-tokens", "4", width=200)
    terminal.read_until("cannot hold a conversation")
    terminal.read_until("> ")
    assert "4 tokens" in _say(terminal, "def f(x):")
    terminal.type("/exit\n")
    assert terminal.wait() == 0
