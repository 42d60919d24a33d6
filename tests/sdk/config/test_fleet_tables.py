"""``[fleets.NAME]`` tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from specclient import ConfigurationError
from specclient.config import load

GOOD = """
[fleets.big]
path = "Qwen/Qwen3-8B"
draft = "Qwen/Qwen3-0.6B"
replicas = [1, 4]
[fleets.big.pools.short]
draft_length = 0
[fleets.big.pools.long]
draft_length = 5
replicas = 2
"""


def settings_of(tmp_path: Path, text: str) -> object:
    file = tmp_path / "specclient.toml"
    file.write_text(text)
    return load(file)


def test_a_fleet_has_pools(tmp_path: Path) -> None:
    fleet = settings_of(tmp_path, GOOD).fleets["big"]
    assert [*fleet.named_pools] == ["short", "long"]
    assert fleet.named_pools["long"].replicas == 2
    assert fleet.replicas == (1, 4)
    lone = settings_of(tmp_path, '[fleets.big]\npath = "x"\n').fleets["big"]
    assert [*lone.named_pools] == ["main"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fleets.big", "fleets.Big", "'Big' is no name of a fleet; use up to 30 lower-case letters"),
        ("pools.short", "pools.auto", "'auto' stands for the fastest pool"),
        ("pools.short", 'pools."a b"', "'a b' is no name of a pool"),
        ("[1, 4]", "[4, 1]", r"the least number of replicas comes first: \[1, 4\]"),
        ("replicas = 2", "replicas = 0", "replicas"),
        ("draft_length = 5", "draft_length = -1", "draft_length"),
        ('path = "Qwen/Qwen3-8B"', 'heads = "x"\npath = "y"', "either draft or heads"),
        ("replicas = 2", "speed = 2", "unknown setting 'fleets.big.pools.long.speed'"),
        ("replicas = [1, 4]", "start_s = 0", "start_s"),
        ("replicas = 2", 'url = "http://a/v1"\nurls = ["http://b/v1"]', "a pool has either url or urls"),
        ("replicas = 2", 'urls = ["http://b/v1", "http://b/v1"]', "pools.long: addresses 1 and 2 of urls"),
        ("replicas = 2", "each_address = true", "each_address needs url with http://"),
        ("replicas = 2", 'url = "https://a/v1"\neach_address = true', "list the replicas in urls"),
        ("draft_length = 5", "draft_length = 5\ndraft_lengths = { 1 = 5 }", "draft_length or draft_lengths"),
        (
            "draft_length = 5",
            "draft_lengths = { 2 = 5 }",
            "begins with 2 requests; it needs the length for 1",
        ),
        ("draft_length = 5", "draft_lengths = { x = 5 }", "draft_lengths has the key 'x': it must be"),
        ("draft_length = 5", "draft_lengths = { 1 = 70 }", "draft_lengths"),
        ("replicas = [1, 4]", "prefix_blocks = -1", "prefix_blocks"),
    ],
)
def test_invalid_values_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigurationError, match=message):
        settings_of(tmp_path, GOOD.replace(old, new))


def test_two_fleets_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        settings_of(tmp_path, GOOD + '\n[fleets.big]\npath = "other"\n')


def test_errors_do_not_quote_what_may_be_a_key(tmp_path: Path) -> None:
    for text in (
        '[fleets.big]\nkey = "sk-secret"\n',
        '[fleets.big]\npath = "x"\nenv = { HF_TOKEN = ["sk-secret"] }\n',
    ):
        with pytest.raises(ConfigurationError) as caught:
            settings_of(tmp_path, text)
        assert "sk-secret" not in str(caught.value)
