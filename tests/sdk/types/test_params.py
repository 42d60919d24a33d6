"""The sentinels of this package, of ``openai`` and of ``anthropic`` mean the same wherever a value may be."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anthropic
import openai
import pytest
from loopback_server import OpenAIServer

import specclient
from specclient import OpenAI
from specclient.types.params import is_given

SENTINELS = {
    "own NOT_GIVEN": specclient.NOT_GIVEN,
    "own omit": specclient.omit,
    "openai NOT_GIVEN": openai.NOT_GIVEN,
    "openai omit": openai.omit,
    "anthropic NOT_GIVEN": anthropic.NOT_GIVEN,
    "anthropic omit": anthropic.omit,
}
ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class NotGiven:
    """A class of a user's with the sentinel's name."""


@pytest.fixture(params=SENTINELS)
def sentinel(request: pytest.FixtureRequest) -> Any:
    return SENTINELS[request.param]


@pytest.fixture
def client(openai_server: OpenAIServer):
    with OpenAI(base_url=openai_server.base_url, api_key="k", ledger="off") as client:
        yield client


def test_sentinels_are_not_given(sentinel: Any) -> None:
    assert not is_given(sentinel)


@pytest.mark.parametrize("value", [None, 0, "", "NotGiven", NotGiven(), NotGiven, openai.NotGiven, {}])
def test_other_values_are_given(value: Any) -> None:
    assert is_given(value)


def test_parameters_and_their_parts_are_left_out(
    client: OpenAI, openai_server: OpenAIServer, sentinel: Any
) -> None:
    tool = {"type": "function", "function": {"name": "f", "strict": sentinel, "parameters": {}}}
    client.chat.completions.create(
        **ASK, temperature=sentinel, stream=sentinel, tools=[tool, sentinel], timeout=sentinel, stop=None
    )
    (request,) = openai_server.requests
    function = {"name": "f", "parameters": {}}
    assert request.json == {**ASK, "tools": [{"type": "function", "function": function}], "stop": None}


def test_headers_and_options_of_a_client_are_left_out(openai_server: OpenAIServer, sentinel: Any) -> None:
    with OpenAI(
        base_url=openai_server.base_url,
        api_key="k",
        ledger="off",
        timeout=sentinel,
        default_headers={"x-a": "1", "x-b": sentinel},
    ) as client:
        client.with_options(max_retries=sentinel).chat.completions.create(
            **ASK, extra_headers={"x-a": sentinel}
        )
    (request,) = openai_server.requests
    assert not {"x-a", "x-b"} & {name.lower() for name in request.headers}


def test_the_engine_takes_them_as_not_given(sentinel: Any) -> None:
    with OpenAI(ledger="off") as client:
        answer = client.chat.completions.create(
            **{**ASK, "model": "local/demo"},
            max_tokens=2,
            temperature=sentinel,
            tools=sentinel,
            response_format=sentinel,
            stop=sentinel,
            extra_body={"top_k": 4, "min_p": sentinel},
        )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


def test_the_other_packages_are_not_imported() -> None:
    program = (
        "import sys, specclient\n"
        "client = specclient.OpenAI(api_key='k', ledger='off')\n"
        "client.with_options(timeout=specclient.omit)\n"
        "sys.exit(bool({'openai', 'anthropic'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
