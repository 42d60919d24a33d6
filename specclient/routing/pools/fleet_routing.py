"""Calls of ``NAME/auto``: the fleet's pool that serves each of them, and what is learned from finished
calls.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from specclient.config import FLEET_AUTO, FleetSettings
from specclient.errors import LedgerError
from specclient.http_transport.http import Transport
from specclient.providers.endpoint import Endpoint, EndpointServer
from specclient.providers.started_server import accepted_by_server
from specclient.providers.unsupported import is_requested
from specclient.routing.learn.call_history import CallHistory
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.pools.fleet_loads import FleetLoads
from specclient.routing.pools.pool_chooser import PoolChoice, PoolChooser
from specclient.routing.pools.pool_speed import PoolSample
from specclient.routing.replicas.pool_replicas import PoolReplicas, ReplicaUse
from specclient.routing.replicas.prefix_index import PrefixIndex
from specclient.routing.replicas.prompt_blocks import block_bytes
from specclient.routing.replicas.replica_chooser import ReplicaChooser
from specclient.routing.replicas.replica_discovery import ReplicaDiscovery
from specclient.types.call import Call
from specclient.types.criterion import PromptTask
from specclient.types.request import Request
from specclient.types.route import Candidate, Decision
from specclient.types.wire import Authorize, WireRequest

__all__ = ["FleetRouting", "PoolUse"]

logger = logging.getLogger("specclient")

#: How far back, and how many calls in all, are read from the ledger; older pools may have been other ones.
_MEMORY, _ROWS = timedelta(days=1), 500
#: Parameters that vLLM refuses while it speculates.
_NOT_WHILE_DRAFTING = ("min_p", "logit_bias")


#: Prompts of more tokens are not hashed for the choice of a pool, which must take microseconds.
_LONG_TOKENS = 65_536
#: Calls in progress whose replicas are remembered until their records are closed.
_OPEN_CALLS = 65_536


@dataclass(slots=True)
class _FleetState:
    """One fleet.

    Attributes:
        table: its configuration.
        chooser: chooses among its pools.
        replicas: of the pools whose replicas have addresses, or may be found, by pool.
        loads, discovery: read the state of its servers; None until the first call.
    """

    table: FleetSettings
    chooser: PoolChooser
    replicas: dict[str, PoolReplicas] = field(default_factory=dict)
    loads: FleetLoads | None = None
    discovery: ReplicaDiscovery | None = None


class FleetRouting:
    """The fleets of a configuration.

    Args:
        fleets: the ``[fleets.NAME]`` tables, by name.
        history: the source of earlier calls, read once before the first call to a fleet; None for none.
    """

    def __init__(self, fleets: Mapping[str, FleetSettings], history: CallHistory | None = None) -> None:
        self._history = history
        self._fleets: dict[str, _FleetState] = {}
        self._uses: dict[tuple[str, str], PoolUse] = {}
        self._open: OrderedDict[str, ReplicaUse] = OrderedDict()
        for name, table in fleets.items():
            pools: dict[str, tuple[int, bool]] = {}
            for pool, own in table.named_pools.items():
                length = table.draft_length if own.longest_draft is None else own.longest_draft
                replicas = own.replicas or table.replicas
                count = replicas if isinstance(replicas, int) else replicas[0]
                pools[pool] = len(own.urls) or count, length > 0 and _has_draft(table)
            self._fleets[name] = fleet = _FleetState(table, PoolChooser(pools))
            for pool, (_, drafting) in pools.items():
                own = table.named_pools[pool]
                if own.urls or own.each_address or table.status is not None:
                    fleet.replicas[pool] = _replicas(fleet, pool, own.urls)
                self._uses[name, pool] = PoolUse(
                    f"{name}/{pool}", pool, fleet.chooser, drafts=drafting,
                    replicas=fleet.replicas.get(pool), opened=self._note_open,
                )  # fmt: skip

    def chooser(self, fleet: str) -> PoolChooser:
        """Return the chooser of a fleet."""
        return self._fleets[fleet].chooser

    def replicas(self, fleet: str, pool: str) -> PoolReplicas:
        """Return the replicas of a pool whose replicas have addresses."""
        return self._fleets[fleet].replicas[pool]

    def use(self, fleet: str, pool: str) -> PoolUse | None:
        """Return what counts the calls of a pool; None if the fleet or the pool is unknown."""
        return self._uses.get((fleet, pool))

    def is_auto(self, decision: Decision) -> bool:
        """Return whether a decision names a fleet's fastest pool."""
        return decision.model == FLEET_AUTO and decision.provider in self._fleets

    def has(self, name: str) -> bool:
        """Return whether there is a fleet of this name."""
        return name in self._fleets

    def place(
        self, decision: Decision, request: Request, task: PromptTask | None, prompt_tokens: int, tokens: float
    ) -> Decision:
        """Return a decision for ``NAME/auto`` with the pool that serves the call.

        Args:
            decision: names the fleet.
            request: the call; with parameters that pools with speculation refuse, it goes to one without.
            task, prompt_tokens, tokens: the kind of prompt, and the expected tokens of prompt and answer.
        """
        fleet = decision.provider
        given = {**request.params, **request.options.body}
        plain = any(is_requested(name, given.get(name)) for name in _NOT_WHILE_DRAFTING)
        state = self._fleets[fleet]
        cached: dict[str, float] = {}
        if prompt_tokens <= _LONG_TOKENS:
            for pool, replicas in state.replicas.items():
                cached[pool] = replicas.chooser.cached_tokens(replicas.blocks(request))
        choice = state.chooser.choose(task, prompt_tokens, tokens, plain=plain, cached=cached)
        route = f"{fleet}/{choice.name}"
        return replace(
            decision,
            chosen=route,
            model=choice.name,
            candidates=tuple(_candidate(fleet, choice)),
            chosen_index=next(i for i, view in enumerate(choice.views) if view.name == choice.name),
            reason=choice.reason,
            task=task,
            prompt_tokens=prompt_tokens,
        )

    def poll(self, endpoint: Endpoint, transport: Transport) -> None:
        """Start reading what is old of a fleet: the load of its pools, and the addresses of its replicas.

        An event loop must be running.
        """
        fleet = self._fleets[endpoint.name]
        if fleet.loads is None:
            nodes = fleet.table.metrics
            fleet.loads = loads = FleetLoads(endpoint, nodes, fleet.chooser, fleet.replicas)
            fleet.discovery = ReplicaDiscovery(endpoint, fleet.table, partial(_found, fleet, loads))
            for pool in fleet.replicas:
                loads.update_replicas(pool)
        assert fleet.discovery is not None
        fleet.discovery.call_placed(transport)
        fleet.loads.call_placed(transport)

    async def aclose(self) -> None:
        """Cancel the readings of the running event loop."""
        for fleet in self._fleets.values():
            if fleet.loads is not None and fleet.discovery is not None:
                await fleet.loads.aclose()
                await fleet.discovery.aclose()

    def load_history(self, fleet: str) -> None:
        """Learn from earlier calls to all fleets, once, before the first call to one; this reads a file.

        An unreadable ledger is logged, and teaches nothing.

        Args:
            fleet: the destination of the call that follows.
        """
        history = self._history
        if history is None or fleet not in self._fleets:
            return
        self._history = None
        try:
            rows = history.rows(since=datetime.now(UTC) - _MEMORY, limit=_ROWS)
        except LedgerError as error:
            logger.warning("the pools of fleets start without earlier calls: %s", error)
            return
        for row in rows:
            fleet, _, pool = row.route.partition("/")
            use, sample = self._uses.get((fleet, pool)), CallSample.of_row(row)
            if use is not None and sample is not None and row.in_progress is not None:
                _learn(use, sample, row.in_progress)

    def observe(self, call: Call) -> Call:
        """Learn from a finished call, and return it with the load of its replica.

        Calls of other destinations teach nothing, and stay as they are.
        """
        use, replica = self._uses.get((call.route.provider, call.route.model)), self._open.pop(call.id, None)
        sample = None if use is None else CallSample.of(call)
        if use is None or sample is None:
            return call
        load = None if replica is None else replica.learn(sample)
        if sample.failed:
            use.learn(None)
            return call
        in_progress = use.mean_load(call.latency_s) if load is None else load
        _learn(use, sample, in_progress)
        return replace(call, in_progress=in_progress)

    def _note_open(self, call: str, use: ReplicaUse) -> None:
        self._open[call] = use
        if len(self._open) > _OPEN_CALLS:
            self._open.popitem(last=False)


