"""The bundled pair's training corpus: a reproducible split, lossless tokens, and windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from specclient_local.training.corpus import (
    BOS,
    EOS,
    SourceModule,
    encode_split,
    split_modules,
    standard_library,
    train_tokenizer,
)


def _library(folder: Path) -> Path:
    for name, text in {
        "alpha.py": "def f(x):\n    return x\n" * 40,
        "pack/beta.py": "class B:\r\n    pass\r\n",
        "pack/test/gamma.py": "assert False\n",
        "encodings/delta.py": "table = {}\n",
        "_sysconfigdata_x.py": "build_time_vars = {}\n",
        "empty.py": "\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    (folder / "latin.py").write_bytes(b"# \xe9\n")
    return folder


def test_tests_tables_and_machine_specific_files_are_excluded(tmp_path: Path) -> None:
    found = list(standard_library(_library(tmp_path)))
    assert [module.name for module in found] == ["alpha", "pack.beta"]
    assert found[1].text == "class B:\n    pass\n"


def test_the_split_depends_only_on_the_module_name() -> None:
    assert SourceModule("inspect", "a").split == SourceModule("inspect", "b").split == "heldout"
    assert SourceModule("argparse", "").split == "train"


def test_the_running_pythons_library_has_both_splits() -> None:
    train, heldout = ({module.name for module in split_modules(side)} for side in ("train", "heldout"))
    assert not train & heldout
    assert {"argparse", "json.decoder"} <= train
    assert {"inspect", "queue", "ssl"} <= heldout
    assert 0.05 < len(heldout) / len(train) < 0.2


def test_the_tokenizer_reproduces_every_text() -> None:
    tokenizer = train_tokenizer(["def f(x):\n    return x + 1\n"] * 20, 300)
    for text in ("def f(x):\n\treturn 'é — 漢字 🙂'\r\n\n\n  # end  ", " ", "\n\n", "x" * 1000):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.encode("x").tokens[0] == BOS


def test_a_prompt_cut_at_a_line_or_indent_is_tokenized_as_in_training() -> None:
    text = "def f(x):\n    if x:\n        return x\n"
    tokenizer = train_tokenizer([text] * 20, 300)
    whole = tokenizer.encode(text).ids
    for cut in ("def f(x):", "def f(x):\n", "def f(x):\n    ", "def f(x):\n    if x:\n"):
        ids = tokenizer.encode(cut).ids
        assert whole[: len(ids)] == ids, "the tokens are a prefix of the whole text's"


def test_windows_begin_at_lines_after_the_start_token(tmp_path: Path) -> None:
    library = list(standard_library(_library(tmp_path)))
    tokenizer = train_tokenizer([module.text for module in library], 300)
    tokens = encode_split(tokenizer, library)
    vocabulary = tokenizer.get_vocab()
    assert list(tokens.ids).count(vocabulary[EOS]) == len(library)
    rows = tokens.windows(np.random.default_rng(0), 64, 8)
    assert rows.shape == (64, 9)
    assert set(rows[:, 0]) == {vocabulary[BOS]}
    starts = {tokenizer.decode([int(token)], skip_special_tokens=False)[0] for token in rows[:, 1]}
    assert starts <= set("d c"), "each row's text is the beginning of a line"
    again = tokens.windows(np.random.default_rng(0), 64, 8)
    assert (rows == again).all()


@pytest.mark.parametrize("length", [4, 16])
def test_windows_stay_within_the_corpus(tmp_path: Path, length: int) -> None:
    library = list(standard_library(_library(tmp_path)))
    tokens = encode_split(train_tokenizer([m.text for m in library], 300), library)
    assert tokens.windows(np.random.default_rng(1), 256, length).shape == (256, length + 1)
