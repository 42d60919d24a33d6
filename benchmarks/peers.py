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
class Told:
    """One time through all prompts: seconds elapsed, and the new tokens of each."""

    seconds: float
    token_ids: list[list[int]]

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.token_ids)) / self.seconds


def endless(checkpoint: Path, folder: Path) -> Path:
    """Copy a checkpoint into a model without an end token, so that answers have one length on all sides."""
    folder.mkdir(parents=True)
    for path in checkpoint.iterdir():
        if path.name not in ("config.json", "generation_config.json"):
            shutil.copyfile(path, folder / path.name)
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((checkpoint / name).read_text())
        (folder / name).write_text(json.dumps({**settings, "eos_token_id": None}))
    return folder


def quiet() -> None:
    """Keep transformers, and what it imports, from telling of defaults and deprecations: only errors."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(torchao|transformers)(\.|$)")


class Peers:
    """transformers' own decoding of a pair, greedy, float32, batch 1.

    Args:
        target, draft: checkpoint folders.
        prompts: token ids; each way answers all of them, one after the other.
        new: tokens of each answer.
    """

    def __init__(self, target: Path, draft: Path, prompts: Sequence[Sequence[int]], new: int) -> None:
        self.prompts, self.new = prompts, new
        self.target = _load(target)
        self.draft = _load(draft)
        self._default = copy.deepcopy(self.draft.generation_config)

    @property
    def ways(self) -> dict[str, Callable[[], Told]]:
        """Return each way of decoding by name."""
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

    def _assisted(self, **settings: Any) -> Told:
        config: GenerationConfig = copy.deepcopy(self._default)
        config.update(**settings)
        self.draft.generation_config = config
        return self._run(assistant_model=self.draft)

    def _run(self, **options: Any) -> Told:
        answers: list[list[int]] = []
        begun = time.perf_counter()
        for ids in self.prompts:
            given = torch.tensor([list(ids)])
            made = self.target.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=self.new,
                do_sample=False,
                pad_token_id=0,
                **options,
            )
            answers.append(made[0, len(ids) :].tolist())
        return Told(time.perf_counter() - begun, answers)

    @torch.inference_mode()
    def margin(self, tokens: Sequence[int]) -> float:
        """Return how far the likeliest next token's logit is above the second's, after these tokens."""
        first, second = self.target(torch.tensor([list(tokens)])).logits[0, -1].topk(2).values.tolist()
        return float(first - second)


def _load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
