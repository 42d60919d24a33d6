"""Official clients are made with their options and with the pipeline's."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx
import openai
import pytest
from gateway_server import upstream_settings
from loopback_server import TEXT, OpenAIServer, hang, reset

import specclient
from specclient.errors import ConfigurationError

pytestmark = pytest.mark.anyio

ASK: Any = [{"role": "user", "content": "x"}]


def test_the_default_providers_address_and_key_are_used(openai_server: OpenAIServer) -> None:
    with specclient.openai_client(config=upstream_settings(openai_server)) as client:
        assert type(client) is openai.OpenAI
        assert str(client.base_url) == f"{openai_server.base_url}/"
        answer = client.chat.completions.create(model="m-large", messages=ASK)
    assert answer.choices[0].message.content == TEXT
    assert openai_server.requests[-1].headers["authorization"] == "Bearer sk-upstream"


async def test_options_of_both_packages_apply(openai_server: OpenAIServer) -> None:
    openai_server.script(*[reset] * 9)
    calls: list[specclient.Call] = []
    async with specclient.async_openai_client(
        base_url=openai_server.base_url,
        api_key="sk-own",
        default_headers={"x-team": "a"},
        max_retries=1,
        ledger="off",
        on_call=calls.append,
    ) as client:
        assert type(client) is openai.AsyncOpenAI
        with pytest.raises(openai.APIConnectionError):
            await client.chat.completions.create(model="m-large", messages=ASK)
        assert len(openai_server.requests) == 2
        openai_server._script.clear()
        await client.chat.completions.create(model="vendor/m-large", messages=ASK)
    sent = openai_server.requests[-1]
    assert (sent.headers["authorization"], sent.headers["x-team"]) == ("Bearer sk-own", "a")
    assert sent.json["model"] == "vendor/m-large"  # a base URL of its own: names belong to that server
    assert [call.status for call in calls] == ["ok"]


def test_a_given_client_stays_open(openai_server: OpenAIServer) -> None:
    with specclient.OpenAI(config=upstream_settings(openai_server)) as own:
        with specclient.openai_client(client=own) as client:
            client.chat.completions.create(model="m-large", messages=ASK)
        assert not own.is_closed()


def test_the_timeout_of_a_call_applies(openai_server: OpenAIServer) -> None:
    openai_server.script(hang)
    with specclient.openai_client(config=upstream_settings(openai_server), max_retries=0) as client:
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(
                model="m-large", messages=ASK, timeout=openai.Timeout(30, read=0.3)
            )
        assert openai_server.wait_left(1)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="http_client cannot be given"):
        specclient.openai_client(http_client=httpx.Client())
    with pytest.raises(TypeError, match="nothing_like_it"):
        specclient.openai_client(api_key="k", nothing_like_it=1)


def test_the_package_is_not_imported_by_the_sdk() -> None:
    code = (
        "import sys, specclient\n"
        "specclient.transport(ledger='off'), specclient.async_transport(ledger='off')\n"
        "assert 'openai' not in sys.modules\n"
        "sys.modules['openai'] = None\n"
        "for make in (specclient.openai_client, specclient.async_openai_client, specclient.instrument):\n"
        "    try: make(ledger='off')\n"
        "    except specclient.ConfigurationError as error: assert 'pip install openai' in str(error)\n"
        "    else: raise SystemExit('no error')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_transport_needs_no_server_packages() -> None:
    code = (
        "import sys\n"
        "for name in ('starlette', 'uvicorn', 'httptools', 'prometheus_client'): sys.modules[name] = None\n"
        "import specclient; specclient.openai_client(api_key='k', ledger='off')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
