"""Token ids of texts to embed: prompts put before them, special tokens added, their length bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Encoding, normalizers
from tokenizers import Tokenizer as Library
from transformers import AutoTokenizer

from specclient.errors import CheckpointError, ContextOverflowError
from specclient_local.embedding.layout import EmbeddingLayout
from specclient_local.model.checkpoint_files import check_files, one_line, read_json
from specclient_local.model.hf.attention import quiet_transformers

#: Maximum characters of a text that is encoded without releasing the GIL; see ``model/tokenizer.py``.
_BRIEF = 16_384
#: JSON files of the tokenizer. They are checked here, because transformers sets no limits of its own.
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


@dataclass(frozen=True, slots=True)
class TextTokens:
    """The tokens of one text.

    Attributes:
        ids: token ids, including special tokens and the prompt's.
        prompt: number of tokens at the beginning that belong to the prompt.
    """

    ids: tuple[int, ...]
    prompt: int = 0


class TextTokenizer:
    """The tokenizer of an embedding checkpoint, as the transformers library makes it.

    Args:
        layout: the modules of the checkpoint.

    Attributes:
        own_limit: the tokenizer's own maximum of tokens of a text; None if it states none.

    Raises:
        CheckpointError: a file of the tokenizer is invalid.
    """

    def __init__(self, layout: EmbeddingLayout) -> None:
        folder = layout.transformer
        check_files(folder)
        for name in _FILES:
            if (folder / name).is_file():
                read_json(folder / name)
        try:
            with quiet_transformers():
                made: Any = AutoTokenizer.from_pretrained(
                    folder, trust_remote_code=False, local_files_only=True
                )
            self._library: Library = made.backend_tokenizer
        except BaseException as error:  # many types of Exception; a panic of Rust is a BaseException
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise CheckpointError(
                f"{folder}: the tokenizer cannot be loaded ({type(error).__name__}: {one_line(error)}); it "
                "needs a valid tokenizer.json; download it again."
            ) from error
        self._library.no_truncation()
        self._library.no_padding()
        self._special = frozenset(made.all_special_ids)
        self._side: str = made.truncation_side
        self._added = self._library.num_special_tokens_to_add(is_pair=False)
        self._prompts: dict[str, int] = {}
        stated = made.model_max_length
        # The library has a huge number if the checkpoint states none.
        self.own_limit: int | None = int(stated) if 0 < stated < 2**24 else None
        if layout.lower_case:
            self._change_to_lower_case()

    @property
    def highest(self) -> int:
        """The highest token id."""
        return max(self._library.get_vocab(with_added_tokens=True).values(), default=0)

    def encode(self, text: str, prompt: str, limit: int, *, truncate: bool) -> TextTokens:
        """Return the tokens of a text with a prompt before it.

        Args:
            text: the text to embed.
            prompt: the prompt that is put before the text; empty for none.
            limit: the allowed number of tokens, with special ones.
            truncate: whether to cut a longer text to the limit.

        Raises:
            ContextOverflowError: the text is longer, and ``truncate`` is false.
        """
        encoding = self._encoded(prompt + text)
        if len(encoding) + self._added > limit:
            if not truncate:
                raise ContextOverflowError(
                    f"an input has {len(encoding) + self._added} tokens, but the model takes {limit}: "
                    "shorten it, or set truncate_prompt_tokens to -1 (or truncate = true in the model's "
                    "table) to embed its beginning alone."
                )
            encoding.truncate(max(limit - self._added, 0), direction=self._side)
        ids = self._library.post_process(encoding, None, add_special_tokens=True).ids
        return TextTokens(tuple(ids), self._prompt_tokens(prompt) if prompt else 0)

    def _encoded(self, text: str) -> Encoding:
        if len(text) <= _BRIEF:
            return self._library.encode(text, add_special_tokens=False)
        [encoding] = self._library.encode_batch_fast([text], add_special_tokens=False)
        return encoding

    def _prompt_tokens(self, prompt: str) -> int:
        """Return the number of tokens of a prompt, with special tokens before it but not after it."""
        if prompt not in self._prompts:
            ids: Sequence[int] = self._library.encode(prompt, add_special_tokens=True).ids
            self._prompts[prompt] = len(ids) - (bool(ids) and ids[-1] in self._special)
        return self._prompts[prompt]

    def _change_to_lower_case(self) -> None:
        own = self._library.normalizer
        if "Lowercase" in str(own) or "lowercase=True" in str(own):
            return
        self._library.normalizer = normalizers.Sequence(
            [normalizers.Lowercase(), *([] if own is None else [own])]
        )
