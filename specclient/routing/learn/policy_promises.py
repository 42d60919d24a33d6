"""The promises of policies: which calls of a policy share one adapted percentile."""

from __future__ import annotations

from collections import OrderedDict

from specclient.routing.learn.adaptive_percentile import AdaptivePercentile
from specclient.types.criterion import PromptTask
from specclient.types.policy import Policy

__all__ = ["PolicyPromises", "promise_kind"]

#: Promises that are remembered; beyond it the oldest is forgotten.
_MOST = 4096
#: Bits of the tokens of a prompt up to which it is in the class of short ones.
_SHORT_BITS = 10


class PolicyPromises:
    """The adapted percentile of each policy and kind of call; equal policies share one object."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Policy, str | int | None], AdaptivePercentile] = OrderedDict()

    def of(self, policy: Policy, task: PromptTask | None, prompt_tokens: int | None) -> AdaptivePercentile:
        """Return the adapted percentile of such calls of a policy. The caller holds its lock."""
        key = policy, promise_kind(policy, task, prompt_tokens)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST:
                self._known.popitem(last=False)
            found = self._known[key] = AdaptivePercentile(policy.percentile)
        return found


def promise_kind(policy: Policy, task: PromptTask | None, prompt_tokens: int | None) -> str | int | None:
    """Return the calls of a policy that share a promise with such a call; see ``Policy.percentile_per``."""
    if policy.percentile_per == "task":
        return task
    if policy.percentile_per == "length":
        return max((prompt_tokens or 0).bit_length() - _SHORT_BITS + 1, 0) // 2
    return None
