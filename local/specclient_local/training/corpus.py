"""Training and held-out text from the running Python's standard library, its tokenizer, and token windows.

Every Python has the standard library, and its licence (PSF-2.0) permits training on it. Whole modules are
split by a hash of their name, so that a module is on the same side in every Python version and on every
machine.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

Split = Literal["train", "heldout"]

BOS, EOS, PAD = "<|bos|>", "<|eos|>", "<|pad|>"

#: Excluded: tests (absent from many distributions), generated tables, and machine-specific files.
EXCLUDED_PARTS = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data", "__pycache__"}
)
EXCLUDED_PREFIXES = ("_sysconfigdata", "config-", "lib-dynload", "__phello__")

#: Splits words, numbers and punctuation similarly to cl100k, but each newline and each indentation is a piece
#: of its own. The last piece of a prompt that ends after a colon, newline or indentation then also occurs at
#: this place in training text.
PIECES = (
    r"\r?\n|(?<=\n)[ \t]+|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+"
    r"|[^\S\r\n]+(?!\S)|\s+"
)


@dataclass(frozen=True)
class SourceModule:
    """One source file of the standard library: its dotted name and its text."""

    name: str
    text: str

    @property
    def split(self) -> Split:
        """One module in ten is held out, chosen by its name alone."""
        return "heldout" if hashlib.sha256(self.name.encode()).digest()[0] % 10 == 0 else "train"


def standard_library(root: Path | None = None) -> Iterator[SourceModule]:
    """Yield the standard library's modules in name order.

    Args:
        root: a ``Lib`` folder; the running interpreter's own by default.
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if EXCLUDED_PARTS.intersection(parts) or any(p.startswith(EXCLUDED_PREFIXES) for p in parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # lib2to3 ships files that are not valid source on purpose
        if text.strip():
            yield SourceModule(".".join(parts), text.replace("\r\n", "\n"))


def split_modules(split: Split, root: Path | None = None) -> list[SourceModule]:
    """Return one side of the split, in name order."""
    return [m for m in standard_library(root) if m.split == split]


def train_tokenizer(texts: Iterable[str], vocab_size: int = 4096) -> Tokenizer:
    """Learn a byte-level BPE (no unknown token: every byte is in the vocabulary).

    Args:
        texts: the training side only.
        vocab_size: pieces in all, the three special ones included.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


@dataclass(frozen=True)
class TokenArray:
    """A split as one array of token ids.

    Attributes:
        ids: ``[N]`` uint16, the modules one after another, each followed by the end token.
        starts: ``[M]`` int64, the indices in ``ids`` of the first token of each line.
        bos: id of the start token.
    """

    ids: np.ndarray
    starts: np.ndarray
    bos: int

    def windows(self, rng: np.random.Generator, batch: int, length: int) -> np.ndarray:
        """Draw ``[batch, length + 1]`` ids: in each row the start token, then text from a random line on.

        Rows begin at lines, not only at modules, so that the model learns to continue a prompt such as
        ``def f(x):``.
        """
        usable = self.starts[self.starts < len(self.ids) - length]
        begin = rng.choice(usable, size=batch)
        rows = self.ids[begin[:, None] + np.arange(length)[None, :]].astype(np.int64)
        return np.concatenate([np.full((batch, 1), self.bos, dtype=np.int64), rows], axis=1)


def encode_split(tokenizer: Tokenizer, split: list[SourceModule]) -> TokenArray:
    """Encode modules into one array; see :class:`TokenArray`."""
    vocabulary = tokenizer.get_vocab()
    eos, bos = vocabulary[EOS], vocabulary[BOS]
    ids: list[int] = []
    starts: list[int] = []
    for module in split:
        encoded = tokenizer.encode(module.text, add_special_tokens=False)
        offset, at_line = len(ids), True
        for i, (begin, end) in enumerate(encoded.offsets):
            if at_line:
                starts.append(offset + i)
            at_line = module.text[begin:end].endswith("\n")
        ids.extend(encoded.ids)
        ids.append(eos)
    return TokenArray(np.asarray(ids, dtype=np.uint16), np.asarray(starts, dtype=np.int64), bos)
