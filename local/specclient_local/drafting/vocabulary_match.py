"""Compares the vocabularies of draft and target, and chooses how a draft with another vocabulary can draft.

Tokens are compared by the bytes for which they stand, so different spellings of a space are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specclient.errors import CheckpointError
from specclient_local.model.model_runner import ModelConfig
from specclient_local.model.tokenizer import Tokenizer

VocabularyMethod = Literal["shared", "retokenised"]

METHOD_DESCRIPTIONS: Mapping[VocabularyMethod, str] = {
    "shared": "it is restricted to the tokens that both have (draft_vocabulary='shared')",
    "retokenised": "its text is re-encoded by the target's tokenizer, and drafted greedily "
    "(draft_vocabulary='retokenised')",
}
"""How a draft with another vocabulary is used, in words."""

_MIN_COMMON_SHARE = 0.5
"""Minimum share of a text's tokens that must be common to use ``shared``.

A ``shared`` draft is rejected wherever the target's token is not common. A ``retokenised`` one is not, but it
is greedy at any temperature. Mean accepted length of the bundled draft with fewer and fewer merges, at
temperature 1, ``shared`` against ``retokenised``: 2.3 and 1.6 if all tokens are common, 1.8 and 1.4 at a
share of 0.7, 1.5 and 1.3 at 0.5. With greedy decoding they are equal.
"""

_TEXT = """\
The quick brown fox didn't jump over 13 lazy dogs; it walked around them, slowly, and that took 2.5 minutes.

def mean(values: list[float]) -> float:
    \"\"\"Return the arithmetic mean.\"\"\"
    if not values:
        raise ValueError("no values")
    return sum(values) / len(values)

