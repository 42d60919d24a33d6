"""Tiny tokenizers, and copies of a checkpoint with another tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers


def lettered(letters: str) -> Tokenizer:
    """Return a tokenizer with one token per letter, in this order."""
    tokenizer = Tokenizer(
        models.WordLevel({letter: i for i, letter in enumerate(letters)}, unk_token=letters[0])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def trained(texts: list[str], vocab: int) -> Tokenizer:
    """Return a byte-level BPE tokenizer trained on these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def copy_with_other_tokenizer(source: Path, folder: Path, *, merges: int | None = None) -> Path:
    """Write a copy of a model with its ids in reverse order and only the first merges of its tokenizer.

    The copy is not trained. It gives the same predictions as the source for texts that both tokenize alike.
    """
    shutil.copytree(source, folder)
    raw = json.loads((source / "tokenizer.json").read_text())
    special = {each["id"] for each in raw["added_tokens"]}
    vocab, rules = raw["model"]["vocab"], raw["model"]["merges"]
    gone = set()
    if merges is not None:
        pairs = [rule if isinstance(rule, list) else rule.split(" ") for rule in rules]
        kept = {"".join(pair) for pair in pairs[:merges]}
        gone = {"".join(pair) for pair in pairs[merges:]} - kept
        raw["model"]["merges"] = rules[:merges]
    left = [
        (token, old) for token, old in sorted(vocab.items(), key=lambda item: item[1]) if token not in gone
    ]
    ordinary = [old for _, old in left if old not in special]
    order = [*sorted(special), *reversed(ordinary)]
    new = {old: i for i, old in enumerate(order)}
    raw["model"]["vocab"] = {token: new[old] for token, old in left}
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    weights = load_file(source / "model.safetensors")
    rows = torch.tensor(order)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in weights:
            weights[name] = weights[name][rows].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": len(order)}))
    return folder
