"""A synchronous client in forked and spawned child processes, idle and during calls."""

from __future__ import annotations

import os
from textwrap import dedent
from typing import Any

import pytest
from loopback_server import OpenAIServer, broken_stream

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

#: The start of each program below. The alarm ends a child that hangs; `ended` then returns the signal.
CHILDREN = """
import logging, warnings
warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)
# If another thread writes a warning during a fork, the child inherits a locked stderr.
logging.getLogger("specclient").setLevel(logging.ERROR)
client = OpenAI(base_url=URL, api_key="k")

def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            os._exit(0 if work() else 1)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(2)
    return pid

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def talk():
    return bool(create(client).choices) and len(list(stream(client))) == 10
"""


def test_a_client_works_in_parent_and_children_after_a_fork(program: Any, far_server: str) -> None:
    code = """
        assert talk()
        children = [child(talk) for _ in range(3)]
        assert talk()
        assert [ended(pid) for pid in children] == [0] * 3
        assert talk()
    """
    program(CHILDREN + dedent(code), far_server)


def test_forked_children_can_call_while_the_parents_threads_call(program: Any, far_server: str) -> None:
    """The forks start with the first calls, which import modules, build models and open the ledger."""
    code = """
        stop = threading.Event()
        def work():
            while not stop.is_set():
                talk()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        codes = [ended(child(talk)) for _ in range(20)]
        stop.set()
        for thread in threads:
            thread.join()
        assert codes == [0] * 20, codes
        assert talk()
    """
    program(CHILDREN + dedent(code), far_server, fresh=True)


def test_a_fork_waits_for_an_import_in_another_thread(program: Any, far_server: str) -> None:
    code = """
        from specclient.runtime.forks import import_lock
        begun, done = threading.Event(), []
        def imports():
            with import_lock:
                begun.set()
                time.sleep(0.5)
                done.append(True)
        thread = threading.Thread(target=imports)
        thread.start()
        begun.wait()
        assert ended(child(lambda: done == [True] and import_lock.acquire(timeout=5))) == 0
        thread.join()
    """
    program(CHILDREN + dedent(code), far_server)


def test_a_fork_waits_for_the_module_client_that_another_thread_makes(program: Any, far_server: str) -> None:
    code = """
        import specclient
        from specclient.client import module_client
        specclient.api_key, specclient.base_url = "k", URL
        begun, new = threading.Event(), module_client._new
        def slow(options):
            begun.set()
            time.sleep(0.5)
            return new(options)
        module_client._new = slow
        thread = threading.Thread(target=lambda: create(specclient))
        thread.start()
        begun.wait()
        assert ended(child(lambda: bool(create(specclient).choices))) == 0
        thread.join()
    """
    program(CHILDREN + dedent(code), far_server)


def test_a_stream_opened_before_a_fork_raises_in_the_child_and_continues_in_the_parent(
    program: Any, far_server: str
) -> None:
    code = """
        from specclient import APIConnectionError
        def refused():
            try:
                next(opened)
            except APIConnectionError as error:
                assert "before the process forked" in str(error)
                opened.close()
                return list(opened) == [] and talk()
        opened = stream(client)
        first = next(opened)
        assert ended(child(refused)) == 0
        assert len(list(opened)) == 9
        assert opened.meta.status == "ok"
    """
    program(CHILDREN + dedent(code), far_server)


def test_a_child_does_not_hold_its_parents_connections_open(begin: Any, openai_server: OpenAIServer) -> None:
    """A connection that the parent closes is closed for the server while the child still runs."""
    frame = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
    openai_server.script(broken_stream(frame, how="hang"))
    code = """
        opened = stream(client)
        next(opened)
        pid = child(lambda: time.sleep(60) or True)
        time.sleep(0.2)
        opened.close()
        print("closed", flush=True)
        sys.stdin.readline()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    """
    with begin(CHILDREN + dedent(code), openai_server.base_url) as process:
        assert process.stdout.readline() == "closed\n"
        assert openai_server.wait_left(1)
        process.communicate("\n", timeout=60)
    assert process.returncode == 0


def test_a_child_that_exits_normally_leaves_the_parents_connections_open(
    program: Any, far_server: str
) -> None:
    code = """
        assert talk()
        def leave():
            global client
            del client
            gc.collect()
            raise SystemExit(0)
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            leave()
        assert ended(pid) == 0
        for _ in range(3):
            assert talk()
    """
    program(CHILDREN + dedent(code), far_server)


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_client_works_in_multiprocessing_pools(program: Any, far_server: str, way: str) -> None:
    code = f"""
        import multiprocessing
        def ask(number):
            return create(client).choices[0].message.content
        if __name__ == "__main__":
            assert talk()
            with multiprocessing.get_context("{way}").Pool(2) as pool:
                assert len(pool.map(ask, range(4))) == 4
                pool.close()
                pool.join()
    """
    program(CHILDREN + dedent(code), far_server)
