"""Logits processors of a request: biases, penalties, token masks and a grammar.

The order is that of vLLM's sampler and of ``transformers``' processors: ``logit_bias`` is added; the
repetition penalty divides positive logits and multiplies negative ones; frequency and presence penalties
are subtracted; the masks (``min_tokens``, ``bad_words``, a grammar) come last, and their order does not
matter. Temperature, top-k, top-p and min-p (``sampling``) apply to the processed logits.

Each row is processed as if the drafted tokens on its path had been accepted. The row then equals what plain
decoding would compute there, so speculation does not change the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from specclient_local.model.grammar import GrammarState
from specclient_local.request.params import SamplingParams

LogitPositions = tuple[list[int], list[int]]
"""Row indices and column indices of single logits, two lists of equal length."""

_ROOM = 64
"""Initial capacity of a :class:`TokenTable`."""


@dataclass(slots=True)
class RequestLogitsProcessor:
    """All logits processors of one request; implements :class:`sequence.LogitsProcessor`.

    Parts that the request does not use are None and cost nothing.

    Attributes:
        penalties: biases and penalties.
        masks: ``min_tokens`` and ``bad_words``.
        grammar: state of the request's grammar.
    """

    penalties: LogitPenalties | None = None
    masks: TokenMasks | None = None
    grammar: GrammarState | None = None

    @property
    def ended(self) -> bool:
        """Whether the grammar allows no further token. The output then ends, even before ``min_tokens``."""
        return self.grammar is not None and self.grammar.ended

    @torch.inference_mode()
    def process(self, logits: Tensor, paths: Seq[Seq[int]]) -> Tensor:
        """Return processed logits; the input is not modified.

        Args:
            logits: ``[N, V]``, for any V.
            paths: ``[N]``, for each row the drafted tokens between the output so far and that row.

        Returns:
            ``[N, V]`` on the same device, in float32 at least: bfloat16 is too coarse for penalties.
        """
        out = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
        if self.penalties is not None:
            self.penalties.apply(out, paths)
        if self.masks is not None:
            self.masks.apply(out, paths)
        if self.grammar is not None:
            self.grammar.apply(out, paths)
        return out

    def take(self, token: int) -> None:
        """Record that a token was appended to the output."""
        for part in (self.penalties, self.masks, self.grammar):
            if part is not None:
                part.take(token)


class LogitPenalties:
    """Logit biases and penalties.

    Affected tokens and their penalties are kept in tables, updated with each appended token; each row then
    corrects the tokens on its own path. The cost of a round grows with the number of distinct tokens, not
    with the output's length.

    Args:
        params: ``logit_bias`` (OpenAI, "Create chat completion"), ``repetition_penalty`` (CTRL,
            arXiv 1909.05858 §4.1, over prompt and output), ``frequency_penalty`` and ``presence_penalty``
            (OpenAI, over the output only).
        prompt: token ids of the prompt.
    """

    def __init__(self, params: SamplingParams, prompt: Iterable[int]) -> None:
        self._repetition = params.repetition_penalty
        self._frequency, self._presence = params.frequency_penalty, params.presence_penalty
        self._penalises = self._repetition != 1.0 or self._frequency != 0.0 or self._presence != 0.0
        self._bias: Mapping[int, float] = params.logit_bias or {}
        self._counts: Counter[int] = Counter()
        self._penalised: dict[int, int] = {}
        for token in prompt if self._repetition != 1.0 else ():
            self._penalised.setdefault(token, len(self._penalised))
        self._tables: dict[tuple[torch.device, torch.dtype], tuple[TokenTable, TokenTable]] = {}

    @staticmethod
    def needed(params: SamplingParams) -> bool:
        """Return whether a request sets a bias or a penalty."""
        penalties = (params.repetition_penalty - 1.0, params.frequency_penalty, params.presence_penalty)
        return bool(params.logit_bias) or any(penalties)

    def take(self, token: int) -> None:
        """Count a token of the output."""
        self._counts[token] += 1
        if self._penalises:
            self._penalised.setdefault(token, len(self._penalised))
            for _, costs in self._tables.values():
                costs.stale.add(token)

    def apply(self, logits: Tensor, paths: Seq[Seq[int]]) -> None:
        """Apply biases and penalties to logits ``[N, V]`` in place; ``paths`` as in ``process``."""
        biases, costs = self._tables_for(logits)
        if self._bias:
            ids, values = biases.within(logits.shape[1])
            logits.index_add_(1, ids, values.expand(len(logits), -1))
        if not self._penalises:
            return
        spots, own = self._on_paths(paths, logits.shape[1])
        at = torch.tensor(spots, device=logits.device) if own else None
        before = None if at is None else logits[at[0], at[1]]
        ids, values = costs.within(logits.shape[1])
        logits.index_copy_(1, ids, self._less(logits.index_select(1, ids), values))
        if at is not None and before is not None:
            logits[at[0], at[1]] = self._less(before, before.new_tensor(own))

    def _less(self, logits: Tensor, costs: Tensor) -> Tensor:
        """Return the logits of penalised tokens with all three penalties applied."""
        if self._repetition != 1.0:
            logits = torch.where(logits > 0.0, logits / self._repetition, logits * self._repetition)
        return logits - costs

    def _on_paths(self, paths: Seq[Seq[int]], width: int) -> tuple[LogitPositions, list[float]]:
        """Return the positions of the tokens on each row's own path, and the penalty of each."""
        rows: list[int] = []
        tokens: list[int] = []
        costs: list[float] = []
        for row, path in enumerate(paths):
            for token in {*path}:
                if token < width:
                    rows.append(row)
                    tokens.append(token)
                    costs.append(self._cost(self._counts[token] + path.count(token)))
        return (rows, tokens), costs

    def _cost(self, count: int) -> float:
        """Return the penalty subtracted from a token's logit if it occurs ``count`` times in the output."""
        return self._frequency * count + (self._presence if count else 0.0)

    def _tables_for(self, logits: Tensor) -> tuple[TokenTable, TokenTable]:
        """Return the up-to-date tables of biases and of penalties, on the logits' device."""
        key = (logits.device, logits.dtype)
        if key not in self._tables:
            biases, costs = TokenTable(logits), TokenTable(logits)
            biases.write(range(len(self._bias)), [*self._bias], [*self._bias.values()])
            costs.stale.update(self._penalised)
            self._tables[key] = biases, costs
        biases, costs = self._tables[key]
        if costs.stale:
            tokens = sorted(costs.stale)
            places = [self._penalised[token] for token in tokens]
            costs.write(places, tokens, [self._cost(self._counts[token]) for token in tokens])
            costs.stale.clear()
        return biases, costs


