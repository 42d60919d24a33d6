"""Errors about invalid settings: the place, the value unless it may be secret, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from specclient.config import FILE_NAME, load
from specclient.errors import ConfigurationError


def message_for(folder: Path, text: str) -> str:
    path = folder / FILE_NAME
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(path, env={})
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[policies.p]\npercentil_per = 'task'", "did you mean 'percentile_per'? Allowed are minimize, "),
        (
            "[fleets.b]\npath = 'x'\ndraft_lenght = 3",
            "did you mean 'draft_length'? Allowed are path, draft, ",
        ),
        (
            "[fleets.b]\npath = 'x'\n[fleets.b.pools.p]\nzz = 1",
            "allowed are draft_length, draft_lengths, replicas, url",
        ),
        (
            "[fleet.b]\npath = 'x'",
            "unknown setting 'fleet'; did you mean 'fleets'? Allowed are default_provider",
        ),
        ("[circuit]\nrest = 3", "did you mean 'rest_s'? Allowed are failures, lasting_s, rest_s"),
        ("[prices.'a/b'.tiers.flex]\ninputs = 1", "did you mean 'input'?"),
    ],
)
def test_an_unknown_setting_names_the_allowed_ones_of_its_table(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert expected in message_for(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "replicas = 0",
            "fleets.b.replicas is 0: it must be greater than or equal to 1, or it must be an array",
        ),
        ("replicas = [0, 1]", "fleets.b.replicas is [0, 1]: "),
        ("[fleets.b.pools.p]\ndraft_length = -1", "fleets.b.pools.p.draft_length is -1: it must be greater"),
        ("[fleets.b.pools.P]\ndraft_length = 1", "fleets.b.pools: 'P' is no name of a pool; use up to 30"),
    ],
)
def test_a_value_of_a_fleet_is_named_by_its_own_setting(tmp_path: Path, text: str, expected: str) -> None:
    assert message_for(tmp_path, f"[fleets.b]\npath = 'x'\n{text}").startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("circuit = true", "circuit is True: it must be a table, or it must be false"),
        ("[fleets.b]\npath = 'x'\nreplicas = [1, 2, 3]", "it must have at most 2 items, not 3"),
    ],
)
def test_allowed_values_have_the_words_of_toml(tmp_path: Path, text: str, expected: str) -> None:
    assert message_for(tmp_path, text).endswith(expected)


def test_a_missing_setting_is_required(tmp_path: Path) -> None:
    assert message_for(tmp_path, "[fleets.b]\ndraft = 'x'") == "fleets.b.path is required"


def test_an_error_about_several_tables_quotes_none_of_them(tmp_path: Path) -> None:
    text = (
        "[providers.openai]\napi_key = 'sk-secret'\n[prices.'a/b']\ninput = 1\noutput = 2\ncurrency = 'CNY'"
    )
    said = message_for(tmp_path, text)
    assert said.startswith("the price of a/b is in CNY, which has no rate; add [currencies.CNY]")
    assert "sk-secret" not in said
