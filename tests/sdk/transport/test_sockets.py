"""aiohttp as a program finds it beside us: with the certificates that it did not read at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from paths import DATA

#: Of a server called localhost, signed by itself, and its key: for these tests alone, until 2126.
PEM = DATA / "tls/localhost.pem"

_SERVER = f"""
import asyncio, inspect, ssl, sys

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nhi")
    await writer.drain()
    writer.close()

async def serve():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain({str(PEM)!r})
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    return "https://localhost:%d/" % server.sockets[0].getsockname()[1], server

async def ask(**how):
    url, server = await serve()
    async with aiohttp.ClientSession() as session, session.get(url, **how) as reply:
        print((await reply.read()).decode())
    server.close()
"""


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _SERVER + code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip() or done.stderr


OURS = "from specclient.transport.sockets import aiohttp\n"


@pytest.mark.parametrize("load", [OURS, "import aiohttp\n" + OURS, "import aiohttp\n"])
def test_whoever_uses_aiohttp_itself_is_served_and_protected_as_ever(load: str) -> None:
    assert run(load + "asyncio.run(ask())", SSL_CERT_FILE=str(PEM)) == "hi"
    assert run(load + "asyncio.run(ask(ssl=False))") == "hi"
    assert "certificate verify failed" in run(load + "asyncio.run(ask())", SSL_CERT_FILE="")


def test_certificates_are_read_when_something_is_to_be_encrypted() -> None:
    count = """
made = []
make = ssl.create_default_context
ssl.create_default_context = lambda: made.append(0) or make()
"""
    told = """
print(len(made))
asyncio.run(ask(ssl=True))
print(len(made))
asyncio.run(ask())
print(len(made))
"""
    assert run(count + OURS + told, SSL_CERT_FILE=str(PEM)).split() == ["0", "hi", "1", "hi", "1"]
    assert run(count + "import aiohttp\nprint(len(made))") == "1"


def test_a_late_context_is_a_context() -> None:
    code = """
context = aiohttp.connector._SSL_CONTEXT_UNVERIFIED
assert isinstance(context, ssl.SSLContext) and context.verify_mode == ssl.CERT_NONE
context.verify_mode = ssl.CERT_OPTIONAL
assert context.verify_mode == ssl.CERT_OPTIONAL
assert "class TCPConnector" in inspect.getsource(aiohttp.connector)
assert not [finder for finder in sys.meta_path if "transport" in type(finder).__module__]
print("as it should be")
"""
    assert run(OURS + code) == "as it should be"
