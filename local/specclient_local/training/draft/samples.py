"""Training data of drafts: prompts cut from texts, and the target's answers to them, kept on disk.

The engine answers prompts in batches. Each answer has its own seed, so an interruption does not change the
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from specclient.errors import ConfigurationError
from specclient_local.engine.answer import AnswerEvent, piece_or_raise
from specclient_local.engine.engine import Engine
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.training.work_folder import write_tensors

_PIECE = 64
"""Answers per file, and so the maximum that an interruption loses."""

_LAST_LINES = 3
"""Number of lines at the end of a text at which no prompt begins."""


@dataclass(frozen=True, slots=True)
class AnswerSampling:
    """The settings by which prompts are cut and the target's answers are sampled.

    Attributes:
        prompt: maximum tokens per prompt; longer prompts are cut.
        new: maximum tokens per answer.
        temperatures: temperatures of the answers, in turn; by default half of the answers are greedy.
        slots: answers generated at a time.
        seed: seed of prompts and answers.
    """

    prompt: int = 64
    new: int = 192
    temperatures: tuple[float, ...] = (0.0, 1.0)
    slots: int = 32
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TargetAnswers:
    """Answers of the target, each after its prompt.

    Attributes:
        ids: ``[N, L]`` int64 tokens, padded with 0.
        begun: ``[N]`` position of each answer's first token.
        lengths: ``[N]`` number of tokens of prompt and answer.
        greedy: ``[N]`` whether the answer is greedy; else it is sampled.
    """

    ids: Tensor
    begun: Tensor
    lengths: Tensor
    greedy: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, numbers: Sequence[int]) -> TargetAnswers:
        """Return the rows with these numbers, padded to the longest of them."""
        index = torch.as_tensor(numbers)
        lengths = self.lengths[index]
        ids = self.ids[index, : int(lengths.max())]
        return TargetAnswers(ids, self.begun[index], lengths, self.greedy[index])

    def batches(self, size: int) -> Iterator[TargetAnswers]:
        """Yield all rows in batches of ``size``."""
        for first in range(0, len(self), size):
            yield self.rows(range(first, min(first + size, len(self))))


def cut_prompts(
    tokenizer: Tokenizer, texts: Sequence[str], count: int, sampling: AnswerSampling, *, whole: bool
) -> list[list[int]]:
    """Return prompts made from texts; the same seed gives the same prompts.

    Args:
        tokenizer: the target's.
        texts: prompts, or files to cut prompts from.
        count: number of prompts. Texts that are prompts are repeated as often as needed; sampled answers to
            the same prompt differ.
        sampling: see :class:`AnswerSampling`.
        whole: whether each text is a prompt. Otherwise each prompt begins at a random line, uniformly over
            the lines of all texts.

    Raises:
        ConfigurationError: no text has a token, or no text is long enough to cut a prompt from.
    """
    rng = np.random.default_rng(sampling.seed)
    if whole:
        encoded = [ids[: sampling.prompt] for text in texts if (ids := tokenizer.encode(text))]
        order = rng.permutation(len(encoded))
        prompts = [encoded[order[i % len(order)]] for i in range(count)] if encoded else []
    else:
        files = [text.splitlines(keepends=True) for text in texts]
        starts = [
            (file, line)
            for file, lines in enumerate(files)
            for line in range(max(1, len(lines) - _LAST_LINES))
        ]
        prompts = []
        for number in rng.integers(len(starts), size=4 * count).tolist() if starts else ():
            file, line = starts[number]
            ids = tokenizer.encode("".join(files[file][line : line + sampling.prompt]))[: sampling.prompt]
            if len(prompts) < count and len(ids) >= min(8, sampling.prompt):
                prompts.append(ids)
    if not prompts:
        raise ConfigurationError(
            f"no prompt could be made of {len(texts)} texts; give texts of a few lines, or prompts."
        )
    return prompts


def sample(
    engine: Callable[[], Engine],
    prompts: Sequence[Sequence[int]],
    folder: Path,
    sampling: AnswerSampling,
    *,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> TargetAnswers:
    """Let the target answer prompts, and save the answers. Answers that are already saved are read.

    Args:
        engine: loads the target. It is called only if a file is missing; the engine is closed afterwards.
        prompts: token ids.
        folder: folder for the files, used only with these prompts and settings.
        sampling: see :class:`AnswerSampling`.
        on_progress: called with the number of answered prompts and their total.

    Raises:
        ContextOverflowError: prompt and answer exceed the target's context.
        EngineError: the engine failed, or the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pieces: list[dict[str, Tensor]] = []
    loaded: Engine | None = None
    try:
        for i, begin in enumerate(range(0, len(prompts), _PIECE)):
            path = folder / f"piece-{i:05d}.safetensors"
            if not path.exists():
                loaded = loaded or engine()
                rows = _answers(loaded, prompts[begin : begin + _PIECE], begin, sampling)
                write_tensors(path, _padded(rows))
            pieces.append(load_file(path))
            on_progress(min(begin + _PIECE, len(prompts)), len(prompts))
    finally:
        if loaded is not None:
            loaded.close()
    return _joined(pieces)


def _answers(
    engine: Engine, prompts: Sequence[Sequence[int]], first: int, sampling: AnswerSampling
) -> list[tuple[list[int], int, bool]]:
    """Answer prompts.

    Args:
        engine: the target.
        prompts: token ids.
        first: number of the first prompt among all prompts; it determines seeds and temperatures.
        sampling: see :class:`AnswerSampling`.

    Returns:
        For each prompt the tokens of prompt and answer, the position of the answer's first token, and whether
        the answer is greedy.
    """
    last_events: dict[int, AnswerEvent] = {}

    def listener(i: int) -> Callable[[AnswerEvent], None]:
        def listen(event: AnswerEvent) -> None:
            last_events[i] = event

        return listen

    choices = sampling.temperatures
    temperatures = [choices[(first + i) % len(choices)] for i in range(len(prompts))]
    for i, (ids, temperature) in enumerate(zip(prompts, temperatures, strict=True)):
        seed = sampling.seed * 1_000_003 + first + i
        engine.add(list(ids), listener(i), max_tokens=sampling.new, temperature=temperature, seed=seed)
    while engine.step():
        pass
    rows: list[tuple[list[int], int, bool]] = []
    for i, ids in enumerate(prompts):
        generation = piece_or_raise(last_events[i]).generation
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
