"""The ``[fleets.NAME]`` tables: replicas of inference servers on a Ray cluster, in pools."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Self

import pydantic
from pydantic import Field, SecretStr
from pydantic_core import PydanticCustomError

from specclient.config.tables import Price, SettingsTable

__all__ = ["DEFAULT_POOL", "FLEET_AUTO", "FleetPoolSettings", "FleetSettings"]

#: The pool of a fleet without ``pools``.
DEFAULT_POOL = "main"
#: The model name with which a call goes to the fastest pool: ``NAME/auto``.
FLEET_AUTO = "auto"

#: Names of fleets and pools become parts of URLs, and names of Kubernetes objects.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")

Replicas = Annotated[int, Field(ge=1, le=10_000)]
DraftLength = Annotated[int, Field(ge=0, le=64)]


class FleetPoolSettings(SettingsTable):
    """A ``[fleets.NAME.pools.POOL]`` table: replicas with one draft length.

    Attributes:
        draft_length: drafted tokens per verification; 0 for plain decoding. The fleet's by default.
        draft_lengths: drafted tokens by the requests of a step, in place of ``draft_length``, with the least
            number of requests for each length. vLLM changes the length from step to step.
        replicas: the number of replicas, or the least and the greatest number for scaling by load.
        url: base URL of the pool's servers where they run behind an address of their own, such as a service
            of Kubernetes; None for the fleet's address.
        urls: base URLs of the replicas where each has an address of its own, by which calls are placed.
        each_address: whether each address of the host in ``url`` is a replica, such as those of a headless
            service of Kubernetes.
    """

    draft_length: DraftLength | None = None
    draft_lengths: dict[Annotated[int, Field(ge=1, le=4096)], DraftLength] = Field(default_factory=dict)
    replicas: Replicas | tuple[Replicas, Replicas] | None = None
    url: str | None = None
    urls: tuple[str, ...] = ()
    each_address: bool = False

    @pydantic.field_validator("replicas", mode="after")
    @classmethod
    def _ordered(cls, replicas: int | tuple[int, int] | None) -> int | tuple[int, int] | None:
        return checked_bounds(replicas)

    @pydantic.model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.draft_lengths and self.draft_length is not None:
            raise PydanticCustomError(
                "pool", "a pool has either draft_length or draft_lengths; leave one of them out"
            )
        if self.draft_lengths and 1 not in self.draft_lengths:
            raise PydanticCustomError(
                "pool",
                "draft_lengths begins with {least} requests; it needs the length for 1 request, too",
                {"least": min(self.draft_lengths)},
            )
        return self

    @property
    def longest_draft(self) -> int | None:
        """The greatest draft length of the pool's own; None where the fleet's holds."""
        return max(self.draft_lengths.values()) if self.draft_lengths else self.draft_length

    @pydantic.model_validator(mode="after")
    def _one_address(self) -> Self:
        if self.url is not None and self.urls:
            raise PydanticCustomError("pool", "a pool has either url or urls; leave one of them out")
        if self.each_address and not (self.url or "").startswith("http://"):
            raise PydanticCustomError(
                "pool", "each_address needs url with http://, since certificates are for names; "
                "list the replicas in urls",
            )  # fmt: skip
        if len(set(self.urls)) < len(self.urls):
            twice = [i for i, url in enumerate(self.urls, 1) if self.urls.count(url) > 1]
            raise PydanticCustomError(  # an address may hold a key
                "pool", "addresses {one} and {other} of urls are the same replica; leave one of them out",
                {"one": twice[0], "other": self.urls.index(self.urls[twice[0] - 1], twice[0]) + 1},
            )  # fmt: skip
        return self


class FleetSettings(SettingsTable):
    """A ``[fleets.NAME]`` table: one pair of models on several replicas.

    Attributes:
        path: folder or hub id of the target, which every node of the cluster can read.
        draft: folder or hub id of the draft model; ``heads`` of EAGLE heads in its place.
        method: the speculation method, as for ``specclient local export``.
        draft_length: drafted tokens per verification, for pools without their own.
        context: tokens of prompt and answer together; None for the model's maximum.
        dtype: data type of computation; None for the checkpoint's.
        slots: the most requests that a replica serves at a time.
        arguments: further engine arguments of vLLM, by name.
        replicas: for pools without their own.
        target_requests: the requests in progress per replica at which scaling by load aims; half the slots
            by default.
        tp, pp: the devices over which each layer is split, and over which layers are distributed.
        cpus: processors of a replica; ``gpus``: GPUs of a replica, ``tp`` × ``pp`` where it has any.
        accelerator: the kind of GPU, by Ray's name; None for any.
        memory: bytes of one device, such as ``80GiB``, which must hold its share of the model.
        device_cost_per_hour: US dollars per hour of one device: a GPU, or a replica's processors.
        python: the interpreter of the environment with Ray from which commands reach the cluster; None for
            this one.
        address: the cluster: ``local``, or an address of Ray. None for ``RAY_ADDRESS``, else ``local``.
        url: the address of Ray Serve's HTTP proxy.
        metrics: pages of metrics of the cluster's nodes, from which the calls of other programs are known.
        status: the page of Ray Serve's status, from which the addresses of replicas are known that answer
            HTTP themselves (direct ingress).
        prefix_blocks: the most blocks of prompts that are remembered with the replicas they were sent to; 0
            to place calls by load alone.
        api_key_env: the variable with the key that the address expects; Ray Serve itself has none.
        image: the container image of replicas, in rendered files.
        env: variables of the replicas' environment; they may hold keys.
        start_s: seconds that a deployment may take.
        prefixes: whether Ray Serve sends prompts with a common beginning to the same replica of a pool.
        pools: groups of replicas with different draft lengths, by name.
    """

    path: Annotated[str, Field(min_length=1)]
    draft: str | None = None
    heads: str | None = None
    method: str = "auto"
    draft_length: DraftLength = 4
    context: Annotated[int, Field(ge=2)] | None = None
    dtype: str | None = None
    slots: Annotated[int, Field(ge=1, le=4096)] = 64
    arguments: dict[str, Any] = Field(default_factory=dict)
    replicas: Replicas | tuple[Replicas, Replicas] = 1
    target_requests: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    tp: Annotated[int, Field(ge=1, le=64)] = 1
    pp: Annotated[int, Field(ge=1, le=64)] = 1
    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    gpus: Annotated[int, Field(ge=0)] | None = None
    accelerator: str | None = None
    memory: str | None = None
    device_cost_per_hour: Price | None = None
    python: str | None = None
    address: str | None = None
    url: str = "http://127.0.0.1:8000"
    metrics: tuple[str, ...] = ()
    status: str | None = None
    prefix_blocks: Annotated[int, Field(ge=0, le=10_000_000)] = 200_000
    api_key_env: str | None = None
    image: str | None = None
    env: dict[str, SecretStr] = Field(default_factory=dict)
    start_s: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1200.0
    prefixes: bool = False
    pools: dict[str, FleetPoolSettings] = Field(default_factory=dict)

    @pydantic.field_validator("replicas", mode="after")
    @classmethod
    def _ordered(cls, replicas: int | tuple[int, int]) -> int | tuple[int, int] | None:
        return checked_bounds(replicas)

    @pydantic.field_validator("pools", mode="after")
    @classmethod
    def _named(cls, pools: dict[str, FleetPoolSettings]) -> dict[str, FleetPoolSettings]:
        for name in pools:
            check_fleet_name(name, "pool")
            if name == FLEET_AUTO:
                raise PydanticCustomError(
                    "pool", "{name} stands for the fastest pool; choose another name", {"name": repr(name)}
                )
        return pools

    @pydantic.model_validator(mode="after")
    def _one_draft(self) -> Self:
        if self.draft is not None and self.heads is not None:
            raise PydanticCustomError("draft", "a fleet has either draft or heads; leave one of them out")
        return self

    @property
    def named_pools(self) -> dict[str, FleetPoolSettings]:
        """The pools by name; one for a fleet without pools."""
        return self.pools or {DEFAULT_POOL: FleetPoolSettings()}

    def cost_per_hour(self, devices: int) -> Decimal | None:
        """Return US dollars per hour of some devices, None without a price."""
        return None if self.device_cost_per_hour is None else self.device_cost_per_hour * devices


def checked_bounds(replicas: int | tuple[int, int] | None) -> int | tuple[int, int] | None:
    """Return a number of replicas, or its bounds in order.

    Raises:
        PydanticCustomError: the least number is above the greatest.
    """
    if isinstance(replicas, tuple) and replicas[0] > replicas[1]:
        raise PydanticCustomError(
            "replicas", "the least number of replicas comes first: [{most}, {least}]",
            {"least": replicas[0], "most": replicas[1]},
        )  # fmt: skip
    return replicas


def check_fleet_name(name: str, kind: str) -> None:
    """Refuse a name that cannot be part of a URL and of a name in Kubernetes.

    Raises:
        PydanticCustomError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise PydanticCustomError(
            "fleet_name",
            "{name} is no name of a {kind}; use up to 30 lower-case letters, digits and hyphens, with a "
            "letter first",
            {"name": repr(name), "kind": kind},
        )