def _learn(use: PoolUse, sample: CallSample, in_progress: float) -> None:
    """Let a pool learn from a call that it answered; one without tokens or time teaches nothing."""
    tokens, latency = sample.completion_tokens, sample.latency_s
    if sample.failed or not tokens or not latency:
        return
    prompt = max((sample.prompt_tokens or 0) - (sample.cached_tokens or 0), 0)
    use.learn(PoolSample(in_progress, sample.task, prompt, tokens, sample.ttft_s, latency))


def _replicas(fleet: _FleetState, pool: str, urls: Sequence[str]) -> PoolReplicas:
    """Return the replicas of a pool, with those that the configuration lists."""
    limit = fleet.table.prefix_blocks // len(fleet.table.named_pools)
    index = PrefixIndex(limit) if limit else None
    chooser = ReplicaChooser(
        partial(fleet.chooser.token_s, pool), index=index, block_bytes=block_bytes(fleet.table.context)
    )
    return PoolReplicas(chooser, urls)


def _found(fleet: _FleetState, loads: FleetLoads, pool: str, urls: Sequence[str]) -> None:
    """Note the replicas of a pool that were found; none may be a moment in which it starts anew."""
    if urls:
        fleet.replicas[pool].update(urls)
        fleet.chooser.resize({pool: len(urls)})
        loads.update_replicas(pool)


