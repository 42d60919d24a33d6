"""Checkpoints of tiny random models, engines for them, and sequences that a test runs step by step."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from specclient_local.engine.engine import Engine
from specclient_local.request.params import SamplingParams
from specclient_local.request.sequence import PredictionProgress, RandomStream, Sequence
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CHAT = (
    "{% for m in messages %}<|bos|>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def byte_tokenizer(vocab: int = 300) -> Tokenizer:
    """Return a byte-level BPE tokenizer with 256 bytes, two special tokens and a few merges."""
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
    """Return a tokenizer with one token per letter, for vocabularies small enough to enumerate."""
    return Tokenizer(models.WordLevel({chr(97 + i): i for i in range(vocab)}, unk_token="a"))


def letter_shape(vocab: int) -> dict[str, Any]:
    """Return the settings of :func:`write_checkpoint` for a model over so many letters, without an end."""
    return {
        "vocab_size": vocab,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "eos_token_id": None,
        "bos_token_id": None,
        "tokenizer": letter_tokenizer(vocab),
    }


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


_ids = itertools.count()


def load(target, draft=None, **options):
    return Engine.load(target, draft, **({"threads": 1, "slots": 2} | options))


def sequence(tokens, *, slot=0, method="draft", limit=None, eos=(), predicted=None, **params):
    """Return a sequence that occupies a slot, for a speculator without an engine."""
    checked = SamplingParams(**params)
    return Sequence(
        id=next(_ids),
        tokens=list(tokens),
        prompt_tokens=len(tokens),
        params=checked,
        method=method,
        limit=limit or checked.max_tokens,
        eos=frozenset(eos),
        random=RandomStream(checked.seed),
        prediction=None if predicted is None else PredictionProgress(list(predicted)),
        slot=slot,
    )


def run(speculator, request):
    """Prefill a sequence, run it to its end and return its new tokens; the slot's cache is kept."""
    while not speculator.prefill(request):
        pass
    while request.finish_reason is None:
        (won,) = speculator.round([request])
        if isinstance(won, Exception):
            raise won
        for token in won.tokens:
            request.take(token)
            if request.finish_reason:
                break
    return request.new_tokens


class Branches:
    """A random source that replays a list of outcomes and then takes the first possible one each time.

    Attributes:
        taken: the index and the number of possible outcomes of each choice.
        weight: the probability of all choices together.
    """

    def __init__(self, replay):
        self.replay, self.taken, self.weight = list(replay), [], 1.0

    def _choose(self, options):
        options = [(outcome, p) for outcome, p in options if p > 0.0]
        at = self.replay[len(self.taken)] if len(self.taken) < len(self.replay) else 0
        self.taken.append((at, len(options)))
        self.weight *= options[at][1]
        return options[at][0]

    def accept(self, probability):
        return self._choose([(True, probability), (False, 1.0 - probability)])

    def draw(self, distribution):
        if isinstance(distribution, int):
            return distribution
        return self._choose(list(enumerate(distribution)))


def enumerate_outcomes(run):
    """Yield (weight, result) for every sequence of outcomes of ``run(chooser)``."""
    replay: list[int] = []
    while True:
        chooser = Branches(replay)
        result = run(chooser)
        yield chooser.weight, result
        taken = chooser.taken
        while taken and taken[-1][0] == taken[-1][1] - 1:
            taken.pop()
        if not taken:
            return
        replay = [at for at, _ in taken[:-1]] + [taken[-1][0] + 1]


def distribution_of_rounds(speculator, prompt, **params):
    """Return the exact distribution of a speculator's first two tokens.

    Returns:
        The probability of each pair (first, second), and the number of drafted tokens accepted overall.
    """
    pair_probabilities: dict[tuple[int, int], float] = {}
    kept = 0

    def answer(choose):
        nonlocal kept
        request = sequence(prompt, max_tokens=3, **params)
        request.random = choose
        while not speculator.prefill(request):
            pass
        while len(request.new_tokens) < 2:
            (won,) = speculator.round([request])
            if isinstance(won, Exception):
                raise won
            request.tokens += won.tokens
        kept += request.counts.accepted
        speculator.end(request)
        return request.new_tokens

    for weight, (first, second, *_) in enumerate_outcomes(answer):
        pair_probabilities[first, second] = pair_probabilities.get((first, second), 0.0) + weight
    return pair_probabilities, kept


def as_table(pair_probabilities, vocab):
    """Return a distribution of two tokens as an array, [vocab, vocab]."""
    table = np.zeros((vocab, vocab))
    for pair, weight in pair_probabilities.items():
        table[pair] = weight
    return table


def noisy_copy(source: Path, folder: Path, noise: float) -> Path:
    """Write a copy of a checkpoint with noise added to its weights, as a draft that is mostly right."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    torch.manual_seed(9)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * noise)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder
