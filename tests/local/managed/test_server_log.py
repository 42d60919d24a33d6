"""Logs of servers: their size, their secrets, and what errors quote of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from specclient_local.managed import server_log
from specclient_local.managed.server_log import ServerLog, advice_of, last_lines, telling_lines


def test_keys_are_replaced_also_where_output_comes_in_pieces(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "log", ["secret-key"])
    for piece in (b"a secret-key b\nc sec", b"ret-", b"key d\n", b"no end secret-key"):
        log.write(piece)
    log.close()
    assert (tmp_path / "log").read_text() == "a [key] b\nc [key] d\nno end [key]"


def test_a_key_at_the_cut_of_a_line_without_an_end_is_replaced(tmp_path: Path) -> None:
    for size in range(70_000, 70_020):
        log = ServerLog(tmp_path / "log", ["secret-key"])
        for piece in (b"x" * size + b"secret", b"-key"):
            log.write(piece)
        log.close()
    assert "secret" not in (tmp_path / "log").read_text()


def test_a_log_is_renamed_when_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_log, "MAX_BYTES", 100)
    log = ServerLog(tmp_path / "log", [])
    for number in range(30):
        log.write(b"line %d\n" % number)
    log.close()
    sizes = [(tmp_path / name).stat().st_size for name in ("log", "log.1")]
    assert max(sizes) <= 100
    assert last_lines(tmp_path / "log")[-1] == "line 29"


def test_the_last_lines_are_those_of_the_run_without_colours(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("earlier error\n")
    begin = log.stat().st_size
    with log.open("a") as file:
        file.write("\x1b[31mERROR\x1b[0m  it\n\n")
    assert last_lines(log, begin) == ["ERROR it"]
    assert last_lines(log, 10**9) == ["earlier error", "ERROR it"], "the log was renamed meanwhile"
    assert last_lines(tmp_path / "none") == []


def test_errors_quote_the_lines_that_say_why() -> None:
    lines = [
        "INFO 12:00 loading",
        "Traceback (most recent call last):",
        'File "/site-packages/vllm/x.py", line 5, in load',
        "    raise ValueError",
        "ValueError: No available memory for the cache blocks.",
        "INFO 12:01 bye",
    ]
    assert telling_lines(lines)[-1] == lines[4]
    assert not {lines[0], lines[1], lines[2], lines[5]} & set(telling_lines(lines))
    assert telling_lines(["a", "b"]) == ["a", "b"]
    assert telling_lines(["error " + "x" * 900])[0].endswith("…")
    assert len(telling_lines([f"error {number}" for number in range(50)])) == 5


@pytest.mark.parametrize(
    ("line", "way_out"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory.", "not enough memory"),
        ("ValueError: No available memory for the cache blocks.", "not enough memory"),
        ("OSError: [Errno 98] Address already in use", "its port is in use"),
        ("vllm: error: unrecognized arguments: --x", "this version does not know an option"),
        ("ValueError: Unrecognized model in /m.", "does not accept the checkpoint"),
        ("ModuleNotFoundError: No module named 'vllm'", "a package is missing"),
    ],
)
def test_known_causes_have_a_way_out(line: str, way_out: str) -> None:
    assert way_out in advice_of(["first", line, "last"])
    assert advice_of(["nothing known"]) == ""
