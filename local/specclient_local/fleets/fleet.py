"""Fleets and their pools, from the tables ``[fleets.NAME]``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specclient.errors import ConfigurationError
from specclient_local.export import Deployment, pair_deployment
from specclient_local.export.pair_deployment import unbundled
from specclient_local.export.vllm import ROW, speculative_config

__all__ = ["Fleet", "FleetPool", "read_fleet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPool:
    """Replicas with one draft length.

    Attributes:
        name: the model's name in requests.
        draft_length: drafted tokens per verification, at most; 0 for plain decoding.
        least, most: the number of replicas; equal without scaling by load.
        draft_lengths: drafted tokens by the requests of a step: the least number of requests, and the length
            from there on. Empty for the same length always.
    """

    name: str
    draft_length: int
    least: int
    most: int
    draft_lengths: tuple[tuple[int, int], ...] = ()

    @property
    def scales(self) -> bool:
        """Whether the number of replicas follows the load."""
        return self.least < self.most


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """One pair of models on several replicas.

    Attributes:
        name: the fleet's name.
        deployment: the pair, with the draft length of pools that have none of their own.
        pools: in the order of the configuration.
        slots: the most requests that a replica serves at a time.
        target_requests: the requests in progress per replica at which scaling by load aims.
        cpus: processors of a replica; ``gpus``: GPUs of a replica.
        accelerator: the kind of GPU, by Ray's name; None for any.
        memory: bytes of one device; None where unknown.
        arguments: further engine arguments of vLLM, by name.
        env: variables of the replicas' environment.
        url: the address of Ray Serve's HTTP proxy.
        address: the cluster's address, or ``local``.
        python: the interpreter of the environment with Ray; None for this one.
        image: the container image of replicas in rendered files; None for the default.
        start_s: seconds that a deployment may take.
        prefixes: whether prompts with a common beginning go to the same replica of a pool.
        dollars: US dollars per hour of one device; None where unknown.
    """

    name: str
    deployment: Deployment
    pools: tuple[FleetPool, ...]
    slots: int
    target_requests: float
    cpus: float
    gpus: int
    accelerator: str | None = None
    memory: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str
    address: str = "local"
    python: str | None = None
    image: str | None = None
    start_s: float = 1200.0
    prefixes: bool = False
    dollars: float | None = None

    @property
    def devices(self) -> int:
        """Devices of a replica: the parts into which the model is split."""
        return self.deployment.tensor_parallel * self.deployment.pipeline_parallel

    @property
    def capacity(self) -> int:
        """The most requests that all replicas serve at a time."""
        return sum(pool.most for pool in self.pools) * self.slots

    @property
    def base_url(self) -> str:
        """The base URL of the API that serves all pools."""
        return f"{self.url.rstrip('/')}/{self.name}/v1"

    def pool(self, name: str) -> FleetPool:
        """Return the pool of a name.

        Raises:
            ConfigurationError: there is none; the message lists the pools.
        """
        for pool in self.pools:
            if pool.name == name:
                return pool
        known = ", ".join(pool.name for pool in self.pools)
        raise ConfigurationError(f"fleet {self.name!r} has no pool {name!r}; its pools are {known}.")

    def of_pool(self, pool: FleetPool) -> Deployment:
        """Return the pair with a pool's draft length."""
        if not pool.draft_length or self.deployment.method == "none":
            return replace(self.deployment, method="none", draft=None, name=pool.name)
        return replace(self.deployment, depth=pool.draft_length, name=pool.name)

    def engine_arguments(self, pool: FleetPool) -> dict[str, Any]:
        """Return the engine arguments of a pool's replicas, by vLLM's names.

        They are those of ``specclient local export --to vllm``, besides address, port and served name.
        """
        deployment = self.of_pool(pool)
        speculation = dict(speculative_config(deployment) or {})
        if speculation and pool.draft_lengths:
            speculation["num_speculative_tokens_per_batch_size"] = self._schedule(pool)
        found = {
            "max_num_seqs": self.slots,
            "max_model_len": deployment.context,
            "dtype": deployment.dtype,
            "tensor_parallel_size": deployment.tensor_parallel,
            "pipeline_parallel_size": deployment.pipeline_parallel,
            "speculative_config": speculation or None,
            "per_request_spec_decode_metrics": "summary" if speculation else None,
        }
        kept = {name: value for name, value in found.items() if value is not None and value != 1}
        return {**kept, **self.arguments}

    def _schedule(self, pool: FleetPool) -> list[list[int]]:
        """Return a pool's lengths as vLLM expects them: first and last number of requests, and length.

        Source: https://docs.vllm.ai/en/latest/features/speculative_decoding/dynamic_speculative_decoding/,
        as of vLLM 0.32.
        """
        starts = [count for count, _ in pool.draft_lengths]
        ends = [*(count - 1 for count in starts[1:]), max(self.slots, starts[-1])]
        lengths = [length for _, length in pool.draft_lengths]
        return [list(each) for each in zip(starts, ends, lengths, strict=True)]

    def resized(self, sizes: Mapping[str, tuple[int, int]]) -> Fleet:
        """Return the fleet with other numbers of replicas, by pool.

        Raises:
            ConfigurationError: a pool is unknown.
        """
        for name in sizes:
            self.pool(name)
        pools = [
            replace(pool, least=sizes[pool.name][0], most=sizes[pool.name][1]) if pool.name in sizes else pool
            for pool in self.pools
        ]
        return replace(self, pools=tuple(pools))


