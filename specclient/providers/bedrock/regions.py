"""AWS regions: from the environment and AWS's shared configuration file, and in the URLs of Bedrock.

https://docs.aws.amazon.com/sdkref/latest/guide/feature-region.html,
https://docs.aws.amazon.com/general/latest/gr/bedrock.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from specclient.errors import ConfigurationError

#: The Bedrock API at a URL: the Converse API, or OpenAI's API.
BedrockApi = Literal["runtime", "mantle"]

#: A region's name, as ``eu-west-1`` or ``us-gov-east-1``.
_REGION = re.compile(r"[a-z]{2,8}(?:-[a-z0-9]+)+-\d+")
#: The domains of the runtime by the beginning of the region's name; the first match wins.
_DOMAINS = (
    ("cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    ("eusc-", "amazonaws.eu", "api.amazonwebservices.eu"),
    ("us-iso-", "c2s.ic.gov", "api.aws.ic.gov"),
    ("us-isob-", "sc2s.sgov.gov", "api.aws.scloud"),
    ("eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    ("us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"),
    ("", "amazonaws.com", "api.aws"),
)
_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_MANTLE_DOMAIN = "api.aws"
_MAX_FILE_BYTES = 2**20


def is_region(name: str) -> bool:
    """Return whether a text has the form of a region's name."""
    return _REGION.fullmatch(name) is not None


def environment_region(env: Mapping[str, str]) -> str | None:
    """Return the region that the environment variables name, or None."""
    # An empty AWS_REGION does not hide AWS_DEFAULT_REGION, one of blanks does: as in the `openai` package.
    named = next((env[name] for name in _VARIABLES if env.get(name)), "")
    return named.strip() or None


def region_in(env: Mapping[str, str], profile: str | None = None) -> str | None:
    """Return the region of the environment, else that of a profile in AWS's configuration file, or None.

    Args:
        profile: the profile's name; by default the one that the environment names.
    """
    return environment_region(env) or _profile_region(env, profile)


def _profile_region(env: Mapping[str, str], profile: str | None) -> str | None:
    path = Path(env.get("AWS_CONFIG_FILE") or "~/.aws/config")
    try:
        path = path.expanduser()
        if path.stat().st_size > _MAX_FILE_BYTES:
            return None
        text = path.read_text("utf-8")
    except (OSError, RuntimeError, ValueError):  # no file, no home folder, or no text
        return None
    from configparser import ConfigParser, Error  # noqa: PLC0415 - only where there is such a file

    name = profile or env.get("AWS_PROFILE") or env.get("AWS_DEFAULT_PROFILE") or "default"
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except Error:  # botocore reports it when a request is signed
        return None
    sections = (f"profile {name}", name) if name != "default" else ("default", "profile default")
    found = (parser.get(section, "region", fallback="") for section in sections)
    return next((region.strip() for region in found if region.strip()), None)


def runtime_url(region: str) -> str:
    """Return the URL of the Converse API in a region.

    Raises:
        ConfigurationError: the text is no region's name.
    """
    if not is_region(region):
        raise ConfigurationError(f"the AWS region is {region!r}; it must be a name such as 'us-east-1'")
    return f"https://bedrock-runtime.{region}.{_domains(region)[0]}"


def mantle_url(region: str) -> str:
    """Return the URL of Bedrock's OpenAI-compatible API in a region."""
    return f"https://bedrock-mantle.{region}.{_MANTLE_DOMAIN}/openai/v1"


def place_of(host: str | None) -> tuple[BedrockApi, str] | None:
    """Return the API and the region of one of AWS's own hosts; None for any other host."""
    service, _, rest = (host or "").removesuffix(".").lower().partition(".")
    region, _, domain = rest.partition(".")
    if not domain or not is_region(region):
        return None
    if service == "bedrock-mantle" and domain == _MANTLE_DOMAIN:
        return "mantle", region
    if service in ("bedrock-runtime", "bedrock-runtime-fips") and domain in _domains(region):
        return "runtime", region
    return None


def region_of_url(url: str) -> str | None:
    """Return the region in the URL of one of AWS's own hosts, or None."""
    place = place_of(urlsplit(url).hostname)
    return None if place is None else place[1]


def control_url(url: str) -> str:
    """Return the URL of the API that lists models, by that of the Converse API.

    It is another host at AWS (https://docs.aws.amazon.com/bedrock/latest/APIReference/), the same elsewhere.
    """
    if place_of(urlsplit(url).hostname) is None:
        return url
    return url.replace("//bedrock-runtime", "//bedrock", 1)


def _domains(region: str) -> tuple[str, str]:
    return next((own, other) for start, own, other in _DOMAINS if region.startswith(start))
