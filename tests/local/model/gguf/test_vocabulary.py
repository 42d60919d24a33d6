"""Tokenizers and chat templates of GGUF files against the tokenizers they were written from."""

from __future__ import annotations

import json

import pytest
from specclient_local import Engine
from specclient_local.model.gguf.vocabulary import piece_merges
from specclient_local.model.tokenizer import Tokenizer
from tiny_models import CHAT, write_checkpoint
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from specclient.errors import CheckpointError

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")

from gguf_files import add_tokens, write_gguf  # noqa: E402 - needs the package

TEXTS = [
    "def f(x):\n    return x + 1234567  # it's   3 spaces\r\n\n\tCafe\u0301 \u00e9\u4e2d\U0001f600",
    "",
    " leading and trailing ",
    "I'LL they'd 12 345 !!?\n\n\n  <|bos|>mid<|eos|>",
]
SPLITS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SPLITS["dbrx"] = SPLITS["llama-bpe"]  # its merges are applied to whole words, too
CORPUS = [
    f"{text} numbers 100 200 12345 it's don't we'll return x for y in range(10):\n" for text in TEXTS
] * 4


def byte_level(pre):
    """Train a byte-level tokenizer that splits texts as models of a kind do."""
    library = Library(models.BPE(ignore_merges=pre == "llama-bpe"))
    library.pre_tokenizer = {
        "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
        "smollm": lambda: pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
    }.get(pre, lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLITS[pre]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ))()  # fmt: skip
    if pre == "qwen2":
        library.normalizer = normalizers.NFC()
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|bos|>", "<|eos|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    library.add_tokens([AddedToken("<tool>", normalized=False)])
    return library


def written(folder, library, tokens, **shape):
    rows = library.get_vocab_size() + 5
    checkpoint = write_checkpoint(folder / "checkpoint", tokenizer=library, vocab_size=rows, **shape)
    return checkpoint, write_gguf(checkpoint, folder / "model.gguf", tokens=tokens)


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "dbrx", "qwen2", "smollm"])
def test_byte_level_tokenizers_equal_those_they_were_written_from(tmp_path, pre):
    library = byte_level(pre)

    def tokens(writer, checkpoint):
        vocabulary = sorted(library.get_vocab(), key=library.get_vocab().__getitem__)
        padding = [f"[PAD{i}]" for i in range(5)]
        kinds = {"<|bos|>": 3, "<|eos|>": 3, "<tool>": 4}
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list([*vocabulary, *padding])
        writer.add_token_types([*(kinds.get(token, 1) for token in vocabulary), *[5] * 5])
        merges = json.loads(library.to_str())["model"]["merges"]
        writer.add_token_merges([" ".join(merge) for merge in merges])
        writer.add_add_bos_token(False)

    checkpoint, path = written(tmp_path, library, tokens)
    own, expected = Tokenizer(path), Tokenizer(checkpoint)
    assert own.difference(expected) is None
    for text in [*TEXTS, "call <tool> it"]:
        ids = expected.encode(text)
        assert own.encode(text) == ids
        assert own.decode(ids) == expected.decode(ids)
    assert own.bytewise
    assert own.special("<|eos|>") == 1
    assert own.added("<tool>") == expected.added("<tool>")


def sentence_piece():
    """Train a BPE tokenizer like SentencePiece's, whose scores are the ranks of its pieces."""
    library = Library(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    library.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False)
    library.train_from_iterator(["the cat sat on the mat and the hat of that cat"] * 3, trainer)
    state = json.loads(library.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < 3]
    return Library.from_str(json.dumps(state))


