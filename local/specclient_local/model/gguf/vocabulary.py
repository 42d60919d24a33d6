"""The tokenizer and the chat template of a GGUF file.

Two kinds of tokenizers are built: byte-level BPE (``gpt2``), whose way to split a text into words has a name
in the file, and SentencePiece's BPE (``llama``), whose merges follow from the scores of its pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import checkpoint_errors, one_line, shown
from specclient_local.model.gguf.header import GgufHeader, read_header

_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3, _QWEN2 = rf"{_ENGLISH}|\p{{N}}{{1,3}}|{_REST}", rf"{_ENGLISH}|\p{{N}}|{_REST}"
_SPLITS: Mapping[str, str] = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), _QWEN2),
}
"""The expression that splits a text into words, by the value of ``tokenizer.ggml.pre``."""

_GPT2, _DIGITS = ("gpt-2", "gpt2"), ("smollm", "starcoder", "refact", "codeshell")
"""Values for GPT-2's own expression, and for the same after each digit is split off."""

_COMPOSED = ("qwen2", "deepseek-r1-qwen")
"""Values of models whose texts are composed (NFC) first."""

_WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3")
"""Values of models whose vocabulary may have words that no merges make, and whose texts get a start token."""

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5  # types of tokens
_LONGEST_PIECE = 256
"""Characters of the longest piece that is split in search of its merges; published ones have up to 48."""

_SPACE = "\u2581"
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_KEY = "tokenizer.ggml."


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """A file's tokenizer.

    Attributes:
        library: the tokenizer.
        templates: chat templates by name; ``default`` is the one for chats without tools.
        special: texts of special tokens, by their names in transformers, such as ``bos_token``.
    """

    library: Library
    templates: Mapping[str, str] = field(default_factory=dict)
    special: Mapping[str, str] = field(default_factory=dict)


def read_vocabulary(path: Path) -> GgufVocabulary:
    """Build the tokenizer of a file.

    Raises:
        CheckpointError: the file has none, or one of an unsupported kind, or an invalid one.
    """
    header = read_header(path)
    tokens = header.value(f"{_KEY}tokens")
    with checkpoint_errors(path):
        try:
            library = _library(header, _checked(header, tokens))
        except CheckpointError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(
                f"{path}: its tokenizer is invalid ({one_line(error)}); download it again."
            ) from error
    special = {
        name: tokens[number]
        for name, key in _SPECIAL.items()
        if (number := _token_id(header, f"{key}_token_id", len(tokens))) is not None
    }
    return GgufVocabulary(library, _templates(header), special)


def _checked(header: GgufHeader, tokens: object) -> list[str]:
    """Return the tokens after checking that they are texts that differ."""
    if not isinstance(tokens, list) or not tokens:
        raise CheckpointError(f"{header.path}: {_KEY}tokens is {shown(tokens)}; it must be a list of texts.")
    if len(set(tokens)) < len(tokens):
        raise CheckpointError(f"{header.path}: {_KEY}tokens has a token twice; download it again.")
    return tokens


def _library(header: GgufHeader, tokens: list[str]) -> Library:
    kind = header.value(f"{_KEY}model")
    types = header.values.get(f"{_KEY}token_type")
    types = types.tolist() if isinstance(types, np.ndarray) else [_NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise CheckpointError(
            f"{header.path}: {_KEY}token_type has {len(types)} numbers for {len(tokens)} tokens; download "
            "it again."
        )
    # Unused tokens only pad the vocabulary to the number of rows of the embedding.
    ids = {token: i for i, (token, own) in enumerate(zip(tokens, types, strict=True)) if own != _UNUSED}
    if kind == "gpt2":
        library, begins = _byte_level(header, ids), header.values.get(f"{_KEY}pre") in _WHOLE_WORDS
    elif kind == "llama":
        library, begins = _sentence_piece(header, ids, types), True
    else:
        raise CheckpointError(
            f"{header.path}: {_KEY}model is {shown(kind)}; supported are 'gpt2' and 'llama'. Choose the "
            "model's safetensors."
        )
    added = [
        AddedToken(token, special=own == _CONTROL, normalized=False)
        for token, own in zip(tokens, types, strict=True)
        if own in (_CONTROL, _USER_DEFINED) and token
    ]
    library.add_special_tokens([token for token in added if token.special])
    library.add_tokens([token for token in added if not token.special])
    _add_ends(library, header, tokens, begins=begins)
    return library


def _byte_level(header: GgufHeader, ids: dict[str, int]) -> Library:
    """Return a byte-level BPE tokenizer."""
    pre, merges = header.values.get(f"{_KEY}pre", "default"), header.value(f"{_KEY}merges")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise CheckpointError(f"{header.path}: {_KEY}merges has one that is no pair; download it again.")
    library = Library(models.BPE(ids, pairs, ignore_merges=pre in _WHOLE_WORDS))
    if pre in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[pre]), "isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        library.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    elif pre in _GPT2:
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif pre in _DIGITS:
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    else:
        raise CheckpointError(
            f"{header.path}: {_KEY}pre is {shown(pre)}; supported are "
            f"{', '.join((*_SPLITS, *_GPT2, *_DIGITS))}. Choose the model's safetensors."
        )
    if pre in _COMPOSED:
        library.normalizer = normalizers.NFC()
    library.decoder = decoders.ByteLevel()
    return library


