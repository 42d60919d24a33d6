"""AWS regions: of the environment and the shared configuration file, and in URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from specclient import ConfigurationError
from specclient.providers.bedrock.regions import (
    control_url,
    mantle_url,
    place_of,
    region_in,
    region_of_url,
    runtime_url,
)


def test_variables_precede_the_profile(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[default]\nregion = eu-central-1\n[profile work]\nregion=ap-south-1\n[other]\nregion = x\n"
    )
    env = {"AWS_CONFIG_FILE": str(config)}
    assert region_in(env) == "eu-central-1"
    assert region_in({**env, "AWS_PROFILE": "work"}) == "ap-south-1"
    assert region_in(env, "work") == "ap-south-1"
    assert region_in({**env, "AWS_PROFILE": "absent"}) is None
    assert region_in({**env, "AWS_DEFAULT_REGION": "us-west-2"}) == "us-west-2"
    assert region_in({**env, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-west-2"}) == "us-east-1"


@pytest.mark.parametrize(
    "content", [b"[broken\n", b"\xff\xfe\x00", b"region = x", b"[default]\nregion =\n", None]
)
def test_a_file_that_cannot_be_read_names_no_region(tmp_path: Path, content: bytes | None) -> None:
    config = tmp_path / "config"
    if content is not None:
        config.write_bytes(content)
    assert region_in({"AWS_CONFIG_FILE": str(config)}) is None


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "bedrock-runtime.us-east-1.amazonaws.com"),
        ("us-gov-west-1", "bedrock-runtime.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "bedrock-runtime.cn-north-1.amazonaws.com.cn"),
        ("eusc-de-east-1", "bedrock-runtime.eusc-de-east-1.amazonaws.eu"),
        ("us-iso-east-1", "bedrock-runtime.us-iso-east-1.c2s.ic.gov"),
        ("us-isob-east-1", "bedrock-runtime.us-isob-east-1.sc2s.sgov.gov"),
    ],
)
def test_addresses_follow_from_the_region_and_name_it(region: str, host: str) -> None:
    url = runtime_url(region)
    assert url == f"https://{host}"
    assert place_of(host.upper()) == ("runtime", region)
    assert region_of_url(url) == region
    assert control_url(url) == url.replace("bedrock-runtime", "bedrock")
    assert place_of(mantle_url(region).split("/")[2]) == ("mantle", region)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "bedrock-runtime.us-east-1.example.com",
        "bedrock-runtime.amazonaws.com",
        "s3.us-east-1.amazonaws.com",
    ],
)
def test_other_hosts_name_no_region(host: str) -> None:
    assert place_of(host) is None
    assert control_url(f"https://{host}/x") == f"https://{host}/x"


@pytest.mark.parametrize("name", ["", "us east", "us-east", "https://x", "US-EAST-1"])
def test_a_text_that_is_no_region_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="such as 'us-east-1'"):
        runtime_url(name)
