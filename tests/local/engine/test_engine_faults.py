"""Faults in the engine: forks, dead workers, sinks that raise or close it, overflow, thread counts."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading

import pytest
import torch
from specclient_local.drafting.draft_model import GrowingDraft
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.linear_kernels import KernelChooser
from specclient_local.model.logits_processors import RequestLogitsProcessor
from tiny_models import load

from specclient.errors import EngineError


@pytest.fixture(scope="module")
def engine(checkpoint):
    with load(checkpoint(eos_token_id=None), checkpoint(eos_token_id=None, seed=4), slots=2) as engine:
        yield engine


def drain(engine):
    while engine.step():
        pass


def stepped(engine, **params):
    """Run a request by calling ``step``, without the engine's worker thread."""
    sink = []
    engine.add("x" * 9, sink.append, **params)
    drain(engine)
    return sink[-1].generation


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("busy", [False, True])
def test_a_forked_child_can_generate(checkpoint, busy):
    with load(checkpoint(eos_token_id=None), slots=1) as engine:
        expected = engine.generate("x", max_tokens=5).token_ids
        if busy:  # a request of the parent holds the only slot, and the worker's lock is held
            engine.add("y", lambda event: None, max_tokens=50)
            engine.step()
            engine._worker._changed.acquire()
        child = os.fork()
        if child == 0:
            status = 1
            try:  # the child must never continue with the tests
                signal.alarm(30)
                status = int(engine.generate("x", max_tokens=5).token_ids != expected)
            finally:
                os._exit(status)
        if busy:
            engine._worker._changed.release()
        assert os.waitpid(child, 0)[1] == 0


def ask(engine, **params):
    """Generate in another thread with a time limit, so that a deadlock fails the test."""
    answer: concurrent.futures.Future = concurrent.futures.Future()

    def run():
        try:
            answer.set_result(engine.generate("x", **params))
        except EngineError as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer.result(20)


def test_a_worker_that_died_is_replaced(checkpoint):
    with load(checkpoint()) as engine:
        dead = threading.Thread(target=int)
        dead.start()
        dead.join()
        engine._worker._thread = dead
        assert ask(engine, max_tokens=2).finish_reason


def test_a_sink_that_raises_system_exit_stops_only_its_own_request(checkpoint, caplog):
    def leaving(event):
        raise SystemExit

    with load(checkpoint()) as engine:
        engine.add("x", leaving, max_tokens=50)
        assert ask(engine, max_tokens=5).finish_reason
    assert "its sink failed" in caplog.text


def test_an_exception_in_a_step_fails_present_requests_and_no_later_ones(checkpoint, monkeypatch):
    with load(checkpoint()) as engine:
        monkeypatch.setattr(engine._worker.batch.scheduler, "admit", lambda place: 1 / 0)
        with pytest.raises(EngineError, match="ZeroDivisionError"):
            ask(engine, max_tokens=5)
        monkeypatch.undo()
        assert ask(engine, max_tokens=2).finish_reason


@pytest.mark.parametrize("call", ["step", "generate", "generate_many", "stream"])
def test_a_blocking_call_from_a_sink_raises_instead_of_deadlocking(checkpoint, call):
    messages = []

    def waiting(event):
        try:
            if call == "step":
                engine.step()
            else:
                list(
                    getattr(engine, call)("x", **({"n": 2} if call == "generate_many" else {}), max_tokens=2)
                )
        except EngineError as error:
            messages.append(str(error))

    with load(checkpoint()) as engine:
        engine.add("x", waiting, max_tokens=3)
        stepping = threading.Thread(target=drain, args=(engine,), daemon=True)
        stepping.start()
        stepping.join(20)
        assert not stepping.is_alive(), "the sink did not return"
        assert len(messages) == 3
        assert f"{call}()" in messages[0]
        assert "called from a sink" in messages[0]
        assert ask(engine, max_tokens=2).finish_reason


@pytest.mark.parametrize("by", ["worker", "caller"])
def test_a_sink_may_close_the_engine(checkpoint, by):
    engine, events, others = load(checkpoint()), [], []

    def closing(event):
        events.append(event)
        engine.close()

    def work():
        engine._worker.start()
        engine._worker._thread.join(20)

    engine.add("x", closing, max_tokens=50)
    engine.add("x", others.append, max_tokens=50)
    stepping = threading.Thread(target=work if by == "worker" else lambda: drain(engine), daemon=True)
    stepping.start()
    stepping.join(20)
    assert not stepping.is_alive(), "close() did not return"
    assert all("closed before" in str(sink[-1]) for sink in (events, others))


