"""The engine's public interface: answers, streams, stops, limits, slots, cancellation, errors."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest
import torch
from specclient_local.decoding.speculate import Speculator
from specclient_local.engine.answer import only_last
from specclient_local.model.decoder_runner import DecoderRunner
from tiny_models import load

from specclient.errors import BadRequestError, ConfigurationError, ContextOverflowError, EngineError

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def engine(checkpoint):
    with load(checkpoint(eos_token_id=None), checkpoint(eos_token_id=None, seed=4), slots=2) as engine:
        yield engine


@pytest.fixture
def unstarted(checkpoint):
    """Load an engine whose worker thread is not started; tests call ``step`` themselves."""
    with load(checkpoint(eos_token_id=None), slots=2) as engine:
        yield engine


def drain(engine):
    while engine.step():
        pass


def test_stream_pieces_join_to_the_answer(engine):
    pieces = list(engine.stream("def f(x):", max_tokens=30, draft_length=3))
    whole = pieces[-1].generation
    assert [p.generation for p in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert "".join(p.text for p in pieces) == whole.text == engine.tokenizer.decode(whole.token_ids)
    assert [i for p in pieces for i in p.token_ids] == whole.token_ids
    assert len(whole.token_ids) == 30
    assert whole.prompt_tokens == len(engine.tokenizer.encode("def f(x):"))
    assert pieces[-1].finish_reason == whole.finish_reason == "length"
    assert all("".join(text for text, _ in p.segments) == p.text for p in pieces)
    assert len(pieces) == whole.speculation.steps


def test_a_reader_of_the_whole_answer_gets_only_the_event_that_ends_it(unstarted):
    events = []
    unstarted.add("def f(x):", only_last(events.append), max_tokens=9)
    drain(unstarted)
    assert [len(event.generation.token_ids) for event in events] == [9]
    unstarted.add("def f(x):", only_last(events.append), max_tokens=9)
    unstarted.close()
    assert isinstance(events[1], EngineError)


def test_pieces_mark_which_tokens_were_drafted(checkpoint):
    same = checkpoint(eos_token_id=None)
    with load(same, same) as engine:
        pieces = list(engine.stream("x", max_tokens=11, draft_length=4))
    assert [p.drafted for p in pieces] == [(True,) * 4 + (False,)] * 2 + [(False,)]
    flags = [flag for p in pieces for _, flag in p.segments]
    assert {True, False} == set(flags)
    assert pieces[-1].generation.speculation.acceptance_rate == 1.0
    assert pieces[-1].generation.speculation.mean_accepted_length == 1 + 8 / 3


def test_new_tokens_equal_steps_plus_accepted_tokens(engine):
    for options in ({"method": "plain"}, {"draft_length": 0}, {"draft_length": 5}, {}):
        answer = engine.generate("import", max_tokens=25, **options)
        figures = answer.speculation
        assert len(answer.token_ids) == figures.steps + figures.accepted


def test_timings_add_up(engine):
    timings = engine.generate("def f(x):", max_tokens=10).timings
    assert 0 < timings.prefill_s + timings.decode_s == timings.engine_s
    assert 0 <= timings.queue_s <= timings.ttft_s


def test_an_end_token_ends_the_answer_and_adds_no_text(checkpoint, engine):
    plain = engine.generate("def f(x):", max_tokens=30).token_ids
    end = plain[7]
    with load(checkpoint(eos_token_id=end), checkpoint(eos_token_id=end, seed=4)) as ending:
        for length in (0, 3):
            answer = ending.generate("def f(x):", max_tokens=30, draft_length=length)
            assert answer.finish_reason == "stop"
            assert answer.token_ids == plain[: plain.index(end) + 1]
            assert answer.text == engine.tokenizer.decode(plain[: plain.index(end)])


def test_a_stop_string_appears_in_neither_answer_nor_stream(engine):
    free = engine.generate("def f(x):", max_tokens=40)
    stop = free.text[9:13]
    for length in (0, 4):
        pieces = list(engine.stream("def f(x):", max_tokens=40, stop=stop, draft_length=length))
        answer = pieces[-1].generation
        assert answer.finish_reason == "stop"
        assert answer.text == free.text[: free.text.index(stop)]
        assert "".join(p.text for p in pieces) == answer.text
        assert answer.token_ids == free.token_ids[: len(answer.token_ids)]
        assert stop in engine.tokenizer.decode(answer.token_ids)
    assert engine.generate("def f(x):", max_tokens=40, stop=["never this"]).text == free.text


def test_the_context_is_never_exceeded(engine):
    room = engine.context - 5
    assert len(engine.generate([7] * 5, max_tokens=None, draft_length=8).token_ids) == room
    assert len(engine.generate([7] * 5, max_tokens=room).token_ids) == room
    with pytest.raises(ContextOverflowError, match=f"5 prompt tokens and {room + 1} new ones exceed"):
        engine.generate([7] * 5, max_tokens=room + 1)
    with pytest.raises(ContextOverflowError, match="128 prompt tokens and at least 1 new"):
        engine.generate([7] * 128, max_tokens=None)


def test_an_empty_prompt_becomes_the_start_token(engine, checkpoint):
    assert engine.generate("", max_tokens=5).token_ids == engine.generate([0], max_tokens=5).token_ids
    assert engine.generate([], max_tokens=5).prompt_tokens == 1
    with (
        load(checkpoint(bos_token_id=None)) as startless,
        pytest.raises(BadRequestError, match="no start"),
    ):
        startless.generate("", max_tokens=5)


@pytest.mark.parametrize("prompt", [[1, 300], [-1], ["x"], [True], [1.0], 5, None])
def test_a_prompt_with_invalid_token_ids_is_rejected(engine, prompt):
    with pytest.raises(BadRequestError, match=r"prompt is .*token ids from 0 to 299"):
        engine.generate(prompt)


def test_numpy_and_torch_integers_are_accepted_as_token_ids(engine):
    expected = engine.generate([5, 6], max_tokens=3).token_ids
    assert engine.generate(np.array([5, 6]), max_tokens=3).token_ids == expected
    assert engine.generate(torch.tensor([5, 6]), max_tokens=3).token_ids == expected


def test_an_unavailable_method_is_rejected_with_how_to_load_it(checkpoint):
    with load(checkpoint()) as plain:
        assert plain.method == "plain"
        for method, way in (
            ("draft", r"without a draft; load it with one \(draft=, --draft\)"),
            ("union", r"without a draft; load it with one"),
            ("eagle", r"without heads for 'eagle'; load it with heads .*for demo bundled:eagle3"),
            ("medusa", r"without heads for 'medusa'; load it with heads .*for demo bundled:medusa"),
            ("layer_skip", r"without drafting layers; .*--layer-skip N"),
        ):
            with pytest.raises(BadRequestError, match=f"method is .{method}.*loaded {way}"):
                plain.generate("x", method=method)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "method is 'magic'; allowed are auto, plain, draft"),
        ({"method": "draft"}, "draft is None; name a draft model"),
        ({"slots": 0}, "slots is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"dtype": "fp32"}, "dtype is 'fp32'; allowed are float32, bfloat16, float16"),
        ({"context": 129}, "context is 129; allowed is 2 to 128"),
    ],
)
def test_loading_checks_its_arguments(checkpoint, options, message):
    with pytest.raises(ConfigurationError, match=message):
        load(checkpoint(), **options)


def test_waiting_requests_get_slots_in_order_and_cancellation_frees_a_slot_at_once(unstarted):
    engine = unstarted
    events = {i: [] for i in range(4)}
    numbers = [engine.add([7] * 3, events[i].append, max_tokens=60, method="plain") for i in range(4)]
    for _ in range(3):
        engine.step()
    assert [bool(events[i]) for i in range(4)] == [True, True, False, False]
    engine.cancel(numbers[0])
    seen = len(events[0])
    engine.step()
    engine.step()
    assert len(events[0]) == seen
    assert events[2]
    assert not events[3]
    drain(engine)
    assert [events[i][-1].generation is not None for i in range(4)] == [False, True, True, True]
    assert events[3][-1].generation.timings.queue_s > 0
    engine.cancel(numbers[1])
    assert engine.generate("x", max_tokens=3).finish_reason == "length"


def test_an_exception_fails_only_its_own_request(engine, monkeypatch):
    original = Speculator._keep

    def crashing(self, move, verdict):
        if move.sequence.params.seed == 13:
            raise RuntimeError("broken on purpose")
        return original(self, move, verdict)

    monkeypatch.setattr(Speculator, "_keep", crashing)
    good, bad = [], []
    engine.add("x", bad.append, max_tokens=20, seed=13)
    engine.add("x", good.append, max_tokens=20)
    drain(engine)
    assert isinstance(bad[-1], EngineError)
    assert "RuntimeError: broken on purpose" in str(bad[-1])
    assert len(good[-1].generation.token_ids) == 20
    with pytest.raises(EngineError, match="broken on purpose"):
        engine.generate("x", seed=13, max_tokens=5)
    monkeypatch.undo()
    assert engine.generate("x", max_tokens=20).token_ids == good[-1].generation.token_ids


def test_a_failing_sink_stops_only_its_own_request(engine, caplog):
    def failing(event):
        raise ValueError("no reader")

    good = []
    engine.add("x", failing, max_tokens=50)
    engine.add("x", good.append, max_tokens=10)
    drain(engine)
    assert good[-1].generation is not None
    assert "its sink failed" in caplog.text


def test_threads_share_the_engine(engine):
    prompts = [f"def f{i}(x):" for i in range(8)]
    alone = [engine.generate(p, max_tokens=20).token_ids for p in prompts]
    together: dict[int, list[int]] = {}

    def ask(i):
        together[i] = engine.generate(prompts[i], max_tokens=20).token_ids

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i] for i in range(8)] == alone


async def test_tasks_share_the_engine(engine):
    prompts = [f"class C{i}:" for i in range(5)]

    async def ask(prompt):
        return [piece async for piece in engine.astream(prompt, max_tokens=15)][-1].generation.token_ids

    together = await asyncio.gather(*(ask(p) for p in prompts))
    assert together == [engine.generate(p, max_tokens=15).token_ids for p in prompts]


async def test_a_cancelled_task_frees_its_slot(engine):
    async def endless():
        async for _ in engine.astream("x", max_tokens=None):
            pass

    tasks = [asyncio.create_task(endless()) for _ in range(6)]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [p async for p in engine.astream("x", max_tokens=3)][-1].generation is not None
    drain(engine)
    assert not engine.unfinished
    assert not engine._worker.batch.scheduler.running
    assert not engine._worker.batch.scheduler.waiting


def test_a_stream_closed_early_frees_its_slot(engine):
    for _ in range(3):
        stream = engine.stream("x", max_tokens=None)
        next(stream)
        stream.close()
    assert engine.generate("x", max_tokens=3).finish_reason == "length"


def test_the_worker_thread_ends_when_idle_and_restarts_on_demand(engine, monkeypatch):
    monkeypatch.setattr("specclient_local.engine.worker._LINGER_S", 0.01)
    engine.generate("x", max_tokens=2)
    deadline = time.monotonic() + 30
    while engine._worker._thread is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine._worker._thread is None
    assert engine.generate("x", max_tokens=2).finish_reason == "length"


def test_closing_fails_unfinished_requests_and_rejects_new_ones(checkpoint):
    engine, events = load(checkpoint()), []
    engine.add("x", events.append, max_tokens=50)
    engine.step()
    engine.close()
    engine.close()
    assert isinstance(events[-1], EngineError)
    assert "closed before the answer was complete" in str(events[-1])
    with pytest.raises(EngineError, match="closed; load another"):
        engine.generate("x", max_tokens=5)


def test_a_long_prefill_does_not_delay_other_requests(checkpoint, monkeypatch):
    folder = checkpoint(max_position_embeddings=2048, eos_token_id=None)
    rows = []
    original = DecoderRunner.run_pass
    monkeypatch.setattr(
        DecoderRunner,
        "run_pass",
        lambda r, parts, **kw: rows.append(sum(part.rows for part in parts)) or original(r, parts, **kw),
    )
    with load(folder, folder, slots=2) as engine:
        short, long = [], []
        engine.add([7] * 1500, long.append, max_tokens=2)
        engine.add([7] * 3, short.append, max_tokens=4)
        for _ in range(5):
            engine.step()
        assert short[-1].generation is not None
        assert not long
        while not long:
            rows.clear()
            engine.step()
            assert sum(rows) <= 2 * 256, "more than a chunk of each model in one step"
        drain(engine)
        assert long[-1].generation is not None


def test_a_draft_that_is_never_accepted_is_soon_no_longer_used(engine):
    answer = engine.generate("def f(x):", max_tokens=100)
    assert answer.speculation.drafted < 40


def test_a_prompt_longer_than_the_drafts_context_is_not_prefilled_in_the_draft(checkpoint):
    with load(checkpoint(), checkpoint(max_position_embeddings=24)) as engine:
        engine.add([7] * 40, lambda event: None, max_tokens=20)
        engine.step()
        assert engine._speculator.drafters["draft"].runner.length(0) == 0


def test_a_special_token_as_stop_string_ends_the_answer(checkpoint, engine):
    plain = engine.generate("def f(x):", max_tokens=30).token_ids
    special = plain[7]
    with load(checkpoint(eos_token_id=None)) as other:
        assert other.tokenizer.special("<|eos|>") == 1
        other.tokenizer._special["<|turn|>"] = special
        answer = other.generate("def f(x):", max_tokens=30, stop="<|turn|>")
    assert answer.finish_reason == "stop"
    assert answer.token_ids == plain[: plain.index(special) + 1]
