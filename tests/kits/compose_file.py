"""``compose.yaml`` as Docker Compose reads it, with values for its variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml
from paths import ROOT

COMPOSE = ROOT / "compose.yaml"
#: A value for each variable that the file requires. The password of Redis is that of ``redis_server``.
VARIABLES = {
    "SPECCLIENT_SERVER_KEY": "operators-key",
    "POSTGRES_PASSWORD": "data-base",
    "REDIS_PASSWORD": "open-sesame",
    "GRAFANA_PASSWORD": "pictures",
}
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[?-])(?P<text>[^}]*))?\}")


def variables() -> dict[str, str]:
    """Return the variables of the file: ``?`` for those that are required, else the default."""
    found = VARIABLE.finditer(COMPOSE.read_text(encoding="utf-8"))
    return {each["name"]: "?" if each["kind"] == "?" else each["text"] or "" for each in found}


def compose_text(given: Mapping[str, str] = VARIABLES) -> str:
    """Return the file with its variables replaced.

    Raises:
        KeyError: a required variable is not given.
    """

    def value(found: re.Match[str]) -> str:
        if found["kind"] == "?" and not given.get(found["name"]):
            raise KeyError(found["name"])
        return given.get(found["name"]) or found["text"] or ""

    return VARIABLE.sub(value, COMPOSE.read_text(encoding="utf-8"))


def compose_file(given: Mapping[str, str] = VARIABLES) -> dict[str, Any]:
    """Return the content of the file with its variables replaced."""
    content: dict[str, Any] = yaml.safe_load(compose_text(given))
    return content


def mounted(service: Mapping[str, Any], path: str) -> str:
    """Return the file or folder of the repository that a service has at a path."""
    for volume in service["volumes"]:
        source, target, *_ = volume.split(":")
        if path == target or path.startswith(f"{target}/"):
            return str(source.removeprefix("./") + path.removeprefix(target))
    raise AssertionError(f"{path} is not mounted: {service['volumes']}")