@pytest.mark.parametrize("at_once", [True, False])
def test_non_finite_logits_fail_only_their_own_request(checkpoint, at_once):
    shape = {"eos_token_id": None, "tie_word_embeddings": False}
    with load(checkpoint(**shape), checkpoint(**shape, seed=4), slots=2) as engine:
        speculator = engine.speculator
        speculator.rounds = speculator.rounds if at_once else None
        want = engine.generate([5, 12], max_tokens=1).token_ids
        with torch.inference_mode():
            speculator.target.decoder.embedding[13] = torch.nan
        for own in ({"temperature": 0.0}, {"temperature": 1.0}, {"method": "plain"}, {"method": "ngram"}):
            with pytest.raises(EngineError, match="logits are not finite; load with float32 or bfloat16"):
                engine.generate([5, 13], max_tokens=4, **own)
        assert engine.generate([5, 12], max_tokens=1).token_ids == want


def test_an_exception_while_choosing_a_slot_fails_all_requests(checkpoint, monkeypatch):
    with load(checkpoint(eos_token_id=None), slots=1) as engine:
        sinks = [[], []]
        for sink in sinks:
            engine.add("x", sink.append, max_tokens=3)
        monkeypatch.setattr(engine.speculator, "place", lambda sequence, free: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
        monkeypatch.undo()
        assert all("ZeroDivisionError" in str(sink[-1]) for sink in sinks)
        assert stepped(engine, max_tokens=3).finish_reason == "length"


@pytest.mark.parametrize("always", [True, False])
def test_a_failing_logits_processor_affects_only_its_own_request(checkpoint, monkeypatch, always):
    shape = {"eos_token_id": None}
    with load(checkpoint(**shape), checkpoint(**shape, seed=4), slots=2) as engine:
        ruled = {"max_tokens": 12, "draft_length": 3, "logit_bias": {7: 1.0}}
        want = [stepped(engine, **own).token_ids for own in (ruled, {"max_tokens": 12})]
        original, drafting = GrowingDraft.shaped, []

        def shaped(self, logits):
            drafting.append(True)
            try:
                return original(self, logits)
            finally:
                drafting.pop()

        original_process = RequestLogitsProcessor.process
        monkeypatch.setattr(GrowingDraft, "shaped", shaped)
        monkeypatch.setattr(
            RequestLogitsProcessor,
            "process",
            lambda s, rows, paths: 1 / 0 if always or drafting else original_process(s, rows, paths),
        )
        sinks = [[], []]
        engine.add("x" * 9, sinks[0].append, **ruled)
        engine.add("x" * 9, sinks[1].append, max_tokens=12, draft_length=3)
        drain(engine)
    assert sinks[1][-1].generation.token_ids == want[1]
    if always:
        assert "ZeroDivisionError" in str(sinks[0][-1])
    else:  # it fails only while drafting: the answer is completed without a draft, unchanged
        assert sinks[0][-1].generation.token_ids == want[0]
        assert sinks[0][-1].generation.speculation.drafted == 0


def test_a_slot_whose_cache_could_not_be_erased_is_reused_but_not_for_prefix_sharing(
    checkpoint, monkeypatch, caplog
):
    with load(checkpoint(eos_token_id=None), slots=1) as engine:
        want = stepped(engine, max_tokens=5, method="ngram").token_ids
        sink = []
        engine.add("x" * 9, sink.append, max_tokens=9, method="ngram")
        engine.step()
        with monkeypatch.context() as broken:
            broken.setattr(DecoderRunner, "keep", lambda self, slot, root, path: 1 / 0)
            broken.setattr(DecoderRunner, "erase", lambda self, slot: [][0])
            drain(engine)
        assert "ZeroDivisionError" in str(sink[-1])
        assert "slot 0 was not cleaned up" in caplog.text
        again = stepped(engine, max_tokens=5, method="ngram")
        assert (again.token_ids, again.cached_tokens) == (want, 0)


def test_the_engine_steps_under_its_own_thread_count(checkpoint):
    before = torch.get_num_threads()
    with load(checkpoint(), threads=2) as engine:
        seen = []
        engine.add("x", lambda event: seen.append(torch.get_num_threads()), max_tokens=3)
        drain(engine)
    assert set(seen) == {2}
    assert torch.get_num_threads() == before


def test_kernels_are_chosen_under_the_engines_thread_count(checkpoint, monkeypatch):
    seen = []
    monkeypatch.setattr("specclient_local.model.decoder.native_passes", lambda *given: None)
    original = KernelChooser._choose
    monkeypatch.setattr(
        KernelChooser, "_choose", lambda c, w: seen.append(torch.get_num_threads()) or original(c, w)
    )
    load(checkpoint(), threads=2).close()
    assert set(seen) == {2}
