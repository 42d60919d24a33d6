"""The synchronous client in threads, inside a running loop, after fork, on interrupts and at exit."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from loopback_server import TEXT, OpenAIServer, Received, Wire, broken_stream, hang, reply

from specclient import APIConnectionError, BadRequestError, OpenAI
from specclient.client.bridge import HIGH_WATER, Bridge
from specclient.ledger.ledger import Ledger

ASK = [{"role": "user", "content": "hello"}]


def _client(server: OpenAIServer) -> OpenAI:
    return OpenAI(base_url=server.base_url, api_key="k")


def _text(client: OpenAI) -> str:
    stream = client.chat.completions.create(model="m", messages=ASK, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def test_many_threads_share_one_client(openai_server: OpenAIServer) -> None:
    with _client(openai_server) as client, ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda _: _text(client), range(64)))
    assert texts == [TEXT] * 64


def test_the_sync_client_works_inside_a_running_loop(openai_server: OpenAIServer) -> None:
    async def main() -> str:
        with _client(openai_server) as client:
            return _text(client)

    assert asyncio.run(main()) == TEXT


def test_errors_are_raised_in_the_callers_thread(openai_server: OpenAIServer) -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "half"}}]}\n\n'
    openai_server.script(reply(400, {"error": {"message": "no"}}), reply(400, {"error": {"message": "no"}}))
    with _client(openai_server) as client:
        with pytest.raises(BadRequestError):
            client.chat.completions.create(model="m", messages=ASK)
        with pytest.raises(BadRequestError):
            client.chat.completions.create(model="m", messages=ASK, stream=True)
        openai_server.script(broken_stream(frame))
        stream = client.chat.completions.create(model="m", messages=ASK, stream=True)
        with pytest.raises(APIConnectionError) as caught:
            list(stream)
        assert caught.value.partial == "half"
        assert list(stream) == [], "a stream that has ended stays ended"


def test_leaving_a_stream_early_closes_the_connection(openai_server: OpenAIServer) -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
    openai_server.script(broken_stream(frame, how="hang"))
    with _client(openai_server) as client:
        with client.chat.completions.create(model="m", messages=ASK, stream=True) as stream:
            next(stream)
        assert openai_server.wait_left(1)
        assert stream.meta.status == "cancelled"
        assert list(stream) == []
        stream.close()


def test_closing_a_stream_ends_a_reader_in_another_thread(openai_server: OpenAIServer) -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
    openai_server.script(broken_stream(frame, how="hang"))
    with _client(openai_server) as client, ThreadPoolExecutor(1) as pool:
        stream = client.chat.completions.create(model="m", messages=ASK, stream=True)
        next(stream)
        reading = pool.submit(list, stream)
        stream.close()
        assert reading.result(30) == []
        stream.close()
        assert stream.meta.status == "cancelled"


def test_closing_after_the_end_does_not_wait(openai_server: OpenAIServer) -> None:
    with _client(openai_server) as client:
        for _ in range(50):
            with client.chat.completions.create(model="m", messages=ASK, stream=True) as stream:
                assert list(stream)
            assert stream.meta.status == "ok"


def test_a_garbage_collected_stream_closes_its_connection(openai_server: OpenAIServer) -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
    openai_server.script(broken_stream(frame, how="hang"))
    with _client(openai_server) as client:
        stream = client.chat.completions.create(model="m", messages=ASK, stream=True)
        next(stream)
        del stream
        gc.collect()
        assert openai_server.wait_left(1)


def test_backpressure_limits_the_chunks_read_ahead_of_a_slow_reader(openai_server: OpenAIServer) -> None:
    # Frames so long that one read from the network contains few of them.
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}}]}\n\n' % (b"x" * 2000)
    count = HIGH_WATER * 3

    async def flood(_: Received, wire: Wire) -> None:
        await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for _ in range(count):
            await wire.chunk(frame)
        await wire.chunk(b"data: [DONE]\n\n")
        await wire.chunk(b"")

    openai_server.script(flood)
    with _client(openai_server) as client:
        stream = client.chat.completions.create(model="m", messages=ASK, stream=True)
        source = stream._source
        next(stream)
        for _ in range(200):
            if source._credit <= 0:
                break
            threading.Event().wait(0.01)
        held = source._credit
        assert held <= 0  # the source waits, after at most one more network read
        threading.Event().wait(0.05)
        assert source._credit == held
        assert 1 + sum(1 for _ in stream) == count


def test_context_variables_are_copied_to_the_loops_thread() -> None:
    variable = contextvars.ContextVar[str]("variable", default="unset")

    async def read() -> str:
        return variable.get()

    variable.set("caller's")
    assert Bridge().run(read) == "caller's"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_the_client_works_in_a_forked_child_and_its_parent(openai_server: OpenAIServer) -> None:
    with _client(openai_server) as client:
        assert _text(client) == TEXT
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)  # a child that hangs must not outlive the test
            try:
                os._exit(0 if _text(client) == TEXT else 1)
            except BaseException:  # noqa: BLE001 - a forked child must not return into pytest
                os._exit(2)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert _text(client) == TEXT


def _script(tmp_path: Path, code: str, server: OpenAIServer) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(
        "from specclient import OpenAI\n"
        f"client = OpenAI(base_url={server.base_url!r}, api_key='k')\n"
        "ask = [{'role': 'user', 'content': 'x'}]\n" + code
    )
    pipe = subprocess.PIPE
    code = (
        # A suite run in the background may ignore SIGINT, which its child processes inherit.
        "import signal, runpy, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(path)]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def test_interpreter_exit_without_close_prints_no_error(openai_server: OpenAIServer, tmp_path: Path) -> None:
    code = "print(client.chat.completions.create(model='m', messages=ask).choices[0].message.content)\n"
    process = _script(
        tmp_path,
        code
        + "stream = client.chat.completions.create(model='m', messages=ask, stream=True)\nnext(stream)\n",
        openai_server,
    )
    out, err = process.communicate(timeout=60)
    assert (out.strip(), process.returncode) == (TEXT, 0)
    (only,) = err.splitlines()
    assert "unpriced" in only, "the expected warning only; nothing from the exit"


@pytest.mark.parametrize("ending", ["", "raise KeyboardInterrupt\n"])
def test_a_stream_open_at_exit_is_closed_and_recorded(
    openai_server: OpenAIServer, tmp_path: Path, ending: str
) -> None:
    """The program ends normally or by an exception; the process ends and the ledger has the stream's row."""
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
    openai_server.script(broken_stream(frame, how="hang"))
    code = "stream = client.chat.completions.create(model='m', messages=ask, stream=True)\nnext(stream)\n"
    process = _script(tmp_path, code + ending, openai_server)
    process.communicate(timeout=60)
    assert openai_server.wait_left(1)
    assert [row.status for row in Ledger(os.environ["SPECCLIENT_LEDGER"]).rows()] == ["cancelled"]


def test_a_keyboard_interrupt_cancels_the_request(openai_server: OpenAIServer, tmp_path: Path) -> None:
    openai_server.script(hang)
    code = "print('asking', flush=True)\nclient.chat.completions.create(model='m', messages=ask)\n"
    process = _script(tmp_path, code, openai_server)
    assert process.stdout is not None
    assert process.stdout.readline() == "asking\n"
    for _ in range(1000):
        if openai_server.requests:
            break
        threading.Event().wait(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    assert process.returncode in (1, 130, -signal.SIGINT)
    assert openai_server.wait_left(1)
