"""Published traces as arrivals: each format, gzip, stretched times, and invalid lines refused or skipped."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from statistics import fmean

import pytest

from specclient.errors import ConfigurationError
from specclient.routing.simulate.arrivals import Arrival, read_arrivals
from specclient.routing.simulate.baselines import GroundTruth, Oracle
from specclient.routing.simulate.hosts import MIXED_WORLD
from specclient.routing.simulate.replay import replay_calls
from specclient.routing.simulate.results import summarize
from specclient.routing.simulate.world import World
from specclient.types.policy import Policy

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n"
    "2023-11-16 18:16:46.6805900,14050,7"
)
MOONCAKE = "".join(
    json.dumps({"timestamp": at, "input_length": prompt, "output_length": answer, "hash_ids": [0, at]}) + "\n"
    for at, prompt, answer in ((0, 6758, 500), (0, 7322, 490), (3000, 42_000, 929))
)


def _write(folder: Path, text: str) -> Path:
    file = folder / "trace"
    file.write_text(text, encoding="utf-8")
    return file


def test_azures_trace(tmp_path: Path) -> None:
    found = read_arrivals(_write(tmp_path, AZURE))
    assert [call[1:4] for call in found.calls] == [
        ("chat", 374, 44),
        ("chat", 396, 109),
        ("long_context", 14050, 7),
    ]
    assert [call.at for call in found.calls] == pytest.approx([0, 4.314579, 60], abs=1e-5)
    assert found.skipped == ()


def test_mooncakes_trace(tmp_path: Path) -> None:
    assert read_arrivals(_write(tmp_path, MOONCAKE)).calls == (
        Arrival(0, "chat", 6758, 500, "conversation 0", (0, 0)),
        Arrival(0, "chat", 7322, 490, "conversation 0", (0, 0)),
        Arrival(3, "long_context", 42_000, 929, "conversation 1", (0, 3000)),
    )


def test_lines_of_our_own_traces(tmp_path: Path) -> None:
    own = {"at": 5.0, "task": "code", "prompt_tokens": 900, "completion_tokens": 120, "outcomes": {}}
    unanswered = {**own, "at": 6.0, "completion_tokens": None}
    text = "\n".join(map(json.dumps, (own, unanswered, {**own, "at": 7.5})))
    assert read_arrivals(_write(tmp_path, text)).calls == (
        Arrival(0, "code", 900, 120),
        Arrival(2.5, "code", 900, 120),
    )


def test_a_compressed_trace_is_the_same(tmp_path: Path) -> None:
    plain, packed = _write(tmp_path, AZURE), tmp_path / "trace.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_arrivals(packed).calls == read_arrivals(plain).calls
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_arrivals(packed)


def test_times_are_stretched_and_calls_are_counted(tmp_path: Path) -> None:
    file = _write(tmp_path, MOONCAKE)
    assert [call.at for call in read_arrivals(file, stretch=20).calls] == [0, 0, 60]
    assert len(read_arrivals(file, most=2).calls) == 2


def test_a_part_of_a_trace_begins_with_its_own_first_call(tmp_path: Path) -> None:
    file = _write(tmp_path, MOONCAKE)
    assert read_arrivals(file, skip=1, most=1).calls == (
        Arrival(0, "chat", 7322, 490, "conversation 0", (0, 0)),
    )
    assert [call.at for call in read_arrivals(file, skip=1).calls] == [0, 3]
    with pytest.raises(ConfigurationError, match="no call with an answer after the first 3"):
        read_arrivals(file, skip=3)


INVALID = {
    "2023-11-16 18:15:46,1": "2: '2023-11-16 18:15:46,1' has 2 cells",
    "yesterday,1,1": "2: 'yesterday,1,1' is not a time and two whole numbers",
    "2023-11-16 18:15:46,-1,1": "2: the prompt has -1 tokens; it must have 1 or more",
    "2023-11-16 18:15:46,1,0": "2: the answer has 0 tokens; it must have 1 or more",
    "2023-11-16 18:15:44,1,1": "2: its time is before that of the call above it; sort the file",
    '{"timestamp": -1, "input_length": 1, "output_length": 1}': "2: timestamp is -1; it must be milliseconds",
    '{"timestamp": 1e999, "input_length": 1, "output_length": 1}': "2: timestamp is inf",
    '{"timestamp": true, "input_length": 1, "output_length": 1}': "2: timestamp is True",
    '{"timestamp": 1e13, "input_length": 1.5, "output_length": 1}': "2: the prompt has 1.5 tokens",
    '{"timestamp": 1e13': "2: not JSON",
    '{"at": 1e10}': "2: prompt_tokens is None; it must be a whole number",
}


@pytest.mark.parametrize("line", INVALID)
def test_invalid_lines_are_refused_by_their_number_or_skipped(tmp_path: Path, line: str) -> None:
    file = _write(tmp_path, f"2023-11-16 18:15:45,1,1\n{line}\n2033-11-16 18:15:47,3,1\n")
    with pytest.raises(ConfigurationError) as raised:
        read_arrivals(file)
    assert f"{file}:{INVALID[line]}" in str(raised.value)
    found = read_arrivals(file, skip_invalid=True)
    assert [call.prompt_tokens for call in found.calls] == [1, 3]
    assert found.skipped == (str(raised.value),)


@pytest.mark.parametrize("text", ["", "\n\n", "TIMESTAMP,ContextTokens,GeneratedTokens\n"])
def test_a_file_without_a_call_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="contains no call with an answer"):
        read_arrivals(_write(tmp_path, text))


def test_a_world_has_the_calls_of_a_trace(tmp_path: Path) -> None:
    lines = "".join(f"2023-11-16 18:{n // 60:02}:{n % 60:02},{1000 + n},{50 + n % 90}\n" for n in range(600))
    arrivals = read_arrivals(_write(tmp_path, lines), stretch=4)
    world = World(MIXED_WORLD, 1, arrivals=arrivals)
    assert [(c.at, c.prompt_tokens, c.completion_tokens) for c in world.calls] == [
        (call.at, call.prompt_tokens, call.completion_tokens) for call in arrivals.calls
    ]
    chat = next(kind for kind in MIXED_WORLD.kinds if kind.task == "chat")
    assert {(c.max_ttft_s, c.max_latency_s) for c in world.calls} == {(chat.max_ttft_s, chat.max_latency_s)}
    mean = fmean(call.completion_tokens for call in arrivals.calls)
    assert world.expected_tokens(world.calls[0]) == pytest.approx(mean, rel=0.01)
    judge = GroundTruth(world, Policy())
    found = summarize(replay_calls(world, Oracle(judge), judge), 0.95)
    assert found.calls == 600
    assert math.isfinite(found.cost)
    assert found.violations < 0.1


def test_a_gap_is_kept_refused_or_shortened(tmp_path: Path) -> None:
    lines = [
        json.dumps({"timestamp": at, "input_length": 10, "output_length": 10})
        for at in (0, 2000, 7_202_000, 7_203_000)
    ]
    file = _write(tmp_path, "\n".join(lines))
    assert [call.at for call in read_arrivals(file).calls] == [0, 2, 7202, 7203]
    refused = r":3: 7,200 s without a call before it; at most 60 s are allowed; cut the file there, or let"
    with pytest.raises(ConfigurationError, match=refused):
        read_arrivals(file, longest_gap_s=60)
    shortened = read_arrivals(file, longest_gap_s=60, skip_invalid=True, stretch=2)
    assert [call.at for call in shortened.calls] == [0, 4, 124, 126]
    assert shortened.skipped == (f"{file}:3: 7,200 s without a call before it; at most 60 s are allowed",)
