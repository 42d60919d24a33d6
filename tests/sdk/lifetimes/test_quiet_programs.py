"""Programs run with warnings as errors: importing touches nothing, and they exit without output on stderr."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest


def test_importing_and_creating_a_client_use_no_files_sockets_or_processes(
    program: Any, tmp_path: Path, clean_home: Path
) -> None:
    """Except the files of the import system; pydantic looks for plugins among the installed packages."""
    code = """
        import importlib.machinery, sys
        sys.dont_write_bytecode = True
        IMPORTED = (*importlib.machinery.all_suffixes(), ".zip", "entry_points.txt")
        OTHER = ("socket.", "subprocess.", "os.", "sqlite3.", "shutil.", "urllib.")
        touched = []
        def hook(name, args):
            if name == "open" and not str(args[0]).endswith(IMPORTED):
                touched.append((name, str(args[0])))
            if name.startswith(OTHER) and name not in ("os.listdir", "os.scandir"):
                touched.append((name, *map(str, args)))
        sys.addaudithook(hook)
        import specclient
        from specclient import AsyncOpenAI, OpenAI
        for client in (OpenAI(api_key="k"), AsyncOpenAI(api_key="k")):
            client.chat.completions, client.files, client.with_options(timeout=3).responses
        sys.stdout.write(repr(touched))
    """
    assert program(code, fresh=True) == "[]"
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]
    assert [path.name for path in clean_home.parent.rglob("*") if path.is_file()] == []


ENDINGS = {
    "closed": "asyncio.run(talk(close=True))",
    "not closed": "asyncio.run(talk(close=False))",
    "stream left by break": "asyncio.run(leave())",
    "stream dropped": "asyncio.run(drop())",
    "cancelled": "asyncio.run(cancelled('hang'))\nasyncio.run(cancelled('silent-stream'))",
    "failed": "asyncio.run(failed())",
    "two loops, one left open": (
        "loop = asyncio.new_event_loop()\nloop.run_until_complete(talk(close=False))\n"
        "asyncio.run(talk(close=True))\nloop.run_until_complete(client.close())\nloop.close()"
    ),
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_an_asynchronous_program_exits_without_warnings(program: Any, far_server: str, ending: str) -> None:
    code = """
        client = AsyncOpenAI(base_url=URL, api_key="k", max_retries=0)
        async def talk(close):
            await create(client)
            assert len([chunk async for chunk in await stream(client)]) == 10
            if close:
                await client.close()
        async def leave():
            async for chunk in await stream(client, "silent-stream"):
                break
        async def drop():
            opened = await stream(client, "silent-stream")
            await anext(opened)
            del opened
            gc.collect()
            await asyncio.sleep(0.1)
        async def cancelled(model):
            async def read():
                async for chunk in await stream(client, model):
                    pass
            task = asyncio.create_task(read())
            await asyncio.sleep(0.2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async def failed():
            for model in ("400", "500", "reset", "bad-json"):
                (outcome,) = await asyncio.gather(create(client, model), return_exceptions=True)
                assert isinstance(outcome, str if model == "page" else Exception), model
            for model in ("broken-stream", "bad-stream"):
                try:
                    async for chunk in await stream(client, model):
                        pass
                except Exception:
                    continue
                raise AssertionError(model)
    """
    fresh = ending == ENDINGS["failed"]  # one of them imports the package itself
    out = program(textwrap.dedent(code) + ending + "\nsys.stdout.write('done')", far_server, fresh=fresh)
    assert out == "done"


EXITS = {
    "daemon thread during calls": (
        "threading.Thread(target=lambda: [create(client) for _ in iter(int, 1)], daemon=True).start()\n"
        "time.sleep(0.3)"
    ),
    "daemon thread waiting for a response": (
        "threading.Thread(target=create, args=(client, 'hang'), daemon=True).start()\ntime.sleep(0.3)"
    ),
    "daemon thread during a stream": (
        "threading.Thread(target=lambda: [list(stream(client, 'silent-stream')) for _ in iter(int, 1)],"
        " daemon=True).start()\ntime.sleep(0.3)"
    ),
    "stream that is not read to its end": "kept = stream(client, 'silent-stream')\nnext(kept)",
    "call in an atexit handler": (
        "create(client)\natexit.register(lambda: sys.stdout.write(create(client).choices[0].message.content))"
    ),
    "client closed in a finalizer": (
        "class Owner:\n    def __del__(self, client=client):\n        client.close()\n"
        "create(client)\nowner = Owner()\nsys.kept = owner"
    ),
}


@pytest.mark.parametrize("code", EXITS.values(), ids=EXITS)
def test_a_synchronous_program_exits_without_warnings(program: Any, far_server: str, code: str) -> None:
    name = _name(code)
    fresh = "handler" in name  # one of them imports the package itself
    out = program("client = OpenAI(base_url=URL, api_key='k')\n" + code, far_server, fresh=fresh)
    assert ("fox" in out) == ("handler" in name)


def _name(code: str) -> str:
    return next(name for name, one in EXITS.items() if one is code)


def test_a_call_in_a_finalizer_at_interpreter_shutdown_raises_at_once(program: Any, far_server: str) -> None:
    code = """
        client = OpenAI(base_url=URL, api_key="k")
        class Last:
            def __del__(self, create=create, client=client, write=os.write):
                try:
                    create(client)
                except Exception as error:
                    write(1, str(error).encode())
        create(client)
        last = Last()
    """
    assert "the interpreter is shutting down" in program(code, far_server, fresh=True)
