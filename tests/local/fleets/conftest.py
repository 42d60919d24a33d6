"""Clusters of the stand-in for Ray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_clusters import StandInCluster
from specclient_local.fleets.local_cluster import LocalCluster


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInCluster:
    return StandInCluster(tmp_path, monkeypatch)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCluster]:
    found = LocalCluster(tmp_path / "fleets")
    yield found
    found.stop()
