"""Objects that are instances of the `openai` package's classes: by a copy, by pickle, with and without it."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import openai
import pytest

import specclient
from specclient.runtime.official_classes import SeenAsOfficial, official_package

KEYS = {"api_key": "key", "base_url": "http://localhost:1/v1", "ledger": "off"}
AZURE = {"azure_endpoint": "http://localhost:1", "api_version": "1", "api_key": "key"}


@pytest.mark.parametrize(
    ("name", "options"),
    [("OpenAI", KEYS), ("AsyncOpenAI", KEYS), ("AzureOpenAI", AZURE), ("AsyncAzureOpenAI", AZURE)],
)
def test_a_client_is_an_instance_of_the_official_class_of_its_name(
    name: str, options: dict[str, Any]
) -> None:
    ours, theirs = getattr(specclient, name), getattr(openai, name)
    for client in (ours(**options), ours(**options).with_options(timeout=3), copy.deepcopy(ours(**options))):
        assert isinstance(client, theirs)
        assert isinstance(client, ours)
        assert type(client) is ours
    other = openai.AsyncOpenAI if name in ("OpenAI", "AzureOpenAI") else openai.OpenAI
    assert not isinstance(client, other)


def test_a_users_subclass_keeps_its_own_class_attributes() -> None:
    class Counting(specclient.OpenAI):
        made = 0

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.__class__.made += 1

    client = Counting(**KEYS)
    assert isinstance(client, openai.OpenAI)
    assert client.__class__.made == 1
    assert type(client.__class__(**KEYS)) is Counting


def test_a_class_that_cannot_be_combined_keeps_its_own() -> None:
    class Meta(type):
        pass

    class Other(metaclass=Meta):
        pass

    class Named(SeenAsOfficial):
        @classmethod
        def official_classes(cls, package: Any) -> list[Any]:
            return [Other]

    class Nameless(SeenAsOfficial):
        pass

    assert not isinstance(Nameless(), openai.OpenAI)
    assert not isinstance(object.__new__(Named), int)
    assert Nameless().__class__ is Nameless


def test_an_object_is_pickled_by_its_type() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        answer = specclient.types.chat.ChatCompletion.construct(id="a", choices=[])
        loaded = pickle.loads(pickle.dumps(answer, protocol))
        assert loaded == answer
        assert type(loaded) is specclient.types.chat.ChatCompletion


def test_a_deep_copy_of_a_client_shares_its_connections_and_has_its_own_options() -> None:
    client = specclient.OpenAI(**KEYS)
    copied = copy.deepcopy({"client": client})["client"]
    copied.max_retries = 7
    assert client.max_retries != 7
    assert copied.core.shared is client.core.shared


_WITHOUT = """
import sys, specclient
client = specclient.OpenAI(api_key="key", ledger="off")
assert client.__class__ is specclient.OpenAI
assert not isinstance(client, dict)
sys.modules["openai"] = specclient  # the alias of the documentation
assert client.__class__ is specclient.OpenAI
del sys.modules["openai"]
assert not any(name.startswith("openai") for name in sys.modules), "the package was imported"
import openai
assert isinstance(client, openai.OpenAI)
"""


def test_the_package_is_seen_once_a_program_imports_it() -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT], check=True, timeout=60)
    assert official_package() is openai
