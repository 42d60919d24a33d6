"""A handled error is freed without the garbage collector, and its traceback holds no API key."""

from __future__ import annotations

import asyncio
import gc
import traceback
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from specclient import AsyncOpenAI, OpenAI, OpenAIError

ASK = [{"role": "user", "content": "hello"}]
KEY = "sk-a-key-that-no-frame-may-hold"
COMPLETE = ["400", "500", "reset", "bad-json"]
STREAMED = ["400", "page", "broken-stream", "bad-stream"]
KINDS = [(model, False) for model in COMPLETE] + [(model, True) for model in STREAMED]


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


Failing = Callable[[str, bool], OpenAIError]


@pytest.fixture(params=["sync", "async"])
def failing(request: pytest.FixtureRequest, far_server: str) -> Iterator[Failing]:
    """Return a function that makes a failing call and returns the error raised."""
    options: dict[str, Any] = {"base_url": far_server, "api_key": KEY, "max_retries": 0}
    asynchronous, synchronous = AsyncOpenAI(**options), OpenAI(**options)

    caught: list[OpenAIError] = []  # not the result of a task: asyncio's own frames would keep it alive

    async def awaited(model: str, stream: bool) -> None:
        try:
            answer = await asynchronous.chat.completions.create(model=model, messages=ASK, stream=stream)
            if stream:
                async for _ in answer:
                    pass
        except OpenAIError as error:
            caught.append(error)

    def waited_for(model: str, stream: bool) -> None:
        try:
            answer = synchronous.chat.completions.create(model=model, messages=ASK, stream=stream)
            list(answer if stream else ())
        except OpenAIError as error:
            caught.append(error)

    def call(model: str, stream: bool) -> OpenAIError:
        asyncio.run(awaited(model, stream)) if request.param == "async" else waited_for(model, stream)
        assert caught, f"{model} did not fail"
        return caught.pop()

    with synchronous:
        yield call
    asyncio.run(asynchronous.close())


@pytest.mark.parametrize(("model", "stream"), KINDS)
@pytest.mark.usefixtures("without_collector")
def test_a_handled_error_is_freed_without_the_garbage_collector(
    failing: Failing, model: str, stream: bool
) -> None:
    failing(model, stream)  # objects that only the first call creates are not tested here
    freed = weakref.ref(failing(model, stream))
    for _ in range(100):  # the loop's thread may not have left the call yet
        if freed() is None:
            return
        asyncio.run(asyncio.sleep(0.01))
    error = freed()
    assert error is None, [type(one) for one in gc.get_referrers(error)]


@pytest.mark.parametrize(("model", "stream"), KINDS)
def test_a_traceback_is_short_and_its_frames_hold_no_key(failing: Failing, model: str, stream: bool) -> None:
    error = failing(model, stream)
    steps = list(traceback.walk_tb(error.__traceback__))
    assert len(steps) <= 30
    for frame, _ in steps:
        assert KEY not in _shown(frame), f"{frame.f_code.co_name} holds the key"


def test_tracebacks_do_not_grow_from_one_failing_call_to_the_next(failing: Failing) -> None:
    lengths = [len(traceback.extract_tb(failing("400", False).__traceback__)) for _ in range(5)]
    assert len(set(lengths[1:])) == 1


def _shown(frame: FrameType) -> str:
    """Return the locals that a crash reporter would show of a frame; nothing for frames of this file."""
    return "" if frame.f_code.co_filename == __file__ else repr(frame.f_locals)
