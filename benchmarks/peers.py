"""transformers' decoding methods for a checkpoint pair, as references for the engine."""

from __future__ import annotations

import copy
import json
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig

PLAIN, ASSISTED, DEFAULT, LOOKUP = "plain", "assisted, K=4", "assisted, default", "prompt lookup"


@dataclass(frozen=True)
class PeerRun:
    """One run over all prompts: elapsed seconds, and the new tokens of each answer."""

    seconds: float
    token_ids: list[list[int]]

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.token_ids)) / self.seconds


def endless(checkpoint: Path, folder: Path) -> Path:
    """Copy a checkpoint without its end token, so that all answers have the same length."""
    folder.mkdir(parents=True)
    for path in checkpoint.iterdir():
        if path.name not in ("config.json", "generation_config.json"):
            shutil.copyfile(path, folder / path.name)
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((checkpoint / name).read_text())
        (folder / name).write_text(json.dumps({**settings, "eos_token_id": None}))
    return folder


def quiet() -> None:
    """Silence warnings and progress bars of transformers and of its imports; errors are still shown."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(torchao|transformers)(\.|$)")


class Peers:
    """A pair decoded by transformers: greedy, in float32, with batch size 1.

    Args:
        target: checkpoint folder of the target.
        draft: checkpoint folder of the draft.
        prompts: token ids; each method answers all of them, one after the other.
        new: tokens per answer.
    """

    def __init__(self, target: Path, draft: Path, prompts: Sequence[Sequence[int]], new: int) -> None:
        self.prompts, self.new = prompts, new
        self.target = _load(target)
        self.draft = _load(draft)
        self._default = copy.deepcopy(self.draft.generation_config)

    @property
    def ways(self) -> dict[str, Callable[[], PeerRun]]:
        """The timed functions of all decoding methods, by name."""
        return {
            PLAIN: self._run,
            ASSISTED: lambda: self._assisted(
                num_assistant_tokens=4,
                num_assistant_tokens_schedule="constant",
                assistant_confidence_threshold=0.0,
            ),
            DEFAULT: self._assisted,
            LOOKUP: lambda: self._run(prompt_lookup_num_tokens=10),
        }

    def _assisted(self, **settings: Any) -> PeerRun:
        config: GenerationConfig = copy.deepcopy(self._default)
        config.update(**settings)
        self.draft.generation_config = config
        return self._run(assistant_model=self.draft)

    def _run(self, **options: Any) -> PeerRun:
        answers: list[list[int]] = []
        begun = time.perf_counter()
        for ids in self.prompts:
            inputs = torch.tensor([list(ids)])
            output = self.target.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=self.new,
                do_sample=False,
                pad_token_id=0,
                **options,
            )
            answers.append(output[0, len(ids) :].tolist())
        return PeerRun(time.perf_counter() - begun, answers)

    @torch.inference_mode()
    def margin(self, tokens: Sequence[int]) -> float:
        """Return the distance between the two highest logits of the next token."""
        first, second = self.target(torch.tensor([list(tokens)])).logits[0, -1].topk(2).values.tolist()
        return float(first - second)


def _load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
