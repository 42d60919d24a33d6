"""Model names without a provider: the default provider, or the only other place that lists them."""

from __future__ import annotations

import pytest

from specclient.config import Settings
from specclient.errors import NotFoundError
from specclient.providers.configuration import endpoints
from specclient.routing.destinations import DestinationRegistry


def registry(default="openai", **tables):
    settings = Settings.model_validate({"default_provider": default, **tables})
    return DestinationRegistry(settings, endpoints(settings, {}), default)


def provider(*models):
    return {"base_url": "http://127.0.0.1:9/v1", "models": list(models)}


def test_a_name_that_one_place_lists_goes_there():
    places = registry(
        providers={"mine": provider("m-large")}, local={"models": {"own": {"path": "/checkpoints/own"}}}
    )
    assert places.split("demo") == ("local", "demo")
    assert places.split("own") == ("local", "own")
    assert places.split("m-large") == ("mine", "m-large")
    assert places.split("m-larger") == ("openai", "m-larger")  # listed nowhere


def test_a_name_that_several_places_list_is_refused_with_all_of_them():
    places = registry(providers={"mine": provider("demo", "m"), "ours": provider("m")})
    with pytest.raises(NotFoundError, match="'m' is served by several providers; name one of mine/m, ours/m"):
        places.split("m")
    with pytest.raises(NotFoundError, match="local/demo, mine/demo"):
        places.split("demo")


def test_a_name_of_the_default_provider_goes_to_it_whoever_else_lists_it():
    others = {"mine": provider("gpt-4o", "gpt-own"), "ours": provider("gpt-4o")}
    assert registry(providers=others).split("gpt-4o") == ("openai", "gpt-4o")  # in the price catalogue
    assert registry(providers=others).split("gpt-own") == ("mine", "gpt-own")
    priced = registry(providers=others, prices={"openai/gpt-own": {"input": 1, "output": 1}})
    assert priced.split("gpt-own") == ("openai", "gpt-own")
    assert registry("ours", providers={**others, "ours": provider("demo")}).split("demo") == ("ours", "demo")


def test_many_names_from_requests_do_not_grow_its_memory():
    places = registry()
    for number in range(3000):
        places.split(f"gpt-{number}")
    assert len(places._bare_places) <= 1024
