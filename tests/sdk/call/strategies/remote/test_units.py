"""The parts of remote verification: draft lengths, stop strings, detokenization and score parsers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient import APIResponseValidationError, BadRequestError
from specclient.call.strategies.remote.detokenizer import RemoteDetokenizer
from specclient.call.strategies.remote.draft_length import (
    DraftLengthController,
    RoundCounts,
    best_draft_length,
    expected_tokens,
    target_alone_is_faster,
    tokens_per_second,
)
from specclient.call.strategies.remote.echo_logprobs import is_greedy_choice, parse_echo, parse_tgi
from specclient.call.strategies.remote.prompt_logprobs import parse_sglang, parse_vllm
from specclient.call.strategies.remote.scoring import NativeGeneration, ScoringRequest, ScoringToken
from specclient.call.strategies.remote.stop_strings import StopStringMatcher
from specclient.types.completion import Completion

pytestmark = pytest.mark.anyio

RATES = st.floats(0, 1)
TIMES = st.floats(1e-4, 1.0)


@given(acceptance=RATES, depth=st.integers(1, 16))
def test_expected_tokens_is_the_sum_of_the_acceptance_of_each_position(acceptance: float, depth: int) -> None:
    assert math.isclose(
        expected_tokens(acceptance, depth), sum(acceptance**i for i in range(depth + 1)), rel_tol=1e-6
    )


@given(acceptance=RATES, draft_s=TIMES, verify_s=TIMES)
def test_the_best_draft_length_has_the_highest_rate(
    acceptance: float, draft_s: float, verify_s: float
) -> None:
    best = best_draft_length(acceptance, draft_s=draft_s, verify_s=verify_s)
    rate = tokens_per_second(acceptance, best, draft_s=draft_s, verify_s=verify_s)
    for depth in range(1, 17):
        assert rate >= tokens_per_second(acceptance, depth, draft_s=draft_s, verify_s=verify_s)


def test_a_slow_target_and_a_high_acceptance_rate_give_longer_drafts() -> None:
    assert best_draft_length(0.9, draft_s=0.005, verify_s=0.5) > best_draft_length(
        0.9, draft_s=0.005, verify_s=0.02
    )
    assert best_draft_length(0.9, draft_s=0.01, verify_s=0.2) > best_draft_length(
        0.4, draft_s=0.01, verify_s=0.2
    )
    assert best_draft_length(0.0, draft_s=0.01, verify_s=0.2) == 1
    assert best_draft_length(1.0, draft_s=0.0, verify_s=0.2, longest=6) == 6


def _controller(
    token_s: float, verify_s: float, accepted: int, draft_s: float = 0.002
) -> DraftLengthController:
    controller = DraftLengthController(calibration=(8, verify_s + 7 * token_s))
    for _ in range(12):
        controller.note(4, accepted, draft_s=4 * draft_s, verify_s=verify_s)
    return controller


def test_the_controller_gives_up_only_if_the_target_alone_is_faster() -> None:
    assert _controller(token_s=0.05, verify_s=0.06, accepted=4).next_length(100) is not None
    assert _controller(token_s=0.001, verify_s=0.06, accepted=4).next_length(100) is None
    assert _controller(token_s=0.05, verify_s=0.06, accepted=0).next_length(100) is None
    assert math.isclose(_controller(token_s=0.05, verify_s=0.06, accepted=4).token_s or 0, 0.05, rel_tol=1e-6)
    fixed = _controller(token_s=0.001, verify_s=0.06, accepted=0)
    fixed.fixed = 5
    assert fixed.next_length(100) == 5
    assert fixed.next_length(3) == 2  # with the target's own token, the three that remain
    assert fixed.next_length(1) == 0


def test_the_controller_does_not_give_up_after_one_round() -> None:
    controller = DraftLengthController(calibration=(8, 0.001))
    controller.note(4, 0, draft_s=1.0, verify_s=1.0)
    assert controller.next_length(100) == 4
    assert DraftLengthController(calibration=(1, 0.1)).token_s is None
    assert target_alone_is_faster(10, 100.0, token_s=0.001, verify_s=0.05)
    assert not target_alone_is_faster(10, 1000.0, token_s=0.01, verify_s=0.05)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=20))
def test_speculation_counts_keep_their_invariants(rounds: list[tuple[int, int]]) -> None:
    counts = RoundCounts()
    for drafted, accepted in rounds:
        counts.note(drafted, min(drafted, accepted))
    speculation = counts.speculation()
    if not rounds:
        assert (speculation.drafted, speculation.acceptance_rate, speculation.steps) == (None, None, None)
        return
    assert speculation.accepted is not None
    assert speculation.per_position is not None
    assert 0 <= speculation.accepted <= (speculation.drafted or 0)
    assert speculation.mean_accepted_length == 1 + speculation.accepted / len(rounds)
    assert all(0 <= share <= 1 for share in speculation.per_position)
    assert len(speculation.per_position) == max(drafted for drafted, _ in rounds)


TEXTS = st.text("abc", max_size=12)


@given(
    text=TEXTS,
    cuts=st.lists(st.integers(1, 4), max_size=12),
    stops=st.lists(st.text("abc", min_size=1, max_size=3), max_size=3),
)
def test_stop_strings_are_found_however_the_text_is_split(
    text: str, cuts: list[int], stops: list[str]
) -> None:
    def run(pieces: Sequence[str]) -> tuple[str, bool]:
        matcher, out = StopStringMatcher(stops), ""
        for piece in pieces:
            more, stopped = matcher.push(piece)
            out += more
            if stopped:
                return out, True
        return out + matcher.flush(), False

    pieces, rest = [], text
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    got = run([*pieces, rest])
    assert got == run(list(text))
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert got == ((text[: min(ends)[1]], True) if ends else (text, False))


def test_invalid_stop_strings_raise() -> None:
    for stop in ("", [""], [3]):
        with pytest.raises(BadRequestError, match="stop is"):
            StopStringMatcher(stop)


#: A vocabulary with tokens that split a character, that are a blank, and that end an answer.
WORDS = {1: b"Hello", 2: b" world", 3: "é".encode()[:1], 4: "é".encode()[1:], 5: b"</s>", 6: b"!", 7: b" "}
END = 5


def _decoded(ids: Sequence[int]) -> str:
    return b"".join(WORDS[i] for i in ids if i != END).decode("utf-8", "replace")


def _token(number: int, *, strip: bool = False) -> ScoringToken:
    text = WORDS[number].decode("utf-8", "replace")
    return ScoringToken(number, text.strip() or " " if strip else text)


def _detokenizer() -> tuple[RemoteDetokenizer, list[int]]:
    decode_calls: list[int] = []

    async def decode(ids: Sequence[int]) -> str:
        decode_calls.append(len(ids))
        return _decoded(ids)

    return RemoteDetokenizer(decode, [1]), decode_calls


@pytest.mark.parametrize("strip", [False, True])
async def test_scored_tokens_give_the_same_text_as_decoding_all_at_once(strip: bool) -> None:
    run = [1, 2, 3, 4, 6, 2, 3, 4, 3, 4, 7, 1]
    for size in range(1, 6):
        detokenizer, _ = _detokenizer()
        out = ""
        for at in range(0, len(run), size):
            tokens = [_token(i, strip=strip) for i in run[at : at + size]]
            taken, text = await detokenizer.append_scored(tokens)
            assert taken == len(tokens)
            out += text
        assert out == _decoded(run)
        assert detokenizer.ids == run


async def test_an_end_token_is_never_appended_from_scores() -> None:
    detokenizer, _ = _detokenizer()
    assert await detokenizer.append_scored([_token(1), _token(2), _token(END)]) == (2, "Hello world")
    assert await detokenizer.append_scored([_token(END)]) == (0, "")
    assert await detokenizer.append_scored([ScoringToken(END, "")]) == (0, "")
    assert await detokenizer.append_scored([_token(1), _token(END), _token(2)]) == (0, "")
    assert await detokenizer.append_scored([ScoringToken(2, None)]) == (0, "")  # without token texts
    assert detokenizer.ids == [1, 2]


async def test_learned_tokens_are_detokenized_without_a_decode_request() -> None:
    detokenizer, decode_calls = _detokenizer()
    detokenizer.learn([_token(1), _token(2)], "Hello world!")
    assert await detokenizer.append_scored([_token(2), _token(1), _token(2)]) == (3, " worldHello world")
    assert decode_calls == []
    detokenizer.learn([_token(6), _token(END)], "!")  # the text omits the second token: nothing is learned
    assert await detokenizer.append_scored([_token(6), _token(END)]) == (1, "!")
    assert decode_calls


async def test_an_incomplete_character_is_held_back_until_it_is_complete_or_flushed() -> None:
    detokenizer, _ = _detokenizer()
    assert await detokenizer.append_text([_token(3)], "\ufffd") == ""
    assert not detokenizer.is_character_complete
    assert await detokenizer.append_text([_token(4)], "\ufffd") == "é"
    assert detokenizer.is_character_complete
    assert await detokenizer.append_text([_token(3)], "\ufffd") == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""
    detokenizer, _ = _detokenizer()
    assert await detokenizer.append_text([_token(1), *[_token(3)] * 3], "Hello\ufffd\ufffd\ufffd") == "Hello"
    assert detokenizer.flush() == "\ufffd\ufffd\ufffd"


def _vllm(entries: list[Any], **more: Any) -> Any:
    choice = {"index": 0, "text": "x", "token_ids": [9], "prompt_logprobs": entries, **more}
    return Completion.construct(choices=[choice])


def _entry(*rows: tuple[int, int]) -> dict[str, Any]:
    return {
        str(number): {"logprob": -rank, "rank": rank, "decoded_token": f"t{number}"} for number, rank in rows
    }


ASK = ScoringRequest((1, 2), draft=(5, 6))


def test_vllm_ranks_decide_and_ties_are_undecided() -> None:
    seen = parse_vllm(_vllm([None, _entry((2, 1)), _entry((5, 1)), _entry((6, 2), (8, 1))]), ASK)
    assert [scored.is_greedy for scored in seen.draft_tokens] == [True, False]
    assert seen.draft_tokens[1].greedy_token == ScoringToken(8, "t8")
    tied = parse_vllm(_vllm([None, _entry((2, 1)), _entry((5, 1), (7, 1)), _entry((6, 3))]), ASK)
    assert [(scored.is_greedy, scored.greedy_token) for scored in tied.draft_tokens] == [
        (None, None),
        (None, None),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        _vllm([None, {}, {}], token_ids=None),
        _vllm([None, _entry((2, 1))]),
        _vllm([None, _entry((2, 1)), _entry((7, 1)), _entry((6, 1))]),
        _vllm([None, None, None, None]),
        _vllm(None),
        Completion.construct(choices=[]),
    ],
)
def test_vllm_responses_without_the_necessary_scores_raise(answer: Any) -> None:
    with pytest.raises(APIResponseValidationError, match="cannot verify a draft"):
        parse_vllm(answer, ASK)


def test_sglang_scores_are_aligned_at_the_end_and_must_cover_the_draft() -> None:
    meta = {
        "input_token_logprobs": [[None, 2, None], [-0.1, 5, "a"], [-3.0, 6, "b"]],
        "input_top_logprobs": [None, [[-0.1, 5, "a"]], [[-0.2, 8, "c"]]],
        "output_token_logprobs": [[-0.1, 9, "d"]],
        "finish_reason": {"type": "length"},
        "prompt_tokens": 4,
        "completion_tokens": 1,
    }
    answer = NativeGeneration.construct(text="d", meta_info=meta)
    seen = parse_sglang(answer, ASK)
    assert [(scored.is_greedy, scored.greedy_token) for scored in seen.draft_tokens] == [
        (True, (5, "a")),
        (False, (8, "c")),
    ]
    assert seen.new_tokens == (ScoringToken(9, "d"),)
    assert answer.usage is not None
    assert answer.usage.total_tokens == 5
    for changed in (
        {"input_top_logprobs": None},
        {"output_token_logprobs": None},
        {"input_token_logprobs": [[None, 2, None], [-0.1, 7, "a"], [-3.0, 6, "b"]]},
    ):
        with pytest.raises(APIResponseValidationError):
            parse_sglang(NativeGeneration.construct(text="d", meta_info={**meta, **changed}), ASK)
    assert NativeGeneration.construct(text="d", meta_info={"prompt_tokens": "4"}).usage is None


def test_without_ranks_a_token_is_decided_only_if_its_probability_is_conclusive() -> None:
    assert is_greedy_choice(math.log(0.6), ()) is True
    assert is_greedy_choice(math.log(0.49), ()) is None  # another token may have 0.51
    assert is_greedy_choice(math.log(0.4), [math.log(0.35)]) is True  # all others together have 0.25
    assert is_greedy_choice(math.log(0.3), [math.log(0.2)]) is None
    assert is_greedy_choice(math.log(0.3), [math.log(0.5)]) is False
    assert is_greedy_choice(None, ()) is None
    assert is_greedy_choice(math.log(0.4), [math.log(0.4)]) is None


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=6), st.integers(0, 5), st.integers(0, 5))
def test_a_decision_without_ranks_is_never_wrong(weights: list[float], own: int, shown: int) -> None:
    total = sum(weights)
    shares = [weight / total for weight in weights]
    own %= len(shares)
    others = [share for i, share in enumerate(shares) if i != own][:shown]
    verdict = is_greedy_choice(math.log(shares[own]), [math.log(share) for share in others])
    if verdict is not None:
        assert verdict == all(shares[own] > share for i, share in enumerate(shares) if i != own)


def test_a_prompt_tokenized_differently_is_scored_up_to_the_first_difference() -> None:
    def row(number: int) -> dict[str, Any]:
        return {"id": number, "text": "t", "logprob": -0.01}

    def details(*ids: int) -> Any:
        return NativeGeneration.construct(
            generated_text="x", details={"prefill": [row(i) for i in ids], "tokens": [row(9)]}
        )

    assert len(parse_tgi(details(1, 2, 5, 6), ASK).draft_tokens) == 2
    assert len(parse_tgi(details(1, 2, 5, 7), ASK).draft_tokens) == 1
    merged = parse_tgi(details(1, 7, 6), ASK)
    assert (len(merged.draft_tokens), merged.prompt) == (0, (1, 7))
    with pytest.raises(APIResponseValidationError):
        parse_tgi(NativeGeneration.construct(generated_text="x", details={}), ASK)
    logprobs = {"tokens": ["a"], "token_logprobs": [None]}
    without_ids = Completion.construct(choices=[{"text": "a", "logprobs": logprobs}])
    with pytest.raises(APIResponseValidationError, match="token_ids"):
        parse_echo(without_ids, ASK)
