"""Incremental detokenization, stop strings, chat templates and tokenizer files."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from specclient_local.loading.configured_models import BUNDLED
from specclient_local.model.detokenizer import IncrementalDetokenizer, StopStringFilter
from specclient_local.model.tokenizer import Tokenizer
from tiny_models import byte_tokenizer, write_checkpoint
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from specclient.errors import BadRequestError, CheckpointError, ContextOverflowError

EMOJI = "\U0001f600\U0001f469\u200d\U0001f4bb"
TEXTS = ["def fibonacci(n):\n    return n", f"\u00e9\u00fc\u4e2d\u6587{EMOJI} end", "", " lead", "a\ufffdb"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def spaced(tmp_path_factory):
    """Return a SentencePiece-style tokenizer: words begin with a marker, and the first space is dropped."""
    words = ["<unk>", "\u2581a", "\u2581b", "c", "\u2581", "<0xE4>", "<0xB8>", "<0xAD>"]
    library = Library(
        models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    folder = tmp_path_factory.mktemp("spaced")
    library.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


def increments(tokenizer, ids, prompt=()):
    stream = IncrementalDetokenizer(tokenizer, prompt)
    return [*(stream.push(i) for i in ids), stream.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_increments_join_to_the_decoded_text(tokenizer, text):
    ids = tokenizer.encode(text)
    parts = increments(tokenizer, ids)
    assert "".join(parts) == tokenizer.decode(ids) == text


def test_no_increment_ends_inside_a_character(tokenizer):
    ids = tokenizer.encode("\U0001f600\u4e2d")
    assert len(ids) == 7
    assert increments(tokenizer, ids) == ["", "", "", "\U0001f600", "", "", "\u4e2d", ""]


def test_increments_of_random_tokens_join_and_incomplete_bytes_come_last(tokenizer):
    rng = random.Random(0)
    for _ in range(200):
        ids = [rng.randrange(2, 300) for _ in range(rng.randrange(1, 30))]
        assert "".join(increments(tokenizer, ids)) == tokenizer.decode(ids)
    cut = tokenizer.encode("a\U0001f600")[:3]
    assert increments(tokenizer, cut) == ["a", "", "", "\ufffd"]


def test_byte_level_tokenizers_are_recognised(tokenizer, spaced):
    assert (tokenizer.bytewise, spaced.bytewise) == (True, False)


def test_added_tokens_are_decoded_as_by_the_library(tmp_path):
    library = byte_tokenizer()
    names = ["plain", "two words", "\u00e9", "\u4e2d", "<tool_call>", "<hidden>"]
    library.add_tokens(names[:4])
    library.add_special_tokens(names[4:])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer, rng = Tokenizer(tmp_path), random.Random(2)
    added = [tokenizer.added(name) for name in names]
    for _ in range(100):
        ids = [rng.choice([*added, *range(2, 120)]) for _ in range(12)]
        assert "".join(increments(tokenizer, ids)) == tokenizer.decode(ids)


def test_an_answer_can_complete_a_character_begun_in_the_prompt(tokenizer):
    ids = tokenizer.encode("a\U0001f600b")
    assert increments(tokenizer, ids[3:], prompt=ids[:3]) == ["", "\U0001f600", "b", ""]
    assert increments(tokenizer, ids[5:], prompt=ids[:3]) == ["b", ""], "an incomplete character is dropped"
    assert increments(tokenizer, ids[3:4], prompt=ids[:3]) == ["", ""]


def test_a_space_after_the_prompt_is_kept(spaced):
    assert "".join(increments(spaced, [1, 2, 3])) == "a bc"
    assert "".join(increments(spaced, [2, 3, 1], prompt=[1])) == " bc a"
    assert increments(spaced, [5, 6, 7, 2], prompt=[1]) == ["", "", "\u4e2d", " b", ""]


def test_special_tokens_give_no_text(tokenizer):
    ids = [0, *tokenizer.encode("x"), 1]
    assert "".join(increments(tokenizer, ids)) == "x"


def filter_parts(stops, parts):
    stop_filter, out = StopStringFilter(stops), []
    for part in parts:
        text, stopped = stop_filter.push(part)
        out.append(text)
        if stopped:
            return out, True
    return [*out, stop_filter.flush()], False


def test_a_stop_string_across_pieces_is_never_shown():
    assert filter_parts(["\n\n"], ["a\n", "b\n", "\nc"]) == (["a", "\nb", ""], True)
    assert filter_parts(["END"], ["xE", "N", "x", "EN", "D"]) == (["x", "", "ENx", "", ""], True)
    assert filter_parts(["END"], ["xE", "N"]) == (["x", "", "EN"], False)
    assert filter_parts([], ["END"]) == (["END", ""], False)


def test_the_stop_string_that_ended_a_text_is_named():
    stop_filter = StopStringFilter(["never", "b", "bc"])
    assert stop_filter.push("a") == ("a", False)
    assert stop_filter.stopped_by is None
    assert stop_filter.push("xbc") == ("x", True)
    assert stop_filter.stopped_by == "b"


def test_where_a_text_stops_does_not_depend_on_how_it_is_split():
    rng = random.Random(1)
    for _ in range(500):
        text = "".join(rng.choice("ab") for _ in range(12))
        stops = ["".join(rng.choice("ab") for _ in range(rng.randrange(1, 5))) for _ in range(3)]
        whole, letters = filter_parts(stops, [text]), filter_parts(stops, list(text))
        assert "".join(whole[0]) == "".join(letters[0])
        assert whole[1] == letters[1] == any(stop in text for stop in stops)


def test_a_missing_or_invalid_tokenizer_file_raises(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing; save the tokenizer"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not a valid tokenizer\.json"):
        Tokenizer(tmp_path)


def test_differences_between_tokenizers_are_described(tmp_path, tokenizer):
    raw = json.loads((tokenizer.folder / "tokenizer.json").read_text())
    assert tokenizer.difference(Tokenizer(tokenizer.folder)) is None
    swapped = dict(raw["model"]["vocab"])
    a, b = (next(t for t, i in swapped.items() if i == n) for n in (40, 41))
    swapped[a], swapped[b] = 41, 40
    raw["model"]["vocab"] = swapped
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    assert "has id" in tokenizer.difference(Tokenizer(tmp_path))
    byte_tokenizer(280).save(str(tmp_path / "tokenizer.json"))
    assert tokenizer.difference(Tokenizer(tmp_path)) == "290 tokens against 280"


def test_a_chat_is_rendered_by_the_template(tmp_path):
    folder = write_checkpoint(tmp_path)
    tokenizer = Tokenizer(folder)
    ids = tokenizer.chat([{"role": "user", "content": "hi"}])
    assert ids[0] == 0
    assert tokenizer.decode(ids) == "user: hi\nassistant:"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{{ raise_exception('roles must alternate') }}"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(BadRequestError, match="roles must alternate"):
        Tokenizer(folder).chat([{"role": "user", "content": "hi"}])
    del settings["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(BadRequestError, match="no chat template"):
        Tokenizer(folder).chat([{"role": "user", "content": "hi"}])


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory):
    """Return a SentencePiece-style tokenizer that encodes all but a few letters as bytes."""
    words = ["<unk>", "a", "b", *(f"<0x{byte:02X}>" for byte in range(256))]
    library = Library(
        models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    library.enable_truncation(4)
    library.enable_padding(length=64)
    folder = tmp_path_factory.mktemp("bytewise")
    library.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


def test_a_prompt_is_neither_truncated_nor_padded(bytewise):
    assert bytewise.encode("abababab") == [1, 2] * 4


LONG = ["\U0001f600" * 3, "\u8a9ec", "\u00e9" * 9, "\u8a9ea\U0001f600\U0001f600b"]


@pytest.mark.parametrize("prompt", ["", "a", "a\U0001f600\U0001f600", "\u8a9e\U0001f600\u00e9b\u8a9e"])
def test_characters_encoded_as_bytes_are_never_split(bytewise, prompt):
    rng = random.Random(0)
    random_texts = ["".join(rng.choices("a\u00e9\u8a9e\U0001f600", k=12)) for _ in range(50)]
    bytewise._library.no_truncation()
    bytewise._library.no_padding()
    for text in [*LONG, *random_texts]:
        parts = increments(bytewise, bytewise.encode(text), bytewise.encode(prompt))
        assert "".join(parts) == text.replace("c", bytewise.decode(bytewise.encode("c")))


_FIRST_CHATS = """
import threading
from specclient_local.model.tokenizer import Tokenizer

