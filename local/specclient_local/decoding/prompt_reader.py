"""Prompts of a target: the slots of requests, chunks of their prompts, and prefixes that they share."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from torch import Tensor

from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.paged_prefix_cache import prefix_cache_for
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.model.prefix_cache import PrefixSharing, SlotClaim
from specclient_local.model.scoring import token_scores
from specclient_local.request.sequence import Sequence


class PromptReader:
    """Places requests in a target's slots, and reads their prompts chunk by chunk.

    Args:
        target: the target.
        sharing: whose keys and values a prompt with a common prefix reuses.

    Attributes:
        prefixes: the prefixes that slots hold.
    """

    def __init__(self, target: ModelRunner, sharing: PrefixSharing) -> None:
        self._target = target
        self.prefixes = prefix_cache_for(target, "none" if target.recurrent else sharing)

    def place(self, sequence: Sequence, free: Seq[int]) -> int | None:
        """Return the free slot that suits a sequence best: one that holds a prefix of its prompt, if any.

        None if there is no memory for the sequence until others end.
        """
        prompt, answer = sequence.prompt_tokens - 1, sequence.limit - sequence.generated
        most = sequence.window or min(self._target.context, len(sequence.tokens) + answer)
        claim = SlotClaim(sequence.id, most, alone=sequence.params.prompt_logprobs is not None)
        return self.prefixes.place(
            sequence.tokens, prompt, free, sequence.adapter, sequence.owner, claim=claim
        )

    def chunk(self, sequence: Sequence) -> int:
        """Return the number of prompt rows that the next :meth:`read` of a sequence computes."""
        done = self.prefixes.done(sequence.cache_slot, sequence.tokens)
        return min(MAX_PASS_ROWS, max(1, sequence.prompt_tokens - 1 - done))

    def room(self, sequence: Sequence, rows: int) -> int:
        """Return how many of ``rows`` tokens after a sequence's own the cache can hold; -1 for none, and
        not the last token either.
        """
        tokens = len(sequence.tokens)
        return max(-1, self._target.reserve(sequence.cache_slot, tokens + rows) - tokens)

    def read(self, sequence: Sequence) -> bool:
        """Compute one chunk of the prompt without its last token; return whether the prompt is done.

        The last chunk of a prompt that is to be scored is left to the first round: its pass then returns the
        chunk's scores as well as the logits for the first new token.
        """
        slot, tokens, top = sequence.cache_slot, sequence.tokens, sequence.params.prompt_logprobs
        prompt = sequence.prompt_tokens - 1
        if top is None:
            done = self.prefixes.begin(slot, tokens, prompt, sequence.adapter, sequence.owner)
            end = min(done + MAX_PASS_ROWS, prompt)
            self._target.prefill(slot, tokens[done:end])
            if not sequence.generated:
                sequence.cached_tokens = self.prefixes.shared(slot)
            return end == prompt
        done = self.prefixes.begin_alone(slot, tokens, prompt, sequence.adapter, sequence.owner)
        end = min(done + MAX_PASS_ROWS, prompt)
        if sequence.limit > 0 and prompt < done + MAX_PASS_ROWS:
            return True
        if done < end:
            self.score(sequence, self._target.read(slot, tokens[done:end]))
        return end == prompt

    def score(self, sequence: Sequence, logits: Tensor) -> None:
        """Score the next N prompt tokens by the logits before each, ``[N, V]``."""
        done = len(sequence.scores) + 1
        tokens = sequence.tokens[done : done + len(logits)]
        sequence.scores += token_scores(logits, tokens, sequence.params.prompt_logprobs or 0)

    def end(self, slot: int, *, broken: bool) -> None:
        """Release a slot; if ``broken``, also erase what its cache holds."""
        if broken:
            self.prefixes.forget(slot)
        else:
            self.prefixes.end(slot)