def read_fleet(name: str, table: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Fleet:
    """Return the fleet of a checked ``[fleets.NAME]`` table.

    Args:
        name: the fleet's name.
        table: the fields of :class:`specclient.config.FleetSettings`, with ``pools`` by name.
        environ: the environment, which may name the cluster in ``RAY_ADDRESS``.

    Raises:
        CheckpointError, ConfigurationError: the pair cannot be served by vLLM, or a value is invalid.
    """
    environ = os.environ if environ is None else environ
    deployment = pair_deployment(
        _absolute(table["path"]),
        method=table["method"],
        drafts=[_absolute(table["draft"])] if table.get("draft") else (),
        heads=[_absolute(table["heads"])] if table.get("heads") else (),
        depth=table["draft_length"] or None,
        context=table.get("context"),
        dtype=table.get("dtype"),
        tensor_parallel=table["tp"],
        pipeline_parallel=table["pp"],
        name=name,
    )
    ROW.check(deployment)
    pools = tuple(_pool(pool, values, table) for pool, values in table["pools"].items())
    for pool in pools:
        own = table["pools"][pool.name]
        given = own["draft_length"] or own.get("draft_lengths")
        if pool.draft_length and deployment.method == "none" and given:
            raise ConfigurationError(
                f"fleet {name!r}: draft_length of pool {pool.name!r} is {pool.draft_length}, but the fleet "
                'has no draft; add draft, heads, or method = "ngram".'
            )
    devices = table["tp"] * table["pp"]
    gpus = devices if table.get("gpus") is None and table.get("accelerator") else table.get("gpus") or 0
    if gpus and gpus != devices:
        raise ConfigurationError(
            f"fleet {name!r}: gpus is {gpus}, but tp × pp is {devices}; a replica uses one GPU for each part."
        )
    dollars = table.get("device_cost_per_hour")
    return Fleet(
        name=name,
        deployment=deployment,
        pools=pools,
        slots=table["slots"],
        target_requests=table.get("target_requests") or max(table["slots"] / 2, 1.0),
        cpus=table["cpus"],
        gpus=gpus,
        accelerator=table.get("accelerator"),
        memory=None if table.get("memory") is None else size_in_bytes(name, table["memory"]),
        arguments=table["arguments"],
        env={key: _text(value) for key, value in table["env"].items()},
        url=table["url"],
        address=table.get("address") or environ.get("RAY_ADDRESS") or "local",
        python=None if table.get("python") is None else str(Path(table["python"]).expanduser()),
        image=table.get("image"),
        start_s=table["start_s"],
        prefixes=table["prefixes"],
        dollars=None if dollars is None else float(dollars),
    )


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def size_in_bytes(name: str, text: str) -> int:
    """Return the bytes of a size such as ``80GiB`` or ``24GB``.

    Args:
        name: the fleet's name, for the error.

    Raises:
        ConfigurationError: the text is not a size above zero.
    """
    number = text.strip().removesuffix("B")
    digits = number.rstrip("KMGTi ")
    unit = (_UNITS | _BINARY).get(number[len(digits) :].strip())
    try:
        size = 0 if unit is None else int(float(digits) * unit)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ConfigurationError(f"fleet {name!r}: memory is {text!r}; write a size such as 80GiB or 24GB.")
    return size


def _pool(name: str, values: Mapping[str, Any], table: Mapping[str, Any]) -> FleetPool:
    lengths = tuple(sorted((values.get("draft_lengths") or {}).items()))
    length = max((each for _, each in lengths), default=values["draft_length"])
    replicas = values["replicas"] or table["replicas"]
    least, most = (replicas, replicas) if isinstance(replicas, int) else replicas
    return FleetPool(
        name=name,
        draft_length=table["draft_length"] if length is None else length,
        least=least,
        most=most,
        draft_lengths=lengths,
    )


def _absolute(name: str) -> str:
    """Return a local checkpoint's absolute path; a hub id unchanged. Replicas have another working folder."""
    name = unbundled(name)
    path = Path(name).expanduser()
    return str(path.resolve()) if path.exists() else name


def _text(value: Any) -> str:
    text: str = value.get_secret_value() if hasattr(value, "get_secret_value") else value
    return text
