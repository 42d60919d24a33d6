"""Ray clusters of the stand-in, and fleets on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from specclient_local.fleets.fleet import Fleet, read_fleet

from specclient.config import FleetSettings

_STAND_IN = Path(__file__).with_name("ray_stand_in")


class StandInCluster:
    """A cluster whose state is a file."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = folder / "cluster.json"
        self.session = folder / "session"
        (self.session / "logs" / "serve").mkdir(parents=True)
        node = {
            "Alive": True, "NodeID": "1", "Resources": {"CPU": 4.0}, "NodeManagerAddress": "127.0.0.1",
            "MetricsExportPort": 9,
        }  # fmt: skip
        self._state: dict[str, Any] = {
            "nodes": [node], "applications": {}, "stored": {}, "outcome": [], "vllm": "0.32.0",
            "session": str(self.session),
        }  # fmt: skip
        self.set()
        monkeypatch.setenv("RAY_STAND_IN", str(self.file))
        monkeypatch.setenv("PYTHONPATH", str(_STAND_IN))

    def set(self, **changes: Any) -> None:
        """Change values of the state."""
        state = json.loads(self.file.read_text()) if self.file.exists() else self._state
        self.file.write_text(json.dumps({**state, **changes}))

    @property
    def applications(self) -> dict[str, Any]:
        return json.loads(self.file.read_text())["applications"]


def fleet_of(**values: Any) -> Fleet:
    """Return the fleet ``big`` of a table, with the bundled pair."""
    name = values.pop("name", "big")
    pools = {"d0": {"draft_length": 0}, "d3": {"draft_length": 3}}
    table = FleetSettings.model_validate({
        "path": "bundled:target", "draft": "bundled:draft", "context": 512, "pools": pools, "start_s": 30,
        **values,
    })  # fmt: skip
    raw = table.model_dump()
    raw["pools"] = {pool: each.model_dump() for pool, each in table.named_pools.items()}
    return read_fleet(name, raw, {})