def _sentence_piece(header: GgufHeader, ids: dict[str, int], types: Sequence[int]) -> Library:
    """Return SentencePiece's BPE tokenizer, with bytes in place of unknown characters."""
    scores = header.value(f"{_KEY}scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(types):
        raise CheckpointError(
            f"{header.path}: {_KEY}scores must have a number for each of {len(types)} tokens."
        )
    unknown = next((token for token, number in ids.items() if types[number] == _UNKNOWN), None)
    merges = piece_merges(ids, scores.tolist(), types)
    library = Library(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = bool(header.values.get(f"{_KEY}add_space_prefix", True))
    marked = normalizers.Replace(" ", _SPACE)
    library.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), marked]) if prefix else marked
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return library


def piece_merges(
    vocabulary: Mapping[str, int], scores: Sequence[float], types: Sequence[int]
) -> list[tuple[str, str]]:
    """Return the merges of SentencePiece's BPE: every pair of pieces that make a piece, the best score first.

    Args:
        vocabulary: ids of the pieces.
        scores: the score of each id.
        types: the type of each id; only normal and user-defined pieces are made by merges.
    """
    found: list[tuple[float, int, int, str, str]] = []
    for piece, number in vocabulary.items():
        if types[number] not in (_NORMAL, _USER_DEFINED) or len(piece) > _LONGEST_PIECE:
            continue
        for at in range(1, len(piece)):
            left, right = piece[:at], piece[at:]
            if left in vocabulary and right in vocabulary:
                found.append((-scores[number], vocabulary[left], vocabulary[right], left, right))
    found.sort(key=lambda merge: merge[:3])
    return [merge[3:] for merge in found]


def _add_ends(library: Library, header: GgufHeader, tokens: Sequence[str], *, begins: bool) -> None:
    """Let the tokenizer put a start token before and an end token after a text, where the file says so."""
    before = _token_id(header, "bos_token_id", len(tokens))
    after = _token_id(header, "eos_token_id", len(tokens))
    add_before = header.values.get(f"{_KEY}add_bos_token", begins) and before is not None
    add_after = header.values.get(f"{_KEY}add_eos_token", False) and after is not None
    ends = [
        number
        for number, wanted in ((before, add_before), (after, add_after))
        if wanted and number is not None
    ]
    if not ends:
        return
    single: list[str] = ["$A"]
    if add_before and before is not None:
        single.insert(0, tokens[before])
    if add_after and after is not None:
        single.append(tokens[after])
    library.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(tokens[number], number) for number in dict.fromkeys(ends)]
    )


def _token_id(header: GgufHeader, name: str, count: int) -> int | None:
    """Return a token id of the metadata; None if it is missing or no token has it."""
    number = header.values.get(f"{_KEY}{name}")
    return number if isinstance(number, int) and 0 <= number < count else None


def _templates(header: GgufHeader) -> dict[str, str]:
    """Return the chat templates by name."""
    named: Any = header.values.get("tokenizer.chat_templates", ())
    values = {str(name): header.values.get(f"tokenizer.chat_template.{name}") for name in named}
    values["default"] = header.values.get("tokenizer.chat_template")
    return {name: text for name, text in values.items() if isinstance(text, str)}
