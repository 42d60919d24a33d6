"""Private modules of the `openai` package that other packages import."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import specclient
from specclient.runtime.module_names import PATHS
from specclient.runtime.module_paths import homes_of


@pytest.mark.parametrize("module", sorted(PATHS))
def test_every_name_of_a_virtual_module_is_one_of_the_openai_module(module: str) -> None:
    theirs: Any = importlib.import_module(f"openai.{module}")
    found: Any = importlib.import_module(f"specclient.{module}")
    assert sorted(homes_of(module)) == found.__all__
    for name in found.__all__:
        assert hasattr(theirs, name), name
        assert getattr(found, name) is not None


def test_objects_are_those_of_the_public_paths() -> None:
    from specclient._base_client import AsyncAPIClient, SyncAPIClient
    from specclient._exceptions import RateLimitError
    from specclient._legacy_response import LegacyAPIResponse
    from specclient._models import BaseModel
    from specclient._module_client import files
    from specclient._streaming import Stream
    from specclient._types import NOT_GIVEN, NotGiven, Omit
    from specclient._version import __version__

    assert specclient.RateLimitError is RateLimitError
    assert specclient.Stream is Stream
    assert specclient.BaseModel is BaseModel
    assert (specclient.NOT_GIVEN, specclient.NotGiven, specclient.Omit) == (NOT_GIVEN, NotGiven, Omit)
    assert specclient.__version__ == __version__
    assert isinstance(specclient.OpenAI(api_key="key"), SyncAPIClient)
    assert issubclass(specclient.AsyncAzureOpenAI, AsyncAPIClient)
    assert LegacyAPIResponse.__module__ == "specclient.resources.raw_response"
    assert files is specclient.files


def test_a_strict_schema_can_be_made_of_a_model() -> None:
    import pydantic
    from specclient.lib._pydantic import to_strict_json_schema

    class Point(pydantic.BaseModel):
        x: int

    assert to_strict_json_schema(Point)["additionalProperties"] is False


def test_unknown_names_and_modules_cannot_be_imported() -> None:
    with pytest.raises(ImportError, match="NothingLikeIt"):
        exec("from specclient._types import NothingLikeIt")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("specclient._nothing_like_it")
