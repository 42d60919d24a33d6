"""SIGINT (Ctrl-C) and SIGTERM while a synchronous client waits for a response."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from loopback_server import OpenAIServer, broken_stream, hang

FRAME = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
INTERRUPTED = """
client = OpenAI(base_url=URL, api_key="k")
opened = stream(client) if WHAT == "stream" else None
if opened is not None:
    next(opened)
try:
    threading.Timer(0.5, print, ["waits"], {"flush": True}).start()  # by then, the main thread waits
    create(client) if WHAT == "call" else list(opened) if WHAT == "stream" else stream(client)
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
if opened is not None:
    assert list(opened) == []
    assert opened.meta.status == "cancelled"
assert create(client).choices
"""


@pytest.mark.parametrize("what", ["call", "stream", "opening of a stream"])
def test_an_interrupt_closes_the_connection_and_the_client_remains_usable(
    begin: Any, openai_server: OpenAIServer, what: str
) -> None:
    openai_server.script(broken_stream(FRAME, how="hang") if what == "stream" else hang)
    with begin(f"WHAT = {what!r}\n" + INTERRUPTED, openai_server.base_url) as process:
        assert process.stdout.readline() == "waits\n"
        _wait_for_request(openai_server)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert openai_server.wait_left(1), "the connection closes before the program continues"
        _, err = process.communicate("\n", timeout=60)
    assert process.returncode == 0, err


def test_a_second_interrupt_ends_a_program_that_catches_the_first(
    begin: Any, openai_server: OpenAIServer
) -> None:
    openai_server.script(hang)
    code = """
        client = OpenAI(base_url=URL, api_key="k")
        print("waits", flush=True)
        with client:
            try:
                create(client)
            except KeyboardInterrupt:
                print("once", flush=True)
                create(client, "again")
    """
    openai_server.script(hang)
    with begin(code, openai_server.base_url) as process:
        assert process.stdout.readline() == "waits\n"
        _wait_for_request(openai_server)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "once\n"
        _wait_for_request(openai_server, 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (1, 130, -signal.SIGINT)
    assert err.strip().endswith("KeyboardInterrupt")
    assert openai_server.wait_left(2)


def test_sigterm_keeps_its_default_action_and_ends_the_program(
    begin: Any, openai_server: OpenAIServer
) -> None:
    openai_server.script(hang)
    code = "client = OpenAI(base_url=URL, api_key='k')\ncreate(client)\n"
    with begin(code, openai_server.base_url) as process:
        _wait_for_request(openai_server)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert openai_server.wait_left(1)


def _wait_for_request(server: OpenAIServer, count: int = 1) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if len(server.requests) >= count:
            return
        pause.wait(0.01)
    raise AssertionError("no request arrived")
