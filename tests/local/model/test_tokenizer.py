"""Text in increments: never half a character, never part of a stop string, and in sum the decoded whole."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from specclient_local.loading.configured_models import BUNDLED
from specclient_local.model.tokenizer import IncrementalDetokenizer, StopStringFilter, Tokenizer
from tiny_models import byte_tokenizer, write_checkpoint
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from specclient.errors import BadRequestError, CheckpointError

EMOJI = "\U0001f600\U0001f469\u200d\U0001f4bb"
TEXTS = ["def fibonacci(n):\n    return n", f"\u00e9\u00fc\u4e2d\u6587{EMOJI} end", "", " lead", "a\ufffdb"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def spaced(tmp_path_factory):
    """A tokenizer of the SentencePiece kind: words begin with a mark, the first space is dropped."""
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
def test_increments_join_to_the_whole(tokenizer, text):
    ids = tokenizer.encode(text)
    parts = increments(tokenizer, ids)
    assert "".join(parts) == tokenizer.decode(ids) == text


def test_no_increment_ends_inside_a_character(tokenizer):
    ids = tokenizer.encode("\U0001f600\u4e2d")
    assert len(ids) == 7
    assert increments(tokenizer, ids) == ["", "", "", "\U0001f600", "", "", "\u4e2d", ""]


def test_random_bytes_join_to_the_whole_and_what_is_unfinished_comes_last(tokenizer):
    dice = random.Random(0)
    for _ in range(200):
        ids = [dice.randrange(2, 300) for _ in range(dice.randrange(1, 30))]
        assert "".join(increments(tokenizer, ids)) == tokenizer.decode(ids)
    cut = tokenizer.encode("a\U0001f600")[:3]
    assert increments(tokenizer, cut) == ["a", "", "", "\ufffd"]


def test_which_tokenizers_are_read_byte_by_byte(tokenizer, spaced):
    assert (tokenizer.bytewise, spaced.bytewise) == (True, False)


def test_added_tokens_are_written_as_the_library_does(tmp_path):
    library = byte_tokenizer()
    names = ["plain", "two words", "\u00e9", "\u4e2d", "<tool_call>", "<hidden>"]
    library.add_tokens(names[:4])
    library.add_special_tokens(names[4:])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer, dice = Tokenizer(tmp_path), random.Random(2)
    added = [tokenizer.added(name) for name in names]
    for _ in range(100):
        ids = [dice.choice([*added, *range(2, 120)]) for _ in range(12)]
        assert "".join(increments(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_character_that_the_prompt_begins_is_ended_by_the_answer(tokenizer):
    ids = tokenizer.encode("a\U0001f600b")
    assert increments(tokenizer, ids[3:], prompt=ids[:3]) == ["", "\U0001f600", "b", ""]
    assert increments(tokenizer, ids[5:], prompt=ids[:3]) == ["b", ""], "what comes to nothing"
    assert increments(tokenizer, ids[3:4], prompt=ids[:3]) == ["", ""]


def test_a_space_after_the_prompt_is_kept(spaced):
    assert "".join(increments(spaced, [1, 2, 3])) == "a bc"
    assert "".join(increments(spaced, [2, 3, 1], prompt=[1])) == " bc a"
    assert increments(spaced, [5, 6, 7, 2], prompt=[1]) == ["", "", "\u4e2d", " b", ""]


def test_special_tokens_give_no_text(tokenizer):
    ids = [0, *tokenizer.encode("x"), 1]
    assert "".join(increments(tokenizer, ids)) == "x"


def filtered(stops, parts):
    stop_filter, out = StopStringFilter(stops), []
    for part in parts:
        text, stopped = stop_filter.push(part)
        out.append(text)
        if stopped:
            return out, True
    return [*out, stop_filter.flush()], False


def test_a_stop_string_across_pieces_never_shows():
    assert filtered(["\n\n"], ["a\n", "b\n", "\nc"]) == (["a", "\nb", ""], True)
    assert filtered(["END"], ["xE", "N", "x", "EN", "D"]) == (["x", "", "ENx", "", ""], True)
    assert filtered(["END"], ["xE", "N"]) == (["x", "", "EN"], False)
    assert filtered([], ["END"]) == (["END", ""], False)


def test_where_a_text_stops_does_not_depend_on_how_it_was_cut():
    dice = random.Random(1)
    for _ in range(500):
        text = "".join(dice.choice("ab") for _ in range(12))
        stops = ["".join(dice.choice("ab") for _ in range(dice.randrange(1, 5))) for _ in range(3)]
        whole, letters = filtered(stops, [text]), filtered(stops, list(text))
        assert "".join(whole[0]) == "".join(letters[0])
        assert whole[1] == letters[1] == any(stop in text for stop in stops)


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing; save the tokenizer"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not a valid tokenizer\.json"):
        Tokenizer(tmp_path)


def test_differences_are_put_in_words(tmp_path, tokenizer):
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


def test_a_chat_is_laid_out_by_the_template(tmp_path):
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
    """A tokenizer of the SentencePiece kind that spells all but a few letters in bytes."""
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


def test_a_prompt_is_neither_cut_nor_padded(bytewise):
    assert bytewise.encode("abababab") == [1, 2] * 4


LONG = ["\U0001f600" * 3, "\u8a9ec", "\u00e9" * 9, "\u8a9ea\U0001f600\U0001f600b"]


@pytest.mark.parametrize("prompt", ["", "a", "a\U0001f600\U0001f600", "\u8a9e\U0001f600\u00e9b\u8a9e"])
def test_characters_spelled_in_bytes_stay_whole(bytewise, prompt):
    dice = random.Random(0)
    random_texts = ["".join(dice.choices("a\u00e9\u8a9e\U0001f600", k=12)) for _ in range(50)]
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


def test_the_first_chats_of_a_program_may_come_together() -> None:
    """The library makes its names when they are first asked for, which two threads must not do at once."""
    folder = BUNDLED / "target"
    program = _FIRST_CHATS.replace("FOLDER", f"__import__('pathlib').Path({str(folder)!r})")
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
