"""Turn prompts and a frozen target into what its heads learn from: its answers and their hidden states.

Both come out of the same passes, once, and are kept on disk in pieces: rows of one length each. A run that is
killed goes on with the first piece that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from specclient.errors import ConfigurationError
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.pass_input import SlotInput


@dataclass(frozen=True, slots=True)
class HeadsTrainingRows:
    """Some rows of what was collected.

    Attributes:
        ids: ``[B, L]`` tokens.
        lengths: ``[B]`` how many of them count: what stands behind an end token was never meant.
        features: ``[B, L, depths, hidden]`` the target's hidden states, the last depth its last layer's.
        best: ``[B, L]`` what the target would most likely say after each.
    """

    ids: Tensor
    lengths: Tensor
    features: Tensor
    best: Tensor


class CollectedAnswers:
    """What was collected, read row by row.

    Args:
        paths: of the pieces.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._opened: list[Any] = [safe_open(path, framework="pt") for path in paths]
        counts = [file.get_slice("ids").get_shape()[0] for file in self._opened]
        self._where = [(i, row) for i, count in enumerate(counts) for row in range(count)]

    def __len__(self) -> int:
        return len(self._where)

    def rows(self, numbers: Sequence[int], device: torch.device) -> HeadsTrainingRows:
        """Read the rows with these numbers."""
        names = ("ids", "lengths", "features", "best")
        parts = [[self._row(name, number) for number in numbers] for name in names]
        ids, lengths, features, best = (torch.cat(part).to(device) for part in parts)
        return HeadsTrainingRows(ids.long(), lengths, features, best.long())

    def tokens(self) -> Iterator[Tensor]:
        """Yield the tokens of each piece, ``[R, L]``."""
        for file in self._opened:
            yield file.get_tensor("ids").long()

    def _row(self, name: str, number: int) -> Tensor:
        piece, row = self._where[number]
        found: Tensor = self._opened[piece].get_slice(name)[row : row + 1]
        return found


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """How answers are collected.

    Attributes:
        prompt: tokens of each prompt; longer ones are cut, shorter ones left out.
        new: tokens of each answer.
        wander: tokens sampled at the beginning of an answer that is greedy from there on: they lead away
            from what the target remembers of its training text.
        seed: of what is sampled.
    """

    prompt: int = 32
    new: int = 96
    wander: int = 16
    seed: int = 0


def collect(
    target: HiddenStateRunner,
    prompts: Sequence[Sequence[int]],
    folder: Path,
    how: CollectionSettings,
    *,
    greedy: bool = False,
    told: Callable[[int, int], None] = lambda *_: None,
) -> CollectedAnswers:
    """Let the target answer prompts, a batch of its slots at a time, and keep what it went through.

    Three batches in four are greedy, the others sampled at temperature 1: a draft is asked for both, and
    learns either.

    Args:
        target: all of whose slots are free.
        prompts: token ids.
        folder: where the pieces go; those there already are kept.
        how: see :class:`CollectionSettings`.
        greedy: whether every answer is greedy from its first token on, as for measuring.
        told: is told how many prompts are answered, and of how many.

    Raises:
        ConfigurationError: no prompt is long enough.
    """
    usable = [list(ids[: how.prompt]) for ids in prompts if len(ids) >= how.prompt]
    if not usable:
        raise ConfigurationError(
            f"no prompt has {how.prompt} tokens; give longer texts, or ask for shorter prompts."
        )
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for i, begin in enumerate(range(0, len(usable), target.slots)):
        batch = usable[begin : begin + target.slots]
        path = folder / f"piece-{i:05d}.safetensors"
        if not path.exists():
            wander = 0 if greedy else how.new if i % 4 == 3 else how.wander
            dice = torch.Generator(target.device).manual_seed(how.seed * 1_000_003 + i)
            _write(path, _answered(target, batch, how.new, wander, dice))
        paths.append(path)
        told(begin + len(batch), len(usable))
    return CollectedAnswers(paths)


@torch.inference_mode()
def _answered(
    target: HiddenStateRunner, prompts: Sequence[list[int]], new: int, wander: int, dice: torch.Generator
) -> dict[str, Tensor]:
    """Answer a batch in step, the first ``wander`` tokens sampled and then greedily."""
    slots = range(len(prompts))
    for slot, prompt in enumerate(prompts):
        target.prefill(slot, prompt[:-1])
    ids = [list(prompt) for prompt in prompts]
    for step in range(new + 1):  # the last pass is for the last token's own states
        logits = torch.cat(target.score_all([SlotInput(slot, ids[slot][-1:]) for slot in slots]))
        if step == new:
            break
        if step < wander:
            chosen = torch.multinomial(torch.softmax(logits.float(), -1), 1, generator=dice)[:, 0]
        else:
            chosen = logits.argmax(-1)
        for row, token in zip(ids, chosen.tolist(), strict=True):
            row.append(token)
    length, begun = len(ids[0]), len(prompts[0])
    features = torch.stack([target.features(slot, 0, length, target.layers) for slot in slots])
    for slot in slots:
        target.truncate(slot, 0)
    ends = [next((i + 1 for i in range(begun, length) if row[i] in target.config.eos), length) for row in ids]
    return {
        "ids": torch.tensor(ids, dtype=torch.int32),
        "lengths": torch.tensor(ends, dtype=torch.int32),
        "features": features.to("cpu", torch.bfloat16),
        "best": torch.stack([_likeliest(target, row) for row in features[:, :, -1]]).to("cpu", torch.int32),
    }


def _likeliest(target: HiddenStateRunner, last: Tensor) -> Tensor:
    """Return what the target says after last states ``[L, hidden]``: ``[L]`` tokens."""
    weights = target.weights
    states = F.rms_norm(last, last.shape[-1:], weights.norm, target.config.norm_eps)
    return F.linear(states, weights.head).argmax(-1)


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a piece, whole or not at all."""
    partial = path.with_suffix(".partial")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial)
    partial.replace(path)