tokenizer, together, found = Tokenizer(FOLDER), threading.Barrier(6), []

def chat():
    together.wait()
    found.append(tuple(tokenizer.chat([{"role": "user", "content": "hi"}])))

threads = [threading.Thread(target=chat) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(found) == 6 and len(set(found)) == 1, found
"""


def test_the_first_chats_of_a_process_may_run_concurrently() -> None:
    """The library creates its attributes on first use, which two threads must not do concurrently."""
    folder = BUNDLED / "target"
    program = _FIRST_CHATS.replace("FOLDER", f"__import__('pathlib').Path({str(folder)!r})")
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr


def built(tmp_path, **parts):
    """Save a byte-level tokenizer with other parts; return it loaded."""
    library = byte_tokenizer()
    for name, part in parts.items():
        setattr(library, name, part)
    library.save(str(tmp_path / "tokenizer.json"))
    return Tokenizer(tmp_path)


def test_no_text_has_fewer_tokens_than_its_bytes_allow(tokenizer):
    bundled = Tokenizer(BUNDLED / "target")
    for loaded in (tokenizer, bundled):
        longest = max((loaded.piece(token) for token in range(loaded.learned)), key=len)
        assert loaded.token_bytes >= len(longest)
        for text in (*TEXTS, longest.decode(errors="replace") * 50, " " * 1000, "<|bos|>" * 50):
            size = len(text.encode())
            assert len(loaded.encode(text, begins=False)) * loaded.token_bytes >= size, text
    assert bundled.token_bytes < 64


@pytest.mark.parametrize(
    ("parts", "ratio"),
    [
        ({}, 1),
        ({"normalizer": normalizers.NFC()}, 3),
        ({"normalizer": normalizers.Sequence([normalizers.Prepend("x"), normalizers.Replace(" ", "__")])}, 1),
        ({"normalizer": normalizers.Replace("  ", " ")}, 64),
        ({"normalizer": normalizers.Strip()}, 64),
        ({"pre_tokenizer": pre_tokenizers.WhitespaceSplit()}, 64),
        ({"pre_tokenizer": pre_tokenizers.Split(" ", "removed")}, 64),
    ],
)
def test_tokenizers_that_drop_characters_have_a_wider_bound(tmp_path, tokenizer, parts, ratio):
    loaded = built(tmp_path, **parts)
    assert loaded.token_bytes == tokenizer.token_bytes * ratio


def test_added_tokens_that_take_spaces_widen_the_bound(tmp_path, tokenizer):
    library = byte_tokenizer()
    library.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer(tmp_path).token_bytes >= tokenizer.token_bytes * 64


def test_a_text_that_certainly_exceeds_a_limit_is_refused_without_encoding_it(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "encode", lambda *_, **__: pytest.fail("it was encoded"))
    text = "ab" * 5000
    least = -(-len(text) // tokenizer.token_bytes)
    tokenizer.check_length("prompt", text, least)
    with pytest.raises(ContextOverflowError, match=f"prompt has 10000 bytes and so at least {least} tokens"):
        tokenizer.check_length("prompt", text, least - 1)
    with pytest.raises(ContextOverflowError):
        tokenizer.check_length("prompt", "\ud800" * 10_000, 10)


@pytest.mark.parametrize("unit", ["word ", "é", "aaaaaaaa", "\U0001f600", "  \n"])
def test_long_texts_have_the_ids_of_the_library(unit):
    """They are encoded by another of the library's methods, which releases the GIL."""
    loaded = Tokenizer(BUNDLED / "target")
    text = unit * 20_000
    library = Library.from_file(str(loaded.folder / "tokenizer.json"))
    library.no_truncation()
    for begins in (True, False):
        assert loaded.encode(text, begins=begins) == library.encode(text, add_special_tokens=begins).ids


def test_made_up_words_take_little_memory() -> None:
    """The library remembers the tokens of each word that it has not seen before."""
    program = """
import random, sys
from pathlib import Path
from specclient_local.model.tokenizer import Tokenizer
tokenizer, numbers = Tokenizer(Path(sys.argv[1])), random.Random(1)
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
def encode(words):
    for _ in range(words):
        tokenizer.encode("".join(chr(numbers.randrange(0x4E00, 0x9FFF)) for _ in range(36)))
encode(100)
before = resident()
encode(12_000)
print((resident() - before) // 2**20)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(BUNDLED / "target")],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert int(done.stdout) < 35
