"""The prompt caches of simulated hosts: which blocks of prompts each holds, for one run of a selector."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from specclient.routing.simulate.scenario import PrefixCacheSpec, Scenario, SimulatedCall

__all__ = ["BLOCK_TOKENS", "HeldTokens", "HostCaches"]

#: Tokens of a block of a prompt, as in Mooncake's traces.
BLOCK_TOKENS = 512

#: Returns the tokens at the beginning of a call's prompt that a route holds.
HeldTokens = Callable[[str], int]


class HostCaches:
    """The blocks that hosts hold; what a selector sends where decides on them."""

    def __init__(self, ground: Scenario) -> None:
        self._specs: Mapping[str, PrefixCacheSpec] = ground.caches
        self._blocks: dict[str, OrderedDict[int, float]] = {route: OrderedDict() for route in self._specs}

    def held(self, call: SimulatedCall, route: str, at: float) -> int:
        """Return the tokens of a call's prompt that a route holds at ``at`` seconds, never all of them."""
        spec = self._specs.get(route)
        if spec is None or not call.prefix:
            return 0
        blocks, oldest, count = self._blocks[route], at - spec.lifetime_s, 0
        for block in call.prefix:
            if blocks.get(block, -1e18) < oldest:
                break
            count += 1
        return min(count * BLOCK_TOKENS, call.prompt_tokens - 1)

    def served(self, call: SimulatedCall, route: str, at: float) -> None:
        """Note a prompt that a route has read."""
        spec = self._specs.get(route)
        if spec is None or not call.prefix:
            return
        blocks = self._blocks[route]
        for block in reversed(call.prefix):  # the first block is the last to be dropped
            blocks[block] = at
            blocks.move_to_end(block)
        while spec.tokens is not None and len(blocks) * BLOCK_TOKENS > spec.tokens:
            blocks.popitem(last=False)
