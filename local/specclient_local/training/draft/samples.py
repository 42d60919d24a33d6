"""Turn prompts and a target into rows of tokens that the target said itself, kept on disk piece by piece.

Our own engine answers, a batch at a time; each answer has a seed of its own, so that the same rows come out
however often the run is stopped in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from specclient.errors import ConfigurationError, EngineError
from specclient_local.engine.answer import AnswerEvent, piece_or_raise
from specclient_local.engine.engine import Engine
from specclient_local.model.tokenizer import Tokenizer

_PIECE = 64
"""Answers of a piece: what a kill loses at most."""

_ENDS_BEFORE = 3
"""Lines at a text's end at which no prompt begins."""


@dataclass(frozen=True, slots=True)
class AnswerSampling:
    """How the target answers.

    Attributes:
        prompt: most tokens of a prompt; longer ones are cut.
        new: most tokens of an answer.
        temperatures: of the answers in turn: a draft is asked for greedy and for drawn ones.
        slots: answers at a time.
        seed: of prompts and answers.
    """

    prompt: int = 64
    new: int = 192
    temperatures: tuple[float, ...] = (0.0, 1.0)
    slots: int = 32
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TargetAnswers:
    """Answers of the target, each behind its prompt.

    Attributes:
        ids: ``[N, L]`` int64 tokens, padded with 0.
        begun: ``[N]`` where answers begin; lengths: ``[N]`` where they end.
        greedy: ``[N]`` whether they are the likeliest tokens, or else drawn.
    """

    ids: Tensor
    begun: Tensor
    lengths: Tensor
    greedy: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, numbers: Sequence[int]) -> TargetAnswers:
        """Return some rows, as wide as the longest of them."""
        at = torch.as_tensor(numbers)
        lengths = self.lengths[at]
        return TargetAnswers(self.ids[at, : int(lengths.max())], self.begun[at], lengths, self.greedy[at])

    def batches(self, size: int) -> Iterator[TargetAnswers]:
        """Yield all rows, so many at a time."""
        for first in range(0, len(self), size):
            yield self.rows(range(first, min(first + size, len(self))))


def cut_prompts(
    tokenizer: Tokenizer, texts: Sequence[str], count: int, how: AnswerSampling, *, whole: bool
) -> list[list[int]]:
    """Return prompts made of texts; the same ones for the same seed.

    Args:
        tokenizer: the target's.
        texts: prompts themselves, or files to cut them out of.
        count: how many. Prompts themselves are taken in turn, as often as needed; drawn answers to the same
            one differ.
        how: see :class:`AnswerSampling`.
        whole: whether texts are prompts themselves. Else each prompt begins at some line of some text, every
            line of all of them being as likely.

    Raises:
        ConfigurationError: texts without a token.
    """
    dice = np.random.default_rng(how.seed)
    if whole:
        encoded = [ids[: how.prompt] for text in texts if (ids := tokenizer.encode(text))]
        order = dice.permutation(len(encoded))
        found = [encoded[order[i % len(order)]] for i in range(count)] if encoded else []
    else:
        lines = [text.splitlines(keepends=True) for text in texts]
        starts = [(i, at) for i, each in enumerate(lines) for at in range(max(1, len(each) - _ENDS_BEFORE))]
        found = []
        for number in dice.integers(len(starts), size=4 * count).tolist() if starts else ():
            i, at = starts[number]
            ids = tokenizer.encode("".join(lines[i][at : at + how.prompt]))[: how.prompt]
            if len(found) < count and len(ids) >= min(8, how.prompt):
                found.append(ids)
    if not found:
        raise ConfigurationError(
            f"no prompt could be made of {len(texts)} texts; give texts of a few lines, or prompts."
        )
    return found


def sample(
    engine: Callable[[], Engine],
    prompts: Sequence[Sequence[int]],
    folder: Path,
    how: AnswerSampling,
    *,
    told: Callable[[int, int], None] = lambda *_: None,
) -> TargetAnswers:
    """Let the target answer prompts, and keep the answers; pieces that are there already are read again.

    Args:
        engine: loads the target; called only where a piece is missing, and closed afterwards.
        prompts: token ids.
        folder: for the pieces; they belong to these prompts and settings.
        how: see :class:`AnswerSampling`.
        told: is told how many prompts are answered, and of how many.

    Raises:
        ContextOverflowError: prompt and answer exceed the target's context.
        EngineError: the engine failed, or there is no space for a piece.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pieces: list[dict[str, Tensor]] = []
    running: Engine | None = None
    try:
        for i, begin in enumerate(range(0, len(prompts), _PIECE)):
            path = folder / f"piece-{i:05d}.safetensors"
            if not path.exists():
                running = running or engine()
                rows = _answers(running, prompts[begin : begin + _PIECE], begin, how)
                _write(path, _padded(rows))
            pieces.append(load_file(path))
            told(min(begin + _PIECE, len(prompts)), len(prompts))
    finally:
        if running is not None:
            running.close()
    return _joined(pieces)


def _answers(
    engine: Engine, prompts: Sequence[Sequence[int]], first: int, how: AnswerSampling
) -> list[tuple[list[int], int, bool]]:
    """Answer prompts; return of each its tokens, where its answer begins, and whether it is greedy."""
    heard: dict[int, AnswerEvent] = {}

    def listening(i: int) -> Callable[[AnswerEvent], None]:
        def listen(event: AnswerEvent) -> None:
            heard[i] = event

        return listen

    temperatures = [how.temperatures[(first + i) % len(how.temperatures)] for i in range(len(prompts))]
    for i, (ids, temperature) in enumerate(zip(prompts, temperatures, strict=True)):
        seed = how.seed * 1_000_003 + first + i
        engine.add(list(ids), listening(i), max_tokens=how.new, temperature=temperature, seed=seed)
    while engine.step():
        pass
    rows: list[tuple[list[int], int, bool]] = []
    for i, ids in enumerate(prompts):
        generation = piece_or_raise(heard[i]).generation
        assert generation is not None
        rows.append(([*ids, *generation.token_ids], len(ids), temperatures[i] == 0.0))
    return rows


def _padded(rows: Sequence[tuple[list[int], int, bool]]) -> dict[str, Tensor]:
    longest = max(len(ids) for ids, _, _ in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.int32)
    for i, (row, _, _) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return {
        "ids": ids,
        "begun": torch.tensor([begun for _, begun, _ in rows]),
        "lengths": torch.tensor([len(row) for row, _, _ in rows]),
        "greedy": torch.tensor([greedy for _, _, greedy in rows]),
    }


def _joined(pieces: Sequence[dict[str, Tensor]]) -> TargetAnswers:
    longest = max(piece["ids"].shape[1] for piece in pieces)
    ids = [torch.nn.functional.pad(p["ids"].long(), (0, longest - p["ids"].shape[1])) for p in pieces]
    others: dict[str, Any] = {
        name: torch.cat([piece[name] for piece in pieces]) for name in ("begun", "lengths", "greedy")
    }
    return TargetAnswers(torch.cat(ids), **others)


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a piece, whole or not at all."""
    partial = path.with_suffix(".partial")
    try:
        save_file(tensors, partial)
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        partial.unlink(missing_ok=True)
        raise EngineError(
            f"{path} could not be written ({error}); make room or name another work folder, and give the "
            "same command again: what was sampled before is kept."
        ) from error