def test_sentence_piece_tokenizers_equal_those_they_were_written_from(tmp_path):
    library = sentence_piece()
    vocabulary = sorted(library.get_vocab(), key=library.get_vocab().__getitem__)

    def tokens(writer, checkpoint):
        kinds = [2, 3, 3, *[6] * 256, *[1] * (len(vocabulary) - 259)]
        writer.add_tokenizer_model("llama")
        writer.add_token_list([*vocabulary, *(f"[PAD{i}]" for i in range(5))])
        writer.add_token_types([*kinds, *[5] * 5])
        writer.add_token_scores([0.0 if i < 259 else float(-i) for i in range(len(vocabulary) + 5)])

    checkpoint, path = written(tmp_path, library, tokens, bos_token_id=1, eos_token_id=2)
    own, expected = Tokenizer(path), Tokenizer(checkpoint)
    assert own.difference(expected) is None
    for text in ("the cat sat on that hat", "a mat \u4e2d\n", " the  cat", "cats</s>"):
        ids = expected.encode(text)
        assert own.encode(text) == [1, *ids], "files of this kind put a start token before a text"
        assert own.encode(text, begins=False) == ids
        assert own.decode(ids) == expected.decode(ids)


def test_merges_are_ordered_by_the_score_of_what_they_make():
    vocabulary = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "<s>": 6}
    scores, kinds = [0.0, 0.0, 0.0, -2.0, -1.0, -3.0, 0.0], [1, 1, 1, 1, 1, 1, 3]
    assert piece_merges(vocabulary, scores, kinds) == [("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c")]
    assert piece_merges({"a": 0, "a" * 300: 1}, [0.0, 1.0], [1, 1]) == []


def test_the_chat_template_is_that_of_the_file(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    path = write_gguf(checkpoint, tmp_path / "m.gguf")
    own, expected = Tokenizer(path), Tokenizer(checkpoint)
    assert own.template() == expected.template() == CHAT
    messages = [{"role": "user", "content": "hi"}]
    assert own.chat(messages) == expected.chat(messages)


def test_a_file_chooses_its_start_and_end_tokens(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    plain = Tokenizer(write_gguf(checkpoint, tmp_path / "plain.gguf")).encode("def f")
    values = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    both = Tokenizer(write_gguf(checkpoint, tmp_path / "both.gguf", values=values))
    assert both.encode("def f") == [0, *plain, 1]
    assert both.encode("def f", begins=False) == plain


def changed(**fields):
    """Return a function that writes the checkpoint's tokens with some fields changed."""

    def tokens(writer, checkpoint):
        add_tokens(writer, checkpoint)
        for name, value in fields.items():
            del writer.kv_data[0][f"tokenizer.ggml.{name}"]
            if value is not None:
                add = writer.add_string if isinstance(value, str) else writer.add_array
                add(f"tokenizer.ggml.{name}", value)

    return tokens


REFUSED = {
    "kind": ({"model": "rwkv"}, "tokenizer.ggml.model is 'rwkv'; supported are 'gpt2' and 'llama'"),
    "split": ({"pre": "tekken"}, "tokenizer.ggml.pre is 'tekken'; supported are llama-bpe"),
    "no tokens": ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
    "equal tokens": ({"tokens": ["a"] * 300}, "tokens has a token twice"),
    "types": ({"token_type": [1, 1]}, "token_type has 2 numbers for 300 tokens"),
    "merges of three": ({"merges": ["a b c"]}, "merges has one that is no pair"),
    "merges of others": ({"merges": ["qq zz"]}, "its tokenizer is invalid"),
    "merges that are numbers": ({"merges": [1, 2]}, "a value has the wrong type|invalid"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_and_broken_tokenizers_are_refused_in_one_line(tmp_path, name):
    fields, message = REFUSED[name]
    path = write_gguf(write_checkpoint(tmp_path / "c"), tmp_path / "m.gguf", tokens=changed(**fields))
    with pytest.raises(CheckpointError, match=message) as caught:
        Tokenizer(path)
    assert "\n" not in str(caught.value)


def test_an_engine_answers_a_grammar_with_a_files_tokenizer(tmp_path):
    path = write_gguf(write_checkpoint(tmp_path / "c"), tmp_path / "m.gguf")
    with Engine.load(path, threads=1, slots=1) as engine:
        assert engine.generate("def f", max_tokens=30, regex="[a-c]{4}").text.strip("abc") == ""