class TokenTable:
    """Token ids and one value for each, on one device. The capacity doubles when it is exceeded.

    Args:
        like: a tensor with the device and dtype to use for the values.

    Attributes:
        stale: tokens whose values must be rewritten before the next use.
    """

    def __init__(self, like: Tensor) -> None:
        self.stale: set[int] = set()
        self._ids = torch.zeros(_ROOM, dtype=torch.long, device=like.device)
        self._values = like.new_zeros(_ROOM)
        self._size = 0
        self._highest = -1

    def write(self, places: Seq[int], ids: Seq[int], values: Seq[float]) -> None:
        """Write token ids and their values at these table indices."""
        if not places:
            return
        self._size = max(self._size, max(places) + 1)
        self._highest = max(self._highest, *ids)
        while self._size > len(self._ids):
            self._ids = torch.cat((self._ids, torch.zeros_like(self._ids)))
            self._values = torch.cat((self._values, torch.zeros_like(self._values)))
        at = torch.tensor(places, device=self._ids.device)
        self._ids[at] = torch.tensor(ids, device=self._ids.device)
        self._values[at] = self._values.new_tensor(values)

    def within(self, width: int) -> tuple[Tensor, Tensor]:
        """Return the token ids below ``width`` and their values; a draft's vocabulary may be smaller."""
        ids, values = self._ids[: self._size], self._values[: self._size]
        if self._highest < width:
            return ids, values
        known = ids < width
        return ids[known], values[known]


class TokenMasks:
    """Masks of forbidden tokens: end tokens before ``min_tokens``, and the last tokens of ``bad_words``.

    Args:
        ends: tokens that end the output, forbidden before it has ``min_tokens`` tokens.
        min_tokens: minimum number of output tokens.
        bad_words: token sequences that must not be completed. A sequence may begin in the prompt, as in
            ``transformers``.
        prompt: token ids of the prompt.
    """

    def __init__(
        self, ends: Iterable[int], min_tokens: int, bad_words: Iterable[Seq[int]], prompt: Seq[int]
    ) -> None:
        self._ends = sorted(ends)
        self._missing = min_tokens if self._ends else 0
        self._never: list[int] = []
        self._after: dict[int, dict[tuple[int, ...], list[int]]] = {}
        for *before, last in bad_words:
            if before:
                self._after.setdefault(len(before), {}).setdefault((*before,), []).append(last)
            else:
                self._never.append(last)
        self._reach = max(self._after, default=0)
        self._tail = [*prompt[max(0, len(prompt) - self._reach) :]]

    def take(self, token: int) -> None:
        """Record that a token was appended to the output."""
        self._missing -= 1
        self._tail.append(token)
        del self._tail[: max(0, len(self._tail) - self._reach)]

    def apply(self, logits: Tensor, paths: Seq[Seq[int]]) -> None:
        """Set the logits ``[N, V]`` of forbidden tokens to -inf in place; ``paths`` as in ``process``."""
        rows: list[int] = []
        tokens: list[int] = []
        for row, path in enumerate(paths):
            forbidden = [token for token in self._forbidden(path) if token < logits.shape[1]]
            rows += [row] * len(forbidden)
            tokens += forbidden
        if rows:
            at = torch.tensor((rows, tokens), device=logits.device)
            logits[at[0], at[1]] = -torch.inf

    def _forbidden(self, path: Seq[int]) -> list[int]:
        """Return the tokens that are forbidden after a path."""
        forbidden = [*self._never]
        if len(path) < self._missing:
            forbidden += self._ends
        if self._reach:
            before = (*self._tail, *path)
            for length, sequences in self._after.items():
                forbidden += sequences.get(before[-length:], ())
        return forbidden
