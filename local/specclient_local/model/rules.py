"""Turn what a request asks of its tokens into changed logits: biases, penalties, masks, a grammar.

In this order, that of vLLM's sampler and of ``transformers``' processors: ``logit_bias`` is added; the
repetition penalty divides positive logits and multiplies negative ones; frequency and presence penalties
are subtracted; last come the masks (``min_tokens``, ``bad_words``, a grammar), whose order changes
nothing. Temperature and what cuts the distribution (``sampling``) apply to what leaves here.

Each row is shaped as if the guesses on its path had been taken: then the row is what plain decoding would
see there, and speculation changes no answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specclient_local.model.grammar import Grammar
from specclient_local.params import SamplingParams

Spots = tuple[list[int], list[int]]
"""Rows and columns of single logits, side by side."""


@dataclass(slots=True)
class AnswerRules:
    """All rules of one request; what it does not ask for costs nothing. See :class:`sequence.Rules`.

    Attributes:
        weights: what is added to logits, or scales them.
        masks: which logits are at times forbidden.
        grammar: what the whole answer must be.
    """

    weights: Weights | None = None
    masks: Masks | None = None
    grammar: Grammar | None = None

    @property
    def ended(self) -> bool:
        """Whether the grammar lets nothing follow the tokens taken."""
        return self.grammar is not None and self.grammar.ended

    def shape(self, logits: Tensor, paths: Seq[Seq[int]]) -> Tensor:
        """Return logits ``[N, V]`` shaped, the given ones untouched.

        Args:
            logits: ``[N, V]``, of any V.
            paths: ``[N]`` for each row the guesses between the tokens taken and that row.

        Returns:
            ``[N, V]`` on the same device, in float32 at least: a penalty is finer than bfloat16's steps.
        """
        out = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
        if self.weights is not None:
            self.weights.apply(out, paths)
        if self.masks is not None:
            self.masks.apply(out, paths)
        if self.grammar is not None:
            self.grammar.apply(out, paths)
        return out

    def take(self, token: int) -> None:
        """Learn that the answer has grown by a token."""
        for part in (self.weights, self.masks, self.grammar):
            if part is not None:
                part.take(token)


@dataclass(slots=True)
class _Columns:
    """What applies to every row of logits of one dtype on one device, each ``[vocab]``.

    Attributes:
        bias: added; None adds nothing.
        divisor: of positive logits, and factor of negative ones; None of a request without penalties.
        cost: subtracted.
        stale: tokens whose entries no longer hold.
    """

    bias: Tensor | None
    divisor: Tensor | None
    cost: Tensor | None
    stale: set[int] = field(default_factory=set)


class Weights:
    """Logit biases and penalties.

    A row costs the same however long the answer is: what holds for all rows stands in vectors over the
    vocabulary, brought up to date by the tokens taken; only the tokens of a row's own path are corrected.

    Args:
        params: ``logit_bias`` (OpenAI, "Create chat completion"), ``repetition_penalty`` (CTRL,
            arXiv 1909.05858 §4.1, over prompt and answer), ``frequency_penalty`` and ``presence_penalty``
            (OpenAI, over the answer alone).
        prompt: ids of the prompt.
        vocab: ids the model has.
    """

    def __init__(self, params: SamplingParams, prompt: Iterable[int], vocab: int) -> None:
        self._repetition = params.repetition_penalty
        self._frequency, self._presence = params.frequency_penalty, params.presence_penalty
        self._penalises = self._repetition != 1.0 or self._frequency != 0.0 or self._presence != 0.0
        self._bias: Mapping[int, float] = params.logit_bias or {}
        self._vocab = vocab
        self._prompt = frozenset(prompt) if self._repetition != 1.0 else frozenset[int]()
        self._counts: Counter[int] = Counter()
        self._columns: dict[tuple[torch.device, torch.dtype], _Columns] = {}

    @staticmethod
    def asked(params: SamplingParams) -> bool:
        """Whether a request asks for any of this."""
        penalties = (params.repetition_penalty - 1.0, params.frequency_penalty, params.presence_penalty)
        return bool(params.logit_bias) or any(penalties)

    def take(self, token: int) -> None:
        """Count a token of the answer."""
        self._counts[token] += 1
        for columns in self._columns.values():
            columns.stale.add(token)

    def apply(self, logits: Tensor, paths: Seq[Seq[int]]) -> None:
        """Shape logits ``[N, V]`` in place."""
        columns, known = self._columns_of(logits), logits[:, : self._vocab]
        width = known.shape[1]
        if columns.bias is not None:
            known += columns.bias[:width]
        if columns.divisor is None or columns.cost is None:
            return
        spots, costs = self._on_paths(paths, width)
        at = torch.tensor(spots, device=logits.device)
        before = known[at[0], at[1]] if costs else None
        known.copy_(_penalised(known, columns.divisor[:width], columns.cost[:width]))
        if before is not None:
            divisor, cost = torch.full_like(before, self._repetition), before.new_tensor(costs)
            known[at[0], at[1]] = _penalised(before, divisor, cost)

    def _on_paths(self, paths: Seq[Seq[int]], width: int) -> tuple[Spots, list[float]]:
        """Return where tokens of a row's own path stand, and what each costs there."""
        rows: list[int] = []
        tokens: list[int] = []
        costs: list[float] = []
        for row, path in enumerate(paths):
            for token, count in Counter(path).items():
                if token < width:
                    rows.append(row)
                    tokens.append(token)
                    costs.append(self._cost(self._counts[token] + count))
        return (rows, tokens), costs

    def _cost(self, count: int) -> float:
        """Return what is subtracted from the logit of a token that the answer has so often."""
        return self._frequency * count + (self._presence if count else 0.0)

    def _columns_of(self, logits: Tensor) -> _Columns:
        """Return the vectors for such logits, up to date."""
        key = (logits.device, logits.dtype)
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = self._first_columns(logits)
        if columns.stale and columns.divisor is not None and columns.cost is not None:
            stale = sorted(columns.stale)
            at = torch.tensor(stale, device=logits.device)
            columns.divisor[at] = self._repetition
            columns.cost[at] = logits.new_tensor([self._cost(self._counts[token]) for token in stale])
        columns.stale.clear()
        return columns

    def _first_columns(self, logits: Tensor) -> _Columns:
        bias = None
        if self._bias:
            bias = logits.new_zeros(self._vocab)
            bias[torch.tensor([*self._bias], device=logits.device)] = logits.new_tensor(
                [*self._bias.values()]
            )
        if not self._penalises:
            return _Columns(bias, None, None)
        divisor = logits.new_ones(self._vocab)
        divisor[torch.tensor(sorted(self._prompt), dtype=torch.long, device=logits.device)] = self._repetition
        return _Columns(bias, divisor, logits.new_zeros(self._vocab), set(self._counts))


def _penalised(logits: Tensor, divisor: Tensor, cost: Tensor) -> Tensor:
    """Return logits with both kinds of penalty; a divisor of 1 and a cost of 0 change nothing."""
    return torch.where(logits > 0.0, logits / divisor, logits * divisor) - cost


class Masks:
    """Tokens that may not come yet, and tokens that may not come here.

    Args:
        ends: tokens that end the answer, forbidden before it has ``min_tokens``.
        min_tokens: how many.
        bad_words: token sequences of which none may be completed. They are looked for in the prompt's last
            tokens too, as ``transformers`` does: a sequence may begin there.
        prompt: ids of the prompt.
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
        """Learn a token of the answer."""
        self._missing -= 1
        self._tail.append(token)
        del self._tail[: max(0, len(self._tail) - self._reach)]

    def apply(self, logits: Tensor, paths: Seq[Seq[int]]) -> None:
        """Shape logits ``[N, V]`` in place."""
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
        """Return the tokens that may not follow a path."""
        forbidden = [*self._never]
        if len(path) < self._missing:
            forbidden += self._ends
        if self._reach:
            before = (*self._tail, *path)
            for length, sequences in self._after.items():
                forbidden += sequences.get(before[-length:], ())
        return forbidden
