"""The choice of a replica: the one with the least expected time for this prompt.

The time of a call is the wait behind the prompts that were placed before it, the prefill of what is not in
the replica's cache, and the steps of its answer, which take longer the more requests are in progress. Each of
these also delays the calls in progress there, so their loss counts as well: a replica with a cached prefix is
taken while that pays, and no longer. Without any finished call the less loaded of two random replicas is
taken (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from specclient.routing.replicas.prefill_rate import PrefillRate
from specclient.routing.replicas.prefix_index import PrefixIndex
from specclient.routing.replicas.prompt_blocks import BLOCK_BYTES, PromptBlocks
from specclient.runtime.backoff import doubled

__all__ = ["ReplicaChoice", "ReplicaChooser"]

#: The most replicas with a part of the prompt, and further ones at random, that are compared.
_HOLDERS, _OTHERS = 16, 64
#: The share of the rest of an answer that calls in progress have before them, on average.
_REST = 0.5
#: Bytes of a token until answers have told.
_BYTES_PER_TOKEN = 4.0
#: Calls after which a call weighs half in means.
_CALLS = 50.0
#: Tokens of an answer until answers have told.
_ANSWER = 128.0
#: Seconds for which a reported load is valid.
_LOAD_S = 15.0
#: Failures in a row after which a replica is avoided, and the seconds, which double up to the greatest.
_FAILURES, _REST_S, _MOST_REST_S = 2, 5.0, 120.0


@dataclass(slots=True)
class _ReplicaState:
    """The state of one replica.

    Attributes:
        own: calls of this program in progress.
        reported: requests in progress as its server reports them, the number at ``reported_at``.
        free_at: when the prompts that were placed on it will have been read, as expected.
    """

    own: int = 0
    reported: float = 0.0
    reported_at: float = float("-inf")
    free_at: float = float("-inf")
    failures: int = 0
    closed_until: float = float("-inf")
    present: bool = True


@dataclass(frozen=True, slots=True)
class ReplicaChoice:
    """The replica of a call.

    Attributes:
        replica: its number.
        cached: the first blocks of the prompt that it is expected to hold.
        age: of the last of them; see :meth:`specclient.routing.replicas.prefix_index.PrefixIndex.learn`.
        load: the requests in progress on it before the call.
        wait_s: the expected wait behind other prompts; ``prefill_s``: of the prompt itself.
        prompt: the blocks of the prompt.
    """

    replica: int
    cached: int
    age: int
    load: float
    wait_s: float
    prefill_s: float
    prompt: PromptBlocks


class ReplicaChooser:
    """Chooses among the replicas of one pool. It is safe to use from several threads.

    Args:
        decode_s: returns the seconds per token of an answer by the requests in progress on a replica, the
            call included; None where unknown.
        index: what the replicas' caches hold; None to place by load alone.
        block_bytes: bytes of a block of the prompts.
        dice: random numbers.
        now: returns monotonic seconds.
    """

    def __init__(
        self,
        decode_s: Callable[[float], float | None],
        *,
        index: PrefixIndex | None,
        block_bytes: int = BLOCK_BYTES,
        dice: random.Random | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._decode_s = decode_s
        self._index = index
        self.block_bytes = block_bytes
        self._dice = dice or random.Random()
        self._now = now
        self._lock = threading.Lock()
        self._replicas: list[_ReplicaState] = []
        self._present: list[int] = []
        self._prefill = PrefillRate()
        self._bytes_per_token, self._answer, self._reused = _BYTES_PER_TOKEN, _ANSWER, 0.0

    def add(self, again: int | None = None) -> int:
        """Add a replica, and return its number.

        Args:
            again: the number of one that was removed and is back, of which nothing but its calls is known.
        """
        with self._lock:
            if again is None:
                again = len(self._replicas)
                self._replicas.append(_ReplicaState())
            else:
                self._replicas[again] = _ReplicaState(own=self._replicas[again].own)
            self._present.append(again)
            return again

    def remove(self, replica: int) -> None:
        """Remove a replica; calls in progress on it may still end."""
        with self._lock:
            self._replicas[replica].present = False
            self._present.remove(replica)
            if self._index is not None:
                self._index.drop(replica)

    def choose(self, prompt: PromptBlocks, *, avoided: Collection[int] = ()) -> ReplicaChoice:
        """Choose the replica of a call.

        Args:
            prompt: the blocks of its prompt.
            avoided: replicas that have just failed this call; if no other is left, all are considered.
        """
        with self._lock:
            return self._choose(prompt, avoided)

    def cached_tokens(self, prompt: PromptBlocks) -> float:
        """Return the tokens of a prompt that a replica is expected to hold, the greatest number of any."""
        with self._lock:
            if self._index is None:
                return 0.0
            held = max(self._index.longest(prompt.hashes, 1).values(), default=0)
            return held * self.block_bytes / self._bytes_per_token

    def began(self, choice: ReplicaChoice) -> None:
        """Note that a call is sent to its replica."""
        with self._lock:
            state = self._replicas[choice.replica]
            state.own += 1
            state.free_at = max(state.free_at, self._now()) + choice.prefill_s
            if self._index is not None and state.present:
                self._index.note(choice.replica, choice.prompt.hashes)

    def ended(self, choice: ReplicaChoice) -> None:
        """Note that a call has ended."""
        with self._lock:
            self._replicas[choice.replica].own -= 1

    def load(self, replica: int) -> float:
        """Return the requests in progress on a replica."""
        with self._lock:
            return self._load(self._replicas[replica], self._now())

    def note_load(self, replica: int, in_progress: float) -> None:
        """Note the requests in progress that a replica reports, those of other programs included."""
        with self._lock:
            state = self._replicas[replica]
            state.reported, state.reported_at = in_progress, self._now()

    def note_cache(self, replica: int, tokens: float) -> None:
        """Note the tokens that a replica's cache holds, as its server reports them."""
        with self._lock:
            if self._index is not None and self._replicas[replica].present:
                self._index.resize(replica, tokens * self._bytes_per_token / self.block_bytes)

    def failed(self, replica: int) -> None:
        """Note that a replica failed a call."""
        with self._lock:
            state = self._replicas[replica]
            state.failures += 1
            if state.failures >= _FAILURES:
                rest = doubled(_REST_S, state.failures - _FAILURES, _MOST_REST_S)
                state.closed_until = self._now() + rest
                if self._index is not None:  # it may come back with an empty cache
                    self._index.drop(replica)

    def has_healthy(self, *, besides: int) -> bool:
        """Return whether a replica other than ``besides`` has not failed since its last answer."""
        with self._lock:
            return any(each != besides and not self._replicas[each].failures for each in self._present)

    def learn(
        self,
        choice: ReplicaChoice,
        *,
        prompt_tokens: int | None,
        cached_tokens: int | None,
        answer_tokens: int | None,
        first_s: float | None,
        total_s: float | None = None,
    ) -> None:
        """Learn from an answer.

        Args:
            choice: the choice for its call.
            prompt_tokens, cached_tokens, answer_tokens: of its usage; None where unknown.
            first_s: seconds to the first token, None where unknown; ``total_s``: to the end, from which those
                of the answer's steps are taken where the first token is unknown.
        """
        with self._lock:
            state, prompt = self._replicas[choice.replica], choice.prompt
            state.failures, state.closed_until = 0, float("-inf")
            if answer_tokens:
                self._answer += (answer_tokens - self._answer) / _CALLS
            if prompt_tokens and prompt.size:
                self._bytes_per_token += (prompt.size / prompt_tokens - self._bytes_per_token) / _CALLS
            held = choice.cached * self.block_bytes / self._bytes_per_token
            if cached_tokens is not None and self._index is not None and state.present:
                actual = cached_tokens * self._bytes_per_token / self.block_bytes
                self._index.learn(choice.replica, choice.cached, actual, choice.age)
                held = cached_tokens
            if first_s is None and total_s is not None and answer_tokens:
                step_s = self._decode_s(choice.load + 1)
                first_s = None if step_s is None else total_s - answer_tokens * step_s
            if prompt_tokens and first_s is not None:
                self._reused += (min(held / prompt_tokens, 1.0) - self._reused) / _CALLS
                self._prefill.add(max(prompt_tokens - held, 0.0), first_s - choice.wait_s)

    def _load(self, state: _ReplicaState, now: float) -> float:
        recent = now - state.reported_at <= _LOAD_S
        return max(float(state.own), state.reported) if recent else float(state.own)

    def _choose(self, prompt: PromptBlocks, avoided: Collection[int]) -> ReplicaChoice:
        now = self._now()
        holders: dict[int, int] = {}
        if self._index is not None and prompt.hashes:
            holders = self._index.longest(prompt.hashes, _HOLDERS)
        candidates = self._candidates(holders, avoided, now)
        prefill_token_s = self._prefill.token_s
        if prefill_token_s is None:
            return self._by_load(prompt, candidates, holders, now)
        token_bytes = self._bytes_per_token
        known: dict[float, tuple[float, float] | None] = {}
        best, least = None, (float("inf"), 0.0, 0.0)
        for replica in candidates:
            state = self._replicas[replica]
            load = self._load(state, now)
            if load not in known:
                known[load] = self._steps_s(load)
            steps = known[load]
            if steps is None:
                return self._by_load(prompt, candidates, holders, now)
            uncached = max(prompt.size - holders.get(replica, 0) * self.block_bytes, 0) / token_bytes
            prefill = prefill_token_s * uncached
            wait = max(state.free_at - now, 0.0)
            lost = prefill * load + steps[1]
            if self._index is not None and self._index.is_full(replica):
                lost += prefill * self._reused  # of the blocks that are evicted, if they were used again
            # Of equal ones the longest idle: its oldest blocks are the least likely to be used again.
            total = wait + prefill + steps[0] + lost, load, state.free_at
            if total < least:
                least, best = total, (replica, load, wait, prefill)
        assert best is not None
        return self._chosen(prompt, *best)

    def _chosen(
        self, prompt: PromptBlocks, replica: int, load: float, wait_s: float, prefill_s: float
    ) -> ReplicaChoice:
        cached = age = 0
        if self._index is not None and (cached := self._index.held(replica, prompt.hashes)):
            age = self._index.age(replica, prompt.hashes[cached - 1])
        return ReplicaChoice(replica, cached, age, load, wait_s, prefill_s, prompt)

    def _steps_s(self, load: float) -> tuple[float, float] | None:
        """Return the seconds of an answer's steps, and those that the calls in progress lose by them."""
        with_it = self._decode_s(load + 1)
        if with_it is None:
            return None
        before = self._decode_s(load) if load else with_it
        slower = max(with_it - (before or 0.0), 0.0)
        return with_it * self._answer, slower * load * self._answer * _REST

    def _candidates(self, holders: dict[int, int], avoided: Collection[int], now: float) -> Sequence[int]:
        """Return the replicas to compare: those that hold most of the prompt, and others."""
        present = self._present
        if len(present) > _OTHERS:
            present = [*holders, *self._dice.sample(present, _OTHERS)]
        usable = [each for each in present if each not in avoided] or present
        return [each for each in usable if self._replicas[each].closed_until <= now] or usable

    def _by_load(
        self, prompt: PromptBlocks, candidates: Sequence[int], holders: dict[int, int], now: float
    ) -> ReplicaChoice:
        """Return the less loaded of two random replicas, or one with a cached prefix that is not busier."""
        two = [self._dice.choice(candidates) for _ in range(2)]
        usual = min(two, key=lambda each: self._load(self._replicas[each], now))
        load = self._load(self._replicas[usual], now)
        for replica in holders:
            held = self._load(self._replicas[replica], now)
            if replica in candidates and held <= load + 1:
                usual, load = replica, held
                break
        return self._chosen(prompt, usual, load, 0.0, 0.0)
