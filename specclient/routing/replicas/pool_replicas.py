"""The replicas of one pool by their addresses, and the use of one of them by a call."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from specclient.providers.endpoint import Endpoint, EndpointServer
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.replicas.prompt_blocks import PromptBlocks, prompt_blocks
from specclient.routing.replicas.replica_chooser import ReplicaChoice, ReplicaChooser
from specclient.runtime.event_loop import run_in_thread
from specclient.runtime.json_slices import is_large
from specclient.types.request import Request
from specclient.types.wire import Authorize, WireRequest

__all__ = ["PoolReplicas", "ReplicaUse"]

_KEY_BYTES = 32


class PoolReplicas:
    """The replicas of one pool.

    Args:
        chooser: chooses among them.
        urls: their base URLs; further ones may be found later.
    """

    def __init__(self, chooser: ReplicaChooser, urls: Sequence[str] = ()) -> None:
        self.chooser = chooser
        self._lock = threading.Lock()
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._numbers: dict[str, int] = {}
        self._left: dict[str, int] = {}  # of those that may come back, as where a name has changing addresses
        self._urls: dict[int, str] = {}
        self._endpoints: dict[int, tuple[Endpoint, Endpoint]] = {}
        self.update(urls)

    def __len__(self) -> int:
        """Return the number of replicas with a known address."""
        return len(self._numbers)

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of the replicas by base URL; a copy."""
        return dict(self._numbers)

    def update(self, urls: Sequence[str]) -> None:
        """Note which replicas there are, by their base URLs. Calls on others may still end."""
        urls = [url.rstrip("/") for url in urls]
        with self._lock:
            for url in urls:  # first, so that other threads' calls find a replica at any moment
                if url not in self._numbers:
                    number = self.chooser.add(self._left.pop(url, None))
                    self._urls[number] = url
                    self._numbers[url] = number
            for url in self._numbers.keys() - urls:
                self._left[url] = number = self._numbers.pop(url)
                self.chooser.remove(number)

    def url(self, replica: int) -> str:
        """Return the base URL of a replica."""
        return self._urls[replica]

    def blocks(self, request: Request) -> PromptBlocks:
        """Return the blocks of a request's prompt. For a large one, call it outside the event loop."""
        return prompt_blocks(request, self._key, self.chooser.block_bytes)

    def endpoint(self, replica: int, idle: Endpoint) -> Endpoint:
        """Return the endpoint of a replica.

        Args:
            replica: its number.
            idle: the pool's endpoint.
        """
        known = self._endpoints.get(replica)
        if known is None or known[0] is not idle:
            url = self._urls[replica]
            own = replace(idle, base_url=url, account=f"{idle.account} {urlsplit(url).netloc}".strip())
            self._endpoints[replica] = known = idle, own
        return known[1]


class ReplicaUse:
    """The use of a replica by one call; see :class:`specclient.providers.endpoint.EndpointServer`.

    A further attempt of the call goes to another replica.

    Args:
        replicas: those of the pool.
        pool: counts the calls of the pool, and knows what its servers refuse.
        request: the call.
    """

    def __init__(self, replicas: PoolReplicas, pool: EndpointServer, request: Request) -> None:
        self._replicas = replicas
        self._pool = pool
        self._request = request
        self._tried: list[int] = []
        self._choice: ReplicaChoice | None = None

    @property
    def title(self) -> str:
        """The pool's name in messages."""
        return self._pool.title

    def for_call(self, call: str, request: Request) -> EndpointServer:
        """Return this use."""
        del call, request
        return self

    def accepted(self, request: Request, idle: Endpoint) -> Request:
        """Return a request without parameters that the servers refuse, if those are dropped.

        Raises:
            UnsupportedParameterError: the request has such a parameter, and they are not dropped.
        """
        return self._pool.accepted(request, idle)

    async def endpoint(self, idle: Endpoint) -> Endpoint:
        """Choose a replica, and return its endpoint. Then :meth:`release` must be called."""
        request = self._request
        if is_large([*request.params.values(), *request.options.body.values()]):
            prompt = await run_in_thread(lambda: self._replicas.blocks(request))
        else:
            prompt = self._replicas.blocks(request)
        pooled = await self._pool.endpoint(idle)
        self._begin(self._replicas.chooser.choose(prompt))
        return replace(self._replicas.endpoint(self._tried[-1], pooled), server=self)

    def release(self) -> None:
        """Note that the call has ended."""
        self._pool.release()
        if self._choice is not None:
            self._replicas.chooser.ended(self._choice)

    def authorize(self, started: Endpoint) -> Authorize:
        """Return a function that sends each further attempt to another replica.

        Args:
            started: the endpoint that the request was encoded for.
        """
        sent_to = started.base_url
        first = True

        async def at_another_replica(request: WireRequest) -> WireRequest:
            nonlocal first, sent_to
            if first:
                first = False
                return request
            self._move()
            url = self._replicas.url(self._tried[-1])
            moved = replace(request, url=url + request.url.removeprefix(sent_to))
            sent_to = url
            return moved

        return at_another_replica

    def others_serve(self) -> bool:
        """Return whether another replica has not failed since its last answer."""
        choice = self._choice
        return choice is not None and self._replicas.chooser.has_healthy(besides=choice.replica)

    def learn(self, sample: CallSample) -> float | None:
        """Learn from the finished call.

        Returns:
            The mean requests in progress on its replica meanwhile, itself included; None if no replica served
            it.
        """
        choice, chooser = self._choice, self._replicas.chooser
        if choice is None:
            return None
        if sample.failed:
            if not sample.refused:
                chooser.failed(choice.replica)
            return None
        chooser.learn(
            choice,
            prompt_tokens=sample.prompt_tokens,
            cached_tokens=sample.cached_tokens,
            answer_tokens=sample.completion_tokens,
            first_s=sample.ttft_s if len(self._tried) == 1 else None,
            total_s=sample.latency_s if len(self._tried) == 1 else None,
        )
        return (choice.load + chooser.load(choice.replica)) / 2 + 1

    def _begin(self, choice: ReplicaChoice) -> None:
        self._replicas.chooser.began(choice)
        self._choice = choice
        self._tried.append(choice.replica)

    def _move(self) -> None:
        """Choose another replica after a failed attempt."""
        left, chooser = self._choice, self._replicas.chooser
        assert left is not None
        chooser.failed(left.replica)
        chooser.ended(left)
        self._choice = None
        self._begin(chooser.choose(left.prompt, avoided=self._tried))
