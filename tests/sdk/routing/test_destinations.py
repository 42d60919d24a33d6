"""Aliases among the destinations: in the client, with policies, and in clients whose base URL owns names."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint

import httpx
import openai
import pytest
from gateway_server import upstream_settings
from loopback_server import OpenAIServer

import specclient
from specclient import OpenAI, Settings
from specclient.errors import ConfigurationError, NotFoundError
from specclient.providers.configuration import endpoints
from specclient.providers.endpoint import Endpoint
from specclient.routing.destinations import DestinationRegistry
from specclient.types.backend import Backend
from specclient.types.model_aliases import ModelAliases

MESSAGES = [{"role": "user", "content": "hello"}]
ALIASES = {"gpt-4o": "mine/m-large", "gpt-4*": "m-small", "best": "auto", "quick": "gpt-4o"}


def client_of(server: OpenAIServer, aliases=ALIASES, **options) -> OpenAI:
    config = upstream_settings(server, aliases=aliases, **options.pop("tables", {}))
    return OpenAI(config=config, max_retries=0, **options)


def ask(client, model, **more):
    return client.chat.completions.create(model=model, messages=MESSAGES, **more)


def test_an_alias_is_sent_as_its_target_and_both_names_are_recorded(openai_server, tmp_path):
    with client_of(openai_server, tables={"ledger": str(tmp_path / "ledger.sqlite3")}) as client:
        for model, sent in (("gpt-4o", "m-large"), ("quick", "m-large"), ("gpt-4-turbo", "m-small")):
            answer = ask(client, model)
            assert openai_server.requests[-1].json["model"] == sent
            assert answer.model == sent  # the provider's own answer
            assert (answer.meta.model, answer.meta.route.chosen) == (model, f"mine/{sent}")
            assert answer.meta.route.reason == f"named by the caller as {model!r}"
            assert answer.meta.cost.total > 0  # the price of the served model
        client.ledger.flush()
        rows = client.ledger.rows(limit=5)
    assert {(row.model, row.route, row.served_model) for row in rows} == {
        ("gpt-4o", "mine/m-large", "m-large"),
        ("quick", "mine/m-large", "m-large"),
        ("gpt-4-turbo", "mine/m-small", "m-small"),
    }


def test_an_alias_of_auto_is_routed_and_an_alias_with_a_policy_is_its_first_route(openai_server):
    with client_of(openai_server) as client:
        routed = ask(client, "best")
        assert (routed.meta.model, routed.meta.route.chosen) == ("best", "mine/m-small")
        assert len(routed.meta.route.candidates) == 2
        first = ask(client, "gpt-4o", policy=specclient.Policy(fallbacks=("mine/m-small",)))
        assert first.meta.route.chosen == "mine/m-large"


def test_streams_use_aliases(openai_server):
    with client_of(openai_server) as client:
        stream = ask(client, "gpt-4o", stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
        assert stream.meta.route.chosen == "mine/m-large"


def test_a_client_whose_base_url_owns_names_sends_a_target_to_the_provider_that_it_names(openai_server):
    with client_of(openai_server, base_url="http://127.0.0.1:9/v1") as client:
        places = client.core.pipeline.destinations
        assert places.owns_names
        assert places.split("gpt-4o") == ("mine", "m-large")
        assert places.split("gpt-4-turbo") == ("mine", "m-small")
        assert places.split("demo") == ("mine", "demo")  # not an alias: sent as it is


def test_the_openai_packages_client_uses_aliases(openai_server):
    config = upstream_settings(openai_server, aliases={"team/fast": "mine/m-large", "own": "local/demo"})
    with (
        httpx.Client(transport=specclient.transport(config=config)) as library,
        openai.OpenAI(base_url=openai_server.base_url, api_key="k", http_client=library) as client,
    ):
        assert ask(client, "team/fast").model == "m-large"
        assert openai_server.requests[-1].json["model"] == "m-large"
        count = len(openai_server.requests)
        assert ask(client, "own", max_tokens=3).choices[0].message.content
        assert len(openai_server.requests) == count  # served by the engine in this process


@pytest.mark.parametrize(
    ("aliases", "error"),
    [
        ({"gpt-4o": "locla/demo"}, "alias 'gpt-4o': unknown provider 'locla' in model 'locla/demo'"),
        ({"gpt-4*": "mine/"}, "alias 'gpt-4\\*': model 'mine/' names the provider 'mine' but no model"),
        ({"a": "b", "b": "a"}, "alias 'a' leads back to itself"),
    ],
)
def test_an_alias_without_a_model_is_a_configuration_error_that_names_it(openai_server, aliases, error):
    with pytest.raises(ConfigurationError, match=error) as raised:
        client_of(openai_server, aliases)
    assert "\n" not in str(raised.value)


def test_a_requests_own_aliases_precede_the_configured_ones(openai_server):
    with client_of(openai_server) as client:
        places = client.core.pipeline.destinations
        own = ModelAliases({"gpt-4o": "local/demo", "mine": "quick", "wrong": "nowhere/x"})
        assert places.split("gpt-4o", own) == ("local", "demo")
        assert places.split("mine", own) == ("mine", "m-large")  # its target is a configured alias
        assert places.split("quick", own) == ("mine", "m-large")
        with pytest.raises(NotFoundError, match="alias 'wrong': unknown provider 'nowhere'"):
            places.split("wrong", own)
        with pytest.raises(ConfigurationError, match="alias 'wrong'"):
            places.check_targets(own)


def test_a_provider_of_several_vendors_has_an_endpoint_for_each_dialect() -> None:
    env = {"GOOGLE_CLOUD_PROJECT": "p-1"}
    places = DestinationRegistry(Settings(), endpoints(Settings(), env), "openai")
    claude, gemini = places.of_model("vertex", "claude-opus-5"), places.of_model("vertex", "gemini-2.5-pro")
    assert isinstance(claude, Endpoint)
    assert isinstance(gemini, Endpoint)
    assert (claude.dialect, gemini.dialect) == ("anthropic", "gemini")
    assert (claude.capabilities.prefill, gemini.capabilities.prefill) == ("assistant", None)
    assert places.of_model("vertex", "claude-opus-5") is claude
    assert places.of_model("openai", "gpt-4.1") is places.get("openai")
    with pytest.raises(NotFoundError, match="Vertex AI's models of google and anthropic are served"):
        places.of_model("vertex", "meta/llama")


def test_threads_that_need_an_engine_at_once_get_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = DestinationRegistry(Settings(), {}, "openai")
    together, make = threading.Barrier(4), DestinationRegistry._make

    def made_at_once(self: DestinationRegistry, point: EntryPoint) -> Backend:
        together.wait(10)
        return make(self, point)

    monkeypatch.setattr(DestinationRegistry, "_make", made_at_once)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(registry.get, ["local"] * 4))
    assert len(set(map(id, found))) == 1
    assert registry.get("local") is found[0]
