"""Fleet plans: the memory of a replica, the resources of each pool, and dollars an hour."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from specclient.errors import ConfigurationError
from specclient_local.export import Deployment
from specclient_local.fleets.fleet import Fleet, FleetPool

__all__ = ["FleetPlan", "PoolPlan", "ReplicaMemory", "check_memory", "plan_fleet"]

_USED = 0.9
"""The share of a device's memory that vLLM uses by default (``gpu_memory_utilization``)."""

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class ReplicaMemory:
    """The memory of one replica, on all of its devices together.

    Attributes:
        weights: bytes of the target's weights; ``draft_weights``: of the draft model or the heads.
        kv_per_token: bytes of keys and values per token, of the target and a draft model.
        context: tokens of the longest request.
    """

    weights: int
    draft_weights: int
    kv_per_token: int
    context: int

    @property
    def least(self) -> int:
        """The bytes without which a replica cannot start: all weights, and one request of full length."""
        return self.weights + self.draft_weights + self.kv_per_token * self.context

    def requests(self, memory: int) -> int:
        """Return how many requests of full length fit beside the weights."""
        left = memory - self.weights - self.draft_weights
        return max(left // max(self.kv_per_token * self.context, 1), 0)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The needs of one pool.

    Attributes:
        pool: the pool.
        memory: of a replica; None where the model runs in transformers, so that its caches are unknown.
        available: bytes that vLLM may use of a replica's devices; None where unknown.
        devices: the least and the greatest number of devices.
        dollars: US dollars per hour of the least and of the greatest number; None without a price.
    """

    pool: FleetPool
    memory: ReplicaMemory | None
    available: int | None
    devices: tuple[int, int]
    dollars: tuple[float, float] | None

    @property
    def fits(self) -> bool | None:
        """Whether a replica fits; None where a size is unknown."""
        if self.memory is None or self.available is None:
            return None
        return self.memory.least <= self.available


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The needs of a fleet.

    Attributes:
        fleet: the fleet.
        pools: in the fleet's order.
    """

    fleet: Fleet
    pools: tuple[PoolPlan, ...]

    @property
    def dollars(self) -> tuple[float, float] | None:
        """US dollars per hour of the least and of the greatest number of replicas; None without a price."""
        priced = [pool.dollars for pool in self.pools if pool.dollars is not None]
        if len(priced) < len(self.pools):
            return None
        return sum(least for least, _ in priced), sum(most for _, most in priced)


def plan_fleet(fleet: Fleet) -> FleetPlan:
    """Return the plan of a fleet. Of a hub id, only the shape is downloaded.

    Raises:
        CheckpointError, ConfigurationError: a checkpoint cannot be read.
    """
    memory = _replica_memory(fleet.deployment)
    available = None if fleet.memory is None else int(fleet.memory * _USED) * fleet.devices
    pools = []
    for pool in fleet.pools:
        drafts = fleet.of_pool(pool).method != "none"
        own = memory if memory is None or drafts else _plain(fleet.deployment, memory)
        devices = pool.least * fleet.devices, pool.most * fleet.devices
        price = fleet.dollars
        dollars = None if price is None else (devices[0] * price, devices[1] * price)
        pools.append(PoolPlan(pool, own, available, devices, dollars))
    return FleetPlan(fleet, tuple(pools))


def check_memory(plan: FleetPlan) -> None:
    """Check that each pool can hold the model.

    Raises:
        ConfigurationError: one cannot; names the sizes and the way out.
    """
    for each in plan.pools:
        if each.fits is not False:
            continue
        assert each.memory is not None
        assert each.available is not None
        need = each.memory
        devices = plan.fleet.devices
        raise ConfigurationError(
            f"fleet {plan.fleet.name!r}: pool {each.pool.name!r} cannot hold the model: its weights take "
            f"{gib(need.weights + need.draft_weights)} and one request of {need.context} tokens "
            f"{gib(need.kv_per_token * need.context)}, but vLLM may use {gib(each.available)} of "
            f"{devices} × {gib(each.available / devices / _USED)}; set a shorter context, a half-precision "
            "dtype, a greater tp, or the right memory."
        )


def gib(size: float) -> str:
    """Return a number of bytes in GiB or MiB."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB // 10 else f"{size / 2**20:.1f} MiB"


def _replica_memory(deployment: Deployment) -> ReplicaMemory | None:
    """Return the memory of a replica with its draft; None where the size of caches is unknown."""
    from specclient_local.loading.model_loader import read_any_config  # noqa: PLC0415
    from specclient_local.loading.model_memory import ModelMemory  # noqa: PLC0415 - imports torch
    from specclient_local.model.config import DecoderConfig  # noqa: PLC0415
    from specclient_local.model.weights import resolve_checkpoint  # noqa: PLC0415

    def memory_of(name: str) -> ModelMemory | None:
        folder = resolve_checkpoint(name, whole=False)
        config = read_any_config(folder)
        if not isinstance(config, DecoderConfig):
            return None
        dtype = deployment.dtype or _stated_dtype(folder)
        return ModelMemory("model", config, dtype, copies_head=False)

    target = memory_of(deployment.target)
    if target is None:
        return None
    context = deployment.context or target.config.context
    if context > target.config.context:
        raise ConfigurationError(
            f"context is {context}; allowed is 2 to {target.config.context}, the longest that "
            f"{deployment.target} supports."
        )
    found = ReplicaMemory(target.weights, 0, target.kv_per_token, context)
    if deployment.draft is None or deployment.method == "ngram":
        return found
    if deployment.method != "draft":
        return replace(found, draft_weights=_stored(Path(deployment.draft)))
    draft = memory_of(deployment.draft)
    if draft is None:
        return found
    return replace(found, draft_weights=draft.weights, kv_per_token=target.kv_per_token + draft.kv_per_token)


def _plain(deployment: Deployment, memory: ReplicaMemory) -> ReplicaMemory:
    """Return the memory of a replica that does not draft."""
    if not memory.draft_weights:
        return memory
    found = _replica_memory(replace(deployment, method="none", draft=None))
    assert found is not None  # the target is the same
    return found


def _stored(folder: Path) -> int:
    """Return the bytes of a folder's weights; 0 where they are not on this machine."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _stated_dtype(folder: Path) -> str:
    """Return the data type of a checkpoint, as vLLM takes it: float32 weights are computed in bfloat16."""
    from specclient_local.model.checkpoint_files import read_json  # noqa: PLC0415 - as above

    raw = read_json(folder / "config.json")
    stated = raw.get("dtype") or raw.get("torch_dtype")
    return stated if stated in ("float16", "bfloat16") else "bfloat16"
