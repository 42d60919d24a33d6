"""The load of a fleet's pools, from the metrics page of a node of its Ray cluster.

Ray exports the figures of all processes of a node at one page (``MetricsExportPort`` of the node). The gauge
``ray_serve_replica_processing_queries`` has the requests in progress by application, deployment and replica;
a fleet is an application, and a pool its deployment ``LLMServer:POOL``. Source:
https://docs.ray.io/en/latest/serve/monitoring.html, as of Ray 2.60.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

__all__ = ["ray_loads"]

_LINE = re.compile(r"^ray_serve_replica_processing_queries\{([^\n]*)\} (\S+)", re.MULTILINE)
_APPLICATION = re.compile(r'(?:^|,)application="([^"\\]*)"')
_DEPLOYMENT = re.compile(r'(?:^|,)deployment="LLMServer:([^"\\]*)"')


def ray_loads(text: str) -> Mapping[str, Mapping[str, float]]:
    """Return the requests in progress by fleet and pool, summed over the node's replicas.

    Malformed lines are left out.

    Args:
        text: the page, in Prometheus' text format.
    """
    found: dict[str, dict[str, float]] = {}
    for labels, printed in _LINE.findall(text):
        fleet, pool = _APPLICATION.search(labels), _DEPLOYMENT.search(labels)
        try:
            value = float(printed)
        except ValueError:
            continue
        if fleet is not None and pool is not None and value >= 0 and math.isfinite(value):
            pools = found.setdefault(fleet[1], {})
            pools[pool[1]] = pools.get(pool[1], 0.0) + value
    return found