def _has_draft(table: FleetSettings) -> bool:
    """Return whether replicas with a draft length speculate."""
    return bool(table.draft or table.heads) or table.method not in ("auto", "none")


def _candidate(fleet: str, choice: PoolChoice) -> list[Candidate]:
    return [
        Candidate(
            route=f"{fleet}/{view.name}",
            verdict="chosen" if view.name == choice.name else "left",
            reason=choice.reason
            if view.name == choice.name
            else f"{view.in_progress:g} in progress"
            + ("" if view.seconds is None else f", {view.seconds:.3g} s expected"),
        )
        for view in choice.views
    ]


class PoolUse:
    """Counts the calls in progress of one pool; see :class:`specclient.providers.endpoint.EndpointServer`.

    Nothing is started: its servers run, and have their address already.

    Args:
        title: the pool's name in messages.
        pool: its name.
        chooser: the chooser of its fleet.
        drafts: whether its servers speculate, so that they refuse some parameters.
        replicas: those with addresses of their own, on which calls are placed; None for a pool whose servers
            have one address.
        opened: called with the id of a call's record and the use of a replica by it.
    """

    def __init__(
        self,
        title: str,
        pool: str,
        chooser: PoolChooser,
        *,
        drafts: bool,
        replicas: PoolReplicas | None = None,
        opened: Callable[[str, ReplicaUse], None] | None = None,
    ) -> None:
        self._title = title
        self._pool = pool
        self._chooser = chooser
        self._refused = _NOT_WHILE_DRAFTING if drafts else ()
        self._replicas = replicas
        self._opened = opened

    @property
    def title(self) -> str:
        """The pool's name in messages."""
        return self._title

    def for_call(self, call: str, request: Request) -> EndpointServer:
        """Return the use of a replica by a call, or this pool where replicas have no addresses."""
        if not self._replicas or self._opened is None:
            return self
        use = ReplicaUse(self._replicas, self, request)
        self._opened(call, use)
        return use

    def accepted(self, request: Request, idle: Endpoint) -> Request:
        """Return a request without parameters that the servers refuse, if those are dropped.

        Raises:
            UnsupportedParameterError: the request has such a parameter, and they are not dropped.
        """
        return accepted_by_server(request, idle, self._refused, self._title)

    async def endpoint(self, idle: Endpoint) -> Endpoint:
        """Count a call; return the endpoint. Then :meth:`release` must be called."""
        self._chooser.began(self._pool)
        return idle

    def release(self) -> None:
        """Note that a call has ended."""
        self._chooser.ended(self._pool)

    def authorize(self, _: Endpoint) -> Authorize:
        """Return a function that leaves a request as it is."""
        return _unchanged

    def others_serve(self) -> bool:
        """Return False: all servers have one address, so that nothing is known of single ones."""
        return False

    def mean_load(self, seconds: float) -> float:
        """Return the mean requests in progress per replica over the last seconds."""
        return self._chooser.mean_load(self._pool, seconds)

    def learn(self, sample: PoolSample | None) -> None:
        """Learn from a finished call; None for a failure of the pool."""
        self._chooser.learn(self._pool, sample)


async def _unchanged(request: WireRequest) -> WireRequest:
    return request
