"""The load of two real replicas, from a short trace, and the draft lengths of their arms."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from paths import BENCHMARKS


@pytest.fixture(scope="module")
def programs() -> tuple[ModuleType, ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS / "fleets"))
        import real_load
        import vllm_replicas

    return real_load, vllm_replicas


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations of four turns, each of which has the blocks of the last one and one more."""
    file = tmp_path_factory.mktemp("load") / "trace.jsonl"
    lines = [
        {
            "timestamp": 3000 * at, "input_length": 512 * (at % 4 + 2), "output_length": 100 + at,
            "hash_ids": [0, *range(at // 4 * 10 + 1, at // 4 * 10 + 2 + at % 4)],
        }
        for at in range(200)
    ]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def _load(programs: tuple[ModuleType, ModuleType], trace: Path, seconds: float, pace: float) -> list:
    load, vllm = programs
    return load.load_of(trace, vllm.BUNDLED / "target" / "tokenizer.json", seconds=seconds, pace=pace)


@pytest.fixture(scope="module")
def calls(programs, trace):
    return _load(programs, trace, 60, 2)


def test_calls_come_in_phases_at_their_rates(programs, calls):
    load, _ = programs
    assert [call.at for call in calls] == sorted(call.at for call in calls)
    for phase in load.PHASES:
        own = [call.at for call in calls if call.phase == phase.name]
        assert (len(own) - 1) / (own[-1] - own[0]) == pytest.approx(phase.rate * 2, rel=0.2)
    assert calls[-1].at < 65


def test_prompts_fit_and_a_turn_begins_with_the_turn_before(programs, calls):
    load, _ = programs
    assert all(len(call.prompt) + call.tokens <= load.CONTEXT for call in calls)
    prompts = {call.prompt for call in calls}
    turns = [each for each in prompts if len(each) > 2 * load.BLOCK]
    assert turns
    assert all(any(other == each[: len(other)] for other in prompts - {each}) for each in turns)


@pytest.mark.parametrize(
    ("seconds", "pace", "message"),
    [(3, 2, "too few for 3 phases"), (60, 0, "above 0"), (900, 2, "has 200 short enough requests")],
)
def test_a_load_that_cannot_be_is_refused(programs, trace, seconds, pace, message):
    with pytest.raises(ValueError, match=message):
        _load(programs, trace, seconds, pace)


def test_arms_have_a_fixed_length_or_lengths_by_load(programs):
    _, vllm = programs
    for arm, expected in (
        ("fixed0", None),
        ("placed2", 2),
        ("placed", [[1, 1, 5], [2, 2, 3], [3, 12, 2], [13, 32, 0]]),
    ):
        words = vllm.command("/env/bin/python", Path("/target"), 8000, arm, ["--seed", "1"])
        assert words[1] == "/env/bin/vllm"
        assert "--seed" in words
        if expected is None:
            assert "--speculative-config" not in words
            continue
        config = json.loads(words[words.index("--speculative-config") + 1])
        by_load = config.get("num_speculative_tokens_per_batch_size")
        assert expected in (by_load, config["num_speculative_tokens"])
        assert (by_load is None) == isinstance(expected, int)
