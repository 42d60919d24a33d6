"""Turn a few numbers into real checkpoints on disk, written by transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

Checkpoint = Callable[..., Path]

CHAT = (
    "{% for m in messages %}<|bos|>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def byte_tokenizer(vocab: int = 300) -> Tokenizer:
    """A byte-level BPE: 256 bytes, two special tokens, a few merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=["<|bos|>", "<|eos|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1)\n"] * 4, trainer
    )
    return tokenizer


def letter_tokenizer(vocab: int) -> Tokenizer:
    """One letter a token: for vocabularies small enough to enumerate."""
    return Tokenizer(models.WordLevel({chr(97 + i): i for i in range(vocab)}, unk_token="a"))


def write_checkpoint(
    folder: Path, *, kind: str = "llama", seed: int = 0, spread: float = 0.4, **overrides: Any
) -> Path:
    """Write a random checkpoint; ``spread`` is the standard deviation of its weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": None,
    }
    tokenizer = overrides.pop("tokenizer", None)
    config = AutoConfig.for_model(kind, **(shape | overrides))
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if "norm" in name and "bias" not in name else 0.0, spread)
    model.save_pretrained(folder)
    (tokenizer or byte_tokenizer(config.vocab_size)).save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "chat_template": CHAT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Checkpoint:
    """Write a checkpoint once per distinct set of arguments and return its folder."""
    made: dict[str, Path] = {}

    def make(**options: Any) -> Path:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = write_checkpoint(tmp_path_factory.mktemp("checkpoint"), **options)
        return made[key]

    return make


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tiny models gain nothing from threads, and the figures must not depend on them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
