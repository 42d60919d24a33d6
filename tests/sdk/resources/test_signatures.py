"""Signatures of methods by :mod:`inspect`: the parameters of the `openai` package's, and the call options."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import subprocess
import sys
from typing import Any
from unittest.mock import create_autospec

import openai
import pytest

import specclient
from specclient.resources.chat import Completions
from specclient.types.params import CallOptions

KEYS: dict[str, Any] = {"api_key": "key", "admin_api_key": "key", "base_url": "http://localhost:1/v1"}
WRITTEN = [
    *("chat.completions.create", "chat.completions.parse", "chat.completions.stream", "completions.create"),
    *("embeddings.create", "moderations.create", "responses.create", "responses.parse", "responses.stream"),
]
ORIGINAL_OPTIONS = {"extra_headers", "extra_query", "extra_body", "timeout"}
OURS = set(CallOptions.__annotations__) - ORIGINAL_OPTIONS


def method(client: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), client)


@pytest.mark.parametrize("path", WRITTEN)
@pytest.mark.parametrize("name", ["OpenAI", "AsyncOpenAI"])
def test_written_methods_have_the_parameters_of_the_original(name: str, path: str) -> None:
    theirs = inspect.signature(method(getattr(openai, name)(**KEYS), path)).parameters
    found = inspect.signature(method(getattr(specclient, name)(**KEYS), path)).parameters
    assert set(found) == set(theirs) | OURS
    for one, parameter in theirs.items():
        assert found[one].kind == inspect.Parameter.KEYWORD_ONLY
        assert (found[one].default is inspect.Parameter.empty) == (
            parameter.default is inspect.Parameter.empty
        ), one
    assert [one for one in found if one in ORIGINAL_OPTIONS] == [
        one for one in theirs if one in ORIGINAL_OPTIONS
    ]


def test_a_signature_behaves_as_one_that_was_made_at_once() -> None:
    signature = Completions.create.__signature__  # type: ignore[attr-defined]
    bound = signature.bind(None, model="m", messages=[])
    assert bound.arguments["model"] == "m"
    plain = inspect.signature(Completions.create).replace()
    assert type(plain) is inspect.Signature
    assert signature == plain == copy.copy(signature)
    assert list(pickle.loads(pickle.dumps(signature)).parameters) == list(plain.parameters)
    assert str(signature) == str(plain)
    with pytest.raises(TypeError, match="messages"):
        signature.bind(None, model="m")


def test_an_autospec_refuses_arguments_that_the_method_does_not_have() -> None:
    create = create_autospec(specclient.OpenAI(**KEYS)).chat.completions.create
    create(model="m", messages=[], temperature=0)
    with pytest.raises(TypeError):
        create(model="m", messages=[], temprature=0)


def test_no_signature_is_made_for_a_client() -> None:
    code = (
        "import inspect, specclient\n"
        "made = []\n"
        "original = inspect.Signature.__init__\n"
        "def counted(self, *args, **named): made.append(self); original(self, *args, **named)\n"
        "import specclient.client.sync_client, specclient.resources.chat\n"
        "client = specclient.OpenAI(api_key='key')\n"
        "inspect.Signature.__init__ = counted\n"
        "client.chat.completions; client.files; client.beta.threads.messages; client.responses\n"
        "print(len([one for one in made if len(one.parameters) > 4]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]
