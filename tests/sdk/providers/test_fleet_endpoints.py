"""Fleets as providers, and their pools as models."""

from __future__ import annotations

import socket

import pytest
from loopback_server import OpenAIServer, reply

from specclient import APIConnectionError, AsyncOpenAI, ConfigurationError, NotFoundError
from specclient.config import Settings
from specclient.providers.configuration import endpoints
from specclient.providers.dialects import endpoint_of_model
from specclient.providers.fleet_pools import fleet_routes

FLEET = {
    "path": "Qwen/Qwen3-8B",
    "url": "http://head:8000/",
    "api_key_env": "FLEET_KEY",
    "pools": {"short": {"draft_length": 0}, "long": {"url": "http://long:8000/v1"}},
}


def settings_of(**fleets: object) -> Settings:
    return Settings.model_validate({"fleets": fleets})


def test_pools_are_at_the_fleets_address_or_their_own() -> None:
    fleet = endpoints(settings_of(big=FLEET), {"FLEET_KEY": "secret"})["big"]
    assert fleet_routes(fleet) == ("big/short", "big/long")
    assert endpoint_of_model(fleet, "short").base_url == "http://head:8000/big/v1"
    assert endpoint_of_model(fleet, "long").base_url == "http://long:8000/v1"
    assert fleet.key is not None
    assert fleet.key.get_secret_value() == "secret"
    assert fleet.capabilities.telemetry == ("vllm",)
    assert fleet.template_of("short") == "Qwen/Qwen3-8B"
    with pytest.raises(NotFoundError, match="no pool 'other'; its pools are short, long, and 'auto'"):
        endpoint_of_model(fleet, "other")


def test_a_missing_key_is_named() -> None:
    assert endpoints(settings_of(big=FLEET), {})["big"].lacks == "no key: set FLEET_KEY"
    assert endpoints(settings_of(big={"path": "x"}), {"VLLM_API_KEY": "other"})["big"].key is None


@pytest.mark.parametrize("name", ["openai", "local", "auto"])
def test_a_fleet_may_not_have_the_name_of_a_provider(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"fleets.{name} has the name of a provider"):
        endpoints(settings_of(**{name: {"path": "x"}}), {})


def test_an_invalid_url_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"fleets.big: .*no scheme"):
        endpoints(settings_of(big={"path": "x", "url": "head:8000"}), {})
    pools = {"d0": {"url": "head:8000"}}
    with pytest.raises(ConfigurationError, match=r"fleets.big: .*no scheme"):
        endpoints(settings_of(big={"path": "x", "pools": pools}), {})


@pytest.mark.anyio
async def test_a_call_to_a_fleet_that_is_not_running_names_the_command(openai_server: OpenAIServer) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{closed.getsockname()[1]}"
    fleets = {name: {"path": "x", "url": url} for name, url in (("big", away), ("old", openai_server.url))}
    fleets["own"] = {"path": "x", "pools": {"main": {"url": f"{away}/v1"}}}
    missing = reply(404, b"Path '/old/v1/completions' not found.", {"content-type": "text/plain"})
    openai_server.script(missing, reply(404, {"error": {"message": "no such model"}}))

    async def failure_of(model: str) -> str:
        with pytest.raises((APIConnectionError, NotFoundError)) as failure:
            await client.completions.create(model=model, prompt="1")
        return str(failure.value)

    async with AsyncOpenAI(config=settings_of(**fleets), ledger="off", max_retries=0) as client:
        assert "start it with `specclient fleet deploy big`" in await failure_of("big/main")
        assert "start it with `specclient fleet deploy old`" in await failure_of("old/main")
        assert "deploy" not in await failure_of("old/main"), "the model is unknown, the fleet runs"
        assert "Check that the server is running" in await failure_of("own/main"), "not by Ray Serve"
