"""The addresses of replicas: by the addresses of a name, and by Ray Serve's status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from loopback_server import OpenAIServer, reply
from replica_server import ReplicaServer

from specclient import AsyncOpenAI
from specclient.config import FleetSettings, Settings
from specclient.routing.replicas.replica_discovery import ReplicaDiscovery, addresses_of, ray_replicas

MESSAGES = [{"role": "user", "content": "x"}]


def group(*ports: int, **changes: Any) -> dict[str, Any]:
    """Return a group of targets as Ray 2.58 reports it."""
    targets = [{"ip": "127.0.0.1", "port": port, "instance_id": "", "name": f"r{port}"} for port in ports]
    return {
        "targets": targets, "route_prefix": "/big", "protocol": "HTTP", "app_name": "big",
        "ingress_request_router_targets": [], "ingress_deployment_name": "LLMServer:main", **changes,
    }  # fmt: skip


@pytest.mark.anyio
async def test_calls_go_to_the_replicas_that_the_status_lists() -> None:
    with ReplicaServer() as first, ReplicaServer() as second, OpenAIServer() as ray:
        ray.script(*[reply(200, {"target_groups": [group(first.port, second.port)]})] * 3)
        fleet = {"path": "x", "url": "http://127.0.0.1:9", "status": f"{ray.url}/api/serve/applications/"}
        settings = Settings.model_validate({"fleets": {"big": fleet}, "circuit": False, "ledger": "off"})
        async with AsyncOpenAI(config=settings, max_retries=0) as client:
            fleets = client._core.shared.fleets
            with pytest.raises(Exception, match="onnect"):  # the proxy, whose port is closed
                await client.chat.completions.create(model="big/main", messages=MESSAGES)
            for _ in range(200):
                if len(fleets.replicas("big", "main")) == 2:
                    break
                await asyncio.sleep(0.01)
            await asyncio.gather(
                *(client.chat.completions.create(model="big/main", messages=MESSAGES) for _ in range(8))
            )
        assert sum(len(server.calls) for server in (first, second)) == 8
        assert {request.path for request in first.calls} <= {"/big/v1/chat/completions"}


@pytest.mark.parametrize(
    "changes",
    [
        {"app_name": "other"},
        {"protocol": "gRPC"},
        {"ingress_deployment_name": ""},
        {"ingress_deployment_name": "OpenAiIngress"},
        {"ingress_deployment_name": "Other:main"},
        {"ingress_deployment_name": "LLMServer:other"},
        {"targets": [{"ip": "127.0.0.1"}]},
        {"targets": None},
        {"route_prefix": None},
    ],
)
def test_other_groups_are_left_out(changes: dict[str, Any]) -> None:
    good = group(1, 2)
    assert ray_replicas({"target_groups": [good]}, "big", ["main"]) == {
        "main": ["http://127.0.0.1:1/big/v1", "http://127.0.0.1:2/big/v1"]
    }
    assert ray_replicas({"target_groups": [{**good, **changes}]}, "big", ["main"]) == {}


@pytest.mark.parametrize("status", [None, [], {}, {"target_groups": 5}, {"target_groups": [3, None]}])
def test_what_is_no_status_has_no_replicas(status: Any) -> None:
    assert ray_replicas(json.loads(json.dumps(status)), "big", ["main"]) == {}


def test_a_pool_of_several_has_an_application_of_its_own() -> None:
    groups = [group(1, app_name="big-d0", ingress_deployment_name="LLMServer:d0", route_prefix="/big-d0")]
    assert ray_replicas({"target_groups": groups}, "big", ["d0", "d5"]) == {
        "d0": ["http://127.0.0.1:1/big-d0/v1"]
    }


@pytest.mark.anyio
async def test_each_address_of_a_name_is_a_replica() -> None:
    found: list[tuple[str, Sequence[str]]] = []
    table = FleetSettings.model_validate(
        {"path": "x", "pools": {"d0": {"url": "http://pods.test:8000/v1", "each_address": True}}}
    )

    async def resolve(host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("pods.test", 8000)
        return ["10.0.0.1", "fd00::2"]

    settings = Settings.model_validate({"fleets": {"big": table.model_dump()}, "ledger": "off"})
    async with AsyncOpenAI(config=settings) as client:
        endpoint = client._core.pipeline.destinations.endpoints["big"]
        discovery = ReplicaDiscovery(endpoint, table, lambda *each: found.append(each), resolve=resolve)
        discovery.call_placed(client._core.shared.transport)
        discovery.call_placed(client._core.shared.transport)
        await asyncio.sleep(0.01)
        await discovery.aclose()
    assert found == [("d0", ["http://10.0.0.1:8000/v1", "http://[fd00::2]:8000/v1"])]
    assert "127.0.0.1" in await addresses_of("localhost", 80)
