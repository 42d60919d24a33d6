"""Train the bundled pair on the standard library: tokenizer, target, draft and model card, in one command.

``python -m specclient_local.training.recipe`` (``make bundled-pair``). An interrupted run resumes from
``build/bundled-pair``. It takes a little over an hour on two idle CPU cores.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from specclient_local.model.config import BUNDLED
from specclient_local.training.bundled_distillation import continuations, distill, greedy_agreement
from specclient_local.training.corpus import (
    BOS,
    EOS,
    PAD,
    TokenArray,
    encode_split,
    split_modules,
    train_tokenizer,
)
from specclient_local.training.model_card import CHAT_TEMPLATE, write_card
from specclient_local.training.pretrain import CONTEXT, heldout_loss, llama, pretrain
from specclient_local.training.training_loop import TrainingSchedule


@dataclass(frozen=True)
class BundledPairRecipe:
    """The settings of the bundled pair's training."""

    vocab: int = 4096
    target: tuple[int, int, int, int] = (7, 320, 5, 896)  # layers, width, heads, feed-forward
    draft: tuple[int, int, int, int] = (2, 160, 5, 576)
    target_schedule: TrainingSchedule = TrainingSchedule(steps=800, lr=4e-3)
    draft_schedule: TrainingSchedule = TrainingSchedule(steps=1000, lr=5e-3)
    continuations: int = 2048
    polish_schedule: TrainingSchedule = TrainingSchedule(steps=700, lr=2.5e-3)
    polish_continuations: int = 1536
    polish_wander: int = 24
    seed: int = 0


def main() -> None:
    """Run the recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BUNDLED)
    parser.add_argument("--work", type=Path, default=Path("build/bundled-pair"))
    parser.add_argument(
        "--stdlib", type=Path, default=None, help="a Lib folder; the running Python's by default"
    )
    args = parser.parse_args()
    make_bundled_pair(BundledPairRecipe(), args.out, args.work, args.stdlib)


def make_bundled_pair(
    recipe: BundledPairRecipe, out: Path, work: Path, stdlib: Path | None = None
) -> dict[str, Any]:
    """Train the pair and write it to ``out``; return the figures of the model card."""
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    train, heldout = split_modules("train", stdlib), split_modules("heldout", stdlib)
    tokenizer = train_tokenizer((m.text for m in train), recipe.vocab)
    data, unseen = encode_split(tokenizer, train), encode_split(tokenizer, heldout)

    target = _new(recipe.target, recipe, tokenizer)
    target_loss = pretrain(target, data, recipe.target_schedule, checkpoint=work / "target.pt", report=_say)
    _round_to_bf16(target)

    torch.manual_seed(recipe.seed + 1)
    draft = _new(recipe.draft, recipe, tokenizer)
    own = _saved(
        work / "continuations.pt", lambda: continuations(target, data, recipe.continuations, report=_say)
    )
    distill(draft, target, data, own, recipe.draft_schedule, checkpoint=work / "draft.pt", report=_say)
    own = _saved(
        work / "wandered.pt",
        lambda: continuations(
            target, data, recipe.polish_continuations, wander=recipe.polish_wander, seed=6, report=_say
        ),
    )
    draft_loss = distill(
        draft, target, data, own, recipe.polish_schedule, seed=4, checkpoint=work / "polish.pt", report=_say
    )
    _round_to_bf16(draft)

    figures = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "modules": {"train": len(train), "heldout": len(heldout)},
        "tokens": {"train": len(data.ids), "heldout": len(unseen.ids)},
        "target": _figures(target, target_loss, heldout_loss(target, unseen), recipe.target_schedule),
        "draft": _figures(
            draft, draft_loss, heldout_loss(draft, unseen), recipe.draft_schedule, recipe.polish_schedule
        ),
        "greedy": _agreement(draft, target, unseen),
    }
    _write(target, tokenizer, out / "target")
    _write(draft, tokenizer, out / "draft")
    write_card(out, figures)
    _say(json.dumps(figures))
    return figures


def _new(
    shape: tuple[int, int, int, int], recipe: BundledPairRecipe, tokenizer: Tokenizer
) -> LlamaForCausalLM:
    ids = tokenizer.get_vocab()
    return llama(*shape, vocab=recipe.vocab, bos=ids[BOS], eos=ids[EOS])


def _round_to_bf16(model: torch.nn.Module) -> None:
    """Round weights to bfloat16, as they are shipped, so that the draft learns from the shipped target."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())


def _saved(path: Path, make_ids: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return the tensor that an earlier run saved in ``path``, or create and save it."""
    if path.exists():
        return torch.load(path, weights_only=True)  # type: ignore[no-any-return]
    ids = make_ids()
    torch.save(ids, path)
    return ids


def _agreement(draft: LlamaForCausalLM, target: LlamaForCausalLM, unseen: TokenArray) -> dict[str, float]:
    ids = continuations(target, unseen, 192, prompt=64, new=128, batch=192, seed=5, report=_say)
    first, tokens = greedy_agreement(draft, ids, prompt=64)
    return {"first_accepted": round(first, 4), "tokens_per_round": round(tokens, 3)}


def _figures(
    model: LlamaForCausalLM, loss: float, unseen: float, *schedules: TrainingSchedule
) -> dict[str, Any]:
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": " + ".join(str(schedule.steps) for schedule in schedules),
        "lr": ", ".join(str(schedule.lr) for schedule in schedules),
        "train_loss": round(loss, 3),
        "heldout_loss": round(unseen, 3),
    }


def _write(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    model.bfloat16().save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - this is a command


if __name__ == "__main__":
    main()