for name, each in sorted(results.items()):
    print(f"{name}: {mean(each):.3f}")
{"id": 7, "tags": ["new", "sale"], "price": 19.99, "name": "Gr\u00fc\u00dfe"}
"""
"""Prose, code and data on which two tokenizers are compared."""


@dataclass(frozen=True, slots=True)
class CommonTokens:
    """The tokens that two vocabularies share, each once.

    Attributes:
        target, draft: ``[C]`` their ids in each vocabulary.
        spelled: the draft's input for each id of the target: the same token, or tokens of the same bytes.
    """

    target: NDArray[np.int64]
    draft: NDArray[np.int64]
    spelled: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ForeignDraft:
    """A draft whose tokenizer differs from the target's, and how it is used.

    Attributes:
        target, draft: the tokenizers.
        way: ``shared`` or ``retokenised``.
        common: the common tokens; None if ``retokenised``.
        ratio: tokens of the draft per token of the target.
    """

    target: Tokenizer
    draft: Tokenizer
    way: VocabularyMethod
    common: CommonTokens | None
    ratio: float


@dataclass(frozen=True, slots=True)
class VocabularyCompatibility:
    """How a draft whose tokenizer differs from the target's would be used.

    Attributes:
        difference: the difference between the two, the target's first.
        way: how it is used, or ``refused``.
        said: ``way`` in words; for ``refused`` the reason, and what to do instead.
    """

    difference: str
    way: VocabularyMethod | Literal["refused"]
    said: str


def check_compatibility(
    target: Tokenizer, draft: Tokenizer, configs: tuple[ModelConfig, ModelConfig], requested: str = "auto"
) -> VocabularyCompatibility | None:
    """Return how a draft would be used; None if its vocabulary is the target's.

    Args:
        target, draft: the tokenizers.
        configs: the models' configurations, in this order.
        requested: ``same``, ``shared``, ``retokenised`` or ``auto``.
    """
    difference = target.difference(draft)
    if difference is None:
        return None
    if requested == "same":
        return VocabularyCompatibility(
            difference, "refused", "draft_vocabulary is 'same'; leave it out, or choose another draft"
        )
    try:
        way = match_vocabularies(target, draft, configs, requested).way
    except CheckpointError as error:
        return VocabularyCompatibility(difference, "refused", str(error))
    return VocabularyCompatibility(difference, way, METHOD_DESCRIPTIONS[way])


def match_vocabularies(
    target: Tokenizer, draft: Tokenizer, configs: tuple[ModelConfig, ModelConfig], requested: str = "auto"
) -> ForeignDraft:
    """Return how a draft with another vocabulary can draft.

    Args:
        target, draft: the tokenizers.
        configs: the models' configurations, in this order.
        requested: ``shared``, ``retokenised`` or ``auto``.

    Raises:
        CheckpointError: neither way is possible, or not the requested one.
    """
    common = find_common_tokens(target, draft, configs)
    ids = target.encode(_TEXT, begins=False)
    known = set(common.target.tolist())
    share = sum(token in known for token in ids) / max(1, len(ids))
    theirs = draft.encode(_TEXT, begins=False)
    ratio = len(theirs) / max(1, len(ids))
    reads = draft.decode(theirs) == _TEXT and target.decode(ids) == _TEXT
    way: VocabularyMethod | None = (
        "shared" if share >= _MIN_COMMON_SHARE else "retokenised" if reads else None
    )
    if way is None and share > 0.0:
        way = "shared"
    if requested == "shared":
        way = "shared" if share > 0.0 else None
    elif requested == "retokenised":
        way = "retokenised" if reads else None
    if way is None:
        raise CheckpointError(_incompatibility(target, draft, requested, share, reads=reads))
    return ForeignDraft(target, draft, way, common if way == "shared" else None, max(ratio, 1e-3))


def _incompatibility(target: Tokenizer, draft: Tokenizer, setting: str, share: float, *, reads: bool) -> str:
    """Return the message that says why a draft cannot be used, and what to do instead."""
    shares = f"share {share:.0%} of a text's tokens"
    lossy = "reproduce text exactly" if reads else "do not both reproduce text exactly"
    instead = "choose a draft of the target's family, or method 'ngram'"
    if setting == "shared" and reads:
        instead = "omit draft_vocabulary (drafts are then re-tokenised and greedy), or " + instead
    if setting == "retokenised" and share > 0.0:
        instead = "omit draft_vocabulary (the draft is then restricted to common tokens), or " + instead
    exact = "its drafts cannot be sampled" if setting == "shared" else "it cannot draft exactly"
    return (
        f"the draft {draft.folder} does not fit the target {target.folder}: their vocabularies {shares} and "
        f"{lossy}, so {exact}; {instead}."
    )


def find_common_tokens(
    target: Tokenizer, draft: Tokenizer, configs: tuple[ModelConfig, ModelConfig]
) -> CommonTokens:
    """Return the tokens that two vocabularies share, including those that begin and end a text.

    Args:
        target, draft: the tokenizers.
        configs: the models' configurations, in this order.
    """
    sizes = [config.vocab_size for config in configs]
    mine, theirs = _pieces(target, sizes[0]), _pieces(draft, sizes[1])
    shared = {mine[piece]: theirs[piece] for piece in mine if piece in theirs}
    used = set(shared.values())
    for ours, other in zip(*(_ends(config) for config in configs), strict=False):
        if ours is not None and other is not None and ours not in shared and other not in used:
            shared[ours] = other
            used.add(other)
    spelled: dict[int, tuple[int, ...]] = {}
    for token in range(sizes[0]):
        one = shared.get(token)
        spelled[token] = (one,) if one is not None else _spelled(target.piece(token), theirs, draft)
    ids = np.array(sorted(shared), dtype=np.int64)
    return CommonTokens(ids, np.array([shared[int(token)] for token in ids], dtype=np.int64), spelled)


def _ends(config: ModelConfig) -> tuple[int | None, int | None]:
    """Return the ids of the end and the start token."""
    return (config.eos[0] if config.eos else None), config.bos


def _pieces(tokenizer: Tokenizer, size: int) -> dict[tuple[bool, bytes], int]:
    """Return ids by (whether special, bytes); of equal pieces the first."""
    found: dict[tuple[bool, bytes], int] = {}
    for token in range(size):
        piece = tokenizer.piece(token)
        if piece:
            special = tokenizer.special(piece.decode(errors="replace")) == token
            found.setdefault((special, piece), token)
    return found


def _spelled(piece: bytes, known: Mapping[tuple[bool, bytes], int], draft: Tokenizer) -> tuple[int, ...]:
    """Return tokens of the draft with the bytes of a target's token, as far as it has them.

    Any context gives a valid draft, so bytes that the draft cannot spell are read as its first token.
    """
    try:
        ids = tuple(draft.encode(piece.decode(), begins=False))
    except UnicodeDecodeError:  # part of a character
        ids = tuple(known[False, bytes([b])] for b in piece if (False, bytes([b])) in known)
    return ids or (0,)
