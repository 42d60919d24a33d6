"""Training data of heads: the target's answers and its hidden states, collected once and kept on disk.

Answers and hidden states come from the same passes. They are saved in files of one batch each, so that an
interrupted run resumes with the first file that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F

from specclient.errors import ConfigurationError
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.training.work_folder import write_tensors


@dataclass(frozen=True, slots=True)
class HeadsTrainingRows:
    """A batch of collected answers, one per row.

    Attributes:
        ids: ``[B, L]`` tokens of prompt and answer.
        lengths: ``[B]`` number of valid tokens; those after an end token are ignored.
        features: ``[B, L, depths, hidden]`` the target's hidden states; the last depth is its last layer.
        best: ``[B, L]`` the target's most likely next token after each position.
    """

    ids: Tensor
    lengths: Tensor
    features: Tensor
    best: Tensor


class CollectedAnswers:
    """Collected answers on disk, read row by row.

    Args:
        paths: the files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: list[Any] = [safe_open(path, framework="pt") for path in paths]
        counts = [file.get_slice("ids").get_shape()[0] for file in self._files]
        self._locations = [(file, row) for file, count in enumerate(counts) for row in range(count)]

    def __len__(self) -> int:
        return len(self._locations)

    def rows(self, numbers: Sequence[int], device: torch.device) -> HeadsTrainingRows:
        """Return the rows with these numbers, counted from 0 over all files."""
        names = ("ids", "lengths", "features", "best")
        parts = [[self._row(name, number) for number in numbers] for name in names]
        ids, lengths, features, best = (torch.cat(part).to(device) for part in parts)
        return HeadsTrainingRows(ids.long(), lengths, features, best.long())

    def tokens(self) -> Iterator[Tensor]:
        """Yield the tokens of each file, ``[R, L]``."""
        for file in self._files:
            yield file.get_tensor("ids").long()

    def _row(self, name: str, number: int) -> Tensor:
        file, row = self._locations[number]
        values: Tensor = self._files[file].get_slice(name)[row : row + 1]
        return values


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """Settings of the collection of answers.

    Attributes:
        prompt: tokens per prompt; longer prompts are cut, shorter ones are left out.
        new: tokens per answer.
        wander: number of sampled tokens at the beginning of an otherwise greedy answer. They lead away from
            memorized training text.
        seed: seed of the sampling.
    """

    prompt: int = 32
    new: int = 96
    wander: int = 16
    seed: int = 0


def cut_line_prompts(
    tokenizer: Tokenizer, texts: Sequence[str], count: int, *, tokens: int, seed: int
) -> list[list[int]]:
    """Return up to ``count`` prompts that begin at random lines of random texts.

    Args:
        tokenizer: the target's.
        texts: files to cut prompts from.
        count: number of prompts.
        tokens: tokens per prompt.
        seed: seed of the choice of texts and lines; the same seed gives the same prompts.
    """
    rng = np.random.default_rng(seed)
    lines = [text.splitlines(keepends=True) for text in texts]
    prompts: list[list[int]] = []
    for _ in range(20 * count):
        if len(prompts) == count or not lines:
            break
        chosen = lines[int(rng.integers(len(lines)))]
        start = int(rng.integers(max(1, len(chosen) - 10)))
        ids = tokenizer.encode("".join(chosen[start : start + tokens]))[:tokens]
        if len(ids) == tokens:
            prompts.append(ids)
    return prompts


def collect(
    target: HiddenStateRunner,
    prompts: Sequence[Sequence[int]],
    folder: Path,
    settings: CollectionSettings,
    *,
    greedy: bool = False,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> CollectedAnswers:
    """Let the target answer prompts, one batch of slots at a time, and save answers and hidden states.

    Three batches in four are greedy after their first ``wander`` tokens, the others are sampled at
    temperature 1, so that heads learn to draft for both.

    Args:
        target: a runner whose slots are all free.
        prompts: token ids.
        folder: folder for the files; existing files are kept.
        settings: see :class:`CollectionSettings`.
        greedy: whether every answer is greedy from its first token on, as for measurements.
        on_progress: called with the number of answered prompts and their total.

    Raises:
        ConfigurationError: no prompt is long enough.
        EngineError: a file cannot be written.
    """
    usable = [list(ids[: settings.prompt]) for ids in prompts if len(ids) >= settings.prompt]
    if not usable:
        raise ConfigurationError(
            f"no prompt has {settings.prompt} tokens; give longer texts, or ask for shorter prompts."
        )
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for i, start in enumerate(range(0, len(usable), target.slots)):
        batch = usable[start : start + target.slots]
        path = folder / f"piece-{i:05d}.safetensors"
        if not path.exists():
            sampled = 0 if greedy else settings.new if i % 4 == 3 else settings.wander
            generator = torch.Generator(target.device).manual_seed(settings.seed * 1_000_003 + i)
            tensors = _answer(target, batch, settings.new, sampled, generator)
            write_tensors(path, {name: tensor.contiguous() for name, tensor in tensors.items()})
        paths.append(path)
        on_progress(start + len(batch), len(usable))
    return CollectedAnswers(paths)


@torch.inference_mode()
def _answer(
    target: HiddenStateRunner,
    prompts: Sequence[list[int]],
    new: int,
    sampled: int,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Answer a batch in lockstep: the first ``sampled`` tokens are sampled, all others are greedy."""
    slots = range(len(prompts))
    for slot, prompt in enumerate(prompts):
        target.prefill(slot, prompt[:-1])
    ids = [list(prompt) for prompt in prompts]
    for step in range(new + 1):  # the last pass computes the hidden states of the last token
        logits = torch.cat(target.score_all([SlotInput(slot, ids[slot][-1:]) for slot in slots]))
        if step == new:
            break
        if step < sampled:
            chosen = torch.multinomial(torch.softmax(logits.float(), -1), 1, generator=generator)[:, 0]
        else:
            chosen = logits.argmax(-1)
        for row, token in zip(ids, chosen.tolist(), strict=True):
            row.append(token)
    length, start = len(ids[0]), len(prompts[0])
    features = torch.stack([target.features(slot, 0, length, target.layers) for slot in slots])
    for slot in slots:
        target.truncate(slot, 0)
    ends = [next((i + 1 for i in range(start, length) if row[i] in target.config.eos), length) for row in ids]
    return {
        "ids": torch.tensor(ids, dtype=torch.int32),
        "lengths": torch.tensor(ends, dtype=torch.int32),
        "features": features.to("cpu", torch.bfloat16),
        "best": torch.stack([_most_likely(target, row) for row in features[:, :, -1]]).to("cpu", torch.int32),
    }


def _most_likely(target: HiddenStateRunner, last: Tensor) -> Tensor:
    """Return the target's most likely next tokens ``[L]`` from its last hidden states ``[L, hidden]``."""
    weights = target.weights
    states = F.rms_norm(last, last.shape[-1:], weights.norm, target.config.norm_eps)
    return F.linear(states, weights.head).argmax(-1)
