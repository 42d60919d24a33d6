"""Polling helpers of the OpenAI client, such as ``create_and_poll``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from specclient.resources.step_methods import ConcurrentStep, SleepStep, Steps
from specclient.resources.table_resources import sibling_of
from specclient.types.params import NOT_GIVEN, is_given

DEFAULT_POLL_MS = 1000
_RUN_ENDS = frozenset({"requires_action", "cancelled", "completed", "failed", "expired", "incomplete"})


def _poll(
    retrieve: Callable[..., Any],
    pending: Callable[[Any], bool],
    interval_ms: Any,
    *,
    what: str = "",
    max_wait_s: Any = NOT_GIVEN,
    headers: Mapping[str, Any] | None = None,
) -> Steps:
    """Retrieve an object until it is no longer pending, and return it.

    Args:
        retrieve: requests the raw response; takes ``extra_headers``.
        pending: returns whether the object is still pending.
        interval_ms: milliseconds between requests; if not given, the interval that the server's
            ``openai-poll-after-ms`` header requests, else one second.
        what: the object's name in the error message.
        max_wait_s: maximum seconds to wait; no limit if not given.

    Raises:
        TimeoutError: ``max_wait_s`` has passed.
    """
    marks: dict[str, Any] = {"X-Stainless-Poll-Helper": "true", **(headers or {})}
    if is_given(interval_ms):
        marks["X-Stainless-Custom-Poll-Interval"] = str(interval_ms)
    deadline = time.monotonic() + max_wait_s if is_given(max_wait_s) else math.inf
    while True:
        _remaining(deadline, what)
        response = yield retrieve(extra_headers=marks)
        found = response.parse()
        if not pending(found):
            return found
        if not is_given(interval_ms):
            interval_ms = int(response.headers.get("openai-poll-after-ms") or DEFAULT_POLL_MS)
        yield SleepStep(min(interval_ms / 1000, _remaining(deadline, what)))


def _remaining(deadline: float, what: str) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"Timed out waiting for {what} to finish processing")
    return left


def _check_wait(max_wait_seconds: Any) -> None:
    if is_given(max_wait_seconds) and not 0 <= max_wait_seconds < math.inf:
        raise ValueError("Expected a finite, non-negative value for `max_wait_seconds`")


def wait_for_processing(
    self: Any,
    id: str,  # noqa: A002  # the API's name
    *,
    poll_interval: float = 5.0,
    max_wait_seconds: float = 30 * 60,
) -> Steps:
    """Wait until a file has been processed, and return it.

    Args:
        poll_interval: seconds between requests.
        max_wait_seconds: maximum seconds to wait.

    Raises:
        RuntimeError: ``max_wait_seconds`` have passed.
    """
    start = time.monotonic()
    file = yield self.retrieve(id)
    while file.status not in ("processed", "error", "deleted"):
        yield SleepStep(poll_interval)
        file = yield self.retrieve(id)
        if time.monotonic() - start > max_wait_seconds:
            raise RuntimeError(
                f"Giving up on waiting for file {id} to finish processing after {max_wait_seconds} seconds."
            )
    return file


def poll_file(
    self: Any,
    file_id: str,
    *,
    vector_store_id: str,
    poll_interval_ms: Any = NOT_GIVEN,
    max_wait_seconds: Any = NOT_GIVEN,
) -> Steps:
    """Wait until a vector store has processed a file, and return it; its ``status`` tells whether it failed.

    Raises:
        TimeoutError: ``max_wait_seconds`` have passed.
    """
    _check_wait(max_wait_seconds)
    retrieve = partial(self.with_raw_response.retrieve, file_id, vector_store_id=vector_store_id)
    return (
        yield from _poll(
            retrieve,
            lambda file: bool(file.status == "in_progress"),
            poll_interval_ms,
            what=f"vector store file {file_id!r}",
            max_wait_s=max_wait_seconds,
        )
    )


def create_and_poll_file(
    self: Any,
    file_id: str,
    *,
    vector_store_id: str,
    attributes: Any = NOT_GIVEN,
    poll_interval_ms: Any = NOT_GIVEN,
    max_wait_seconds: Any = NOT_GIVEN,
    chunking_strategy: Any = NOT_GIVEN,
    extra_headers: Any = None,
    extra_query: Any = None,
    extra_body: Any = None,
    timeout: Any = NOT_GIVEN,
) -> Steps:
    """Add a file to a vector store and wait until it has been processed; see ``poll``."""
    _check_wait(max_wait_seconds)
    yield self.create(
        vector_store_id=vector_store_id,
        file_id=file_id,
        attributes=attributes,
        chunking_strategy=chunking_strategy,
        extra_headers=extra_headers,
        extra_query=extra_query,
        extra_body=extra_body,
        timeout=timeout,
    )
    return (
        yield self.poll(
            file_id,
            vector_store_id=vector_store_id,
            poll_interval_ms=poll_interval_ms,
            max_wait_seconds=max_wait_seconds,
        )
    )


def upload_file(self: Any, *, vector_store_id: str, file: Any, chunking_strategy: Any = NOT_GIVEN) -> Steps:
    """Upload a file and add it to a vector store, without waiting until it has been processed."""
    uploaded = yield sibling_of(self, "files").create(file=file, purpose="assistants")
    return (
        yield self.create(
            vector_store_id=vector_store_id, file_id=uploaded.id, chunking_strategy=chunking_strategy
        )
    )


def upload_and_poll_file(
    self: Any,
    *,
    vector_store_id: str,
    file: Any,
    attributes: Any = NOT_GIVEN,
    poll_interval_ms: Any = NOT_GIVEN,
    max_wait_seconds: Any = NOT_GIVEN,
    chunking_strategy: Any = NOT_GIVEN,
) -> Steps:
    """Upload a file, add it to a vector store and wait until it has been processed; see ``poll``."""
    _check_wait(max_wait_seconds)
    uploaded = yield sibling_of(self, "files").create(file=file, purpose="assistants")
    return (
        yield self.create_and_poll(
            vector_store_id=vector_store_id,
            file_id=uploaded.id,
            attributes=attributes,
            poll_interval_ms=poll_interval_ms,
            max_wait_seconds=max_wait_seconds,
            chunking_strategy=chunking_strategy,
        )
    )


def poll_batch(self: Any, batch_id: str, *, vector_store_id: str, poll_interval_ms: Any = NOT_GIVEN) -> Steps:
    """Wait until a vector store has processed every file of a batch, and return the batch."""
    retrieve = partial(self.with_raw_response.retrieve, batch_id, vector_store_id=vector_store_id)
    return (yield from _poll(retrieve, lambda batch: batch.file_counts.in_progress > 0, poll_interval_ms))


def create_and_poll_batch(
    self: Any,
    vector_store_id: str,
    *,
    attributes: Any = NOT_GIVEN,
    chunking_strategy: Any = NOT_GIVEN,
    file_ids: Any = NOT_GIVEN,
    files: Any = NOT_GIVEN,
    poll_interval_ms: Any = NOT_GIVEN,
    extra_headers: Any = None,
    extra_query: Any = None,
    extra_body: Any = None,
    timeout: Any = NOT_GIVEN,
) -> Steps:
    """Add a batch of files to a vector store and wait until all have been processed."""
    batch = yield self.create(
        vector_store_id=vector_store_id,
        attributes=attributes,
        chunking_strategy=chunking_strategy,
        file_ids=file_ids,
        files=files,
        extra_headers=extra_headers,
        extra_query=extra_query,
        extra_body=extra_body,
        timeout=timeout,
    )
    return (yield self.poll(batch.id, vector_store_id=vector_store_id, poll_interval_ms=poll_interval_ms))


def upload_and_poll_batch(
    self: Any,
    vector_store_id: str,
    *,
    files: Iterable[Any],
    max_concurrency: int = 5,
    file_ids: Sequence[str] = (),
    poll_interval_ms: Any = NOT_GIVEN,
    chunking_strategy: Any = NOT_GIVEN,
) -> Steps:
    """Upload files, ``max_concurrency`` at a time, and add them to a vector store as one batch.

    Args:
        file_ids: ids of files uploaded earlier, to add to the same batch.
    """
    create = sibling_of(self, "files").create
    calls = [partial(create, file=file, purpose="assistants") for file in files]
    uploaded = yield ConcurrentStep(calls, max_concurrency)
    return (
        yield self.create_and_poll(
            vector_store_id=vector_store_id,
            file_ids=[*file_ids, *(file.id for file in uploaded)],
            poll_interval_ms=poll_interval_ms,
            chunking_strategy=chunking_strategy,
        )
    )


def poll_video(self: Any, video_id: str, *, poll_interval_ms: Any = NOT_GIVEN) -> Steps:
    """Wait until a video is finished, and return it; its ``status`` tells whether it failed."""
    retrieve = partial(self.with_raw_response.retrieve, video_id)
    return (
        yield from _poll(retrieve, lambda video: video.status in ("queued", "in_progress"), poll_interval_ms)
    )


def create_and_poll_video(self: Any, *, poll_interval_ms: Any = NOT_GIVEN, **create: Any) -> Steps:
    """Create a video and wait until it is finished; takes the arguments of ``create``."""
    video = yield self.create(**create)
    return (yield self.poll(video.id, poll_interval_ms=poll_interval_ms))


def poll_run(  # noqa: PLR0917  # the OpenAI client's order
    self: Any,
    run_id: str,
    thread_id: str,
    extra_headers: Any = None,
    extra_query: Any = None,
    extra_body: Any = None,
    timeout: Any = NOT_GIVEN,
    poll_interval_ms: Any = NOT_GIVEN,
) -> Steps:
    """Wait until a run has ended or requires action, and return it."""
    retrieve = partial(
        self.with_raw_response.retrieve,
        run_id,
        thread_id=thread_id,
        extra_query=extra_query,
        extra_body=extra_body,
        timeout=timeout,
    )
    return (
        yield from _poll(
            retrieve, lambda run: run.status not in _RUN_ENDS, poll_interval_ms, headers=extra_headers
        )
    )


def create_and_poll_run(
    self: Any, *, thread_id: str, poll_interval_ms: Any = NOT_GIVEN, **create: Any
) -> Steps:
    """Start a run and wait for its end; takes the arguments of ``create``. See ``poll``."""
    run = yield self.create(thread_id=thread_id, **create)
    return (
        yield self.poll(run.id, thread_id=thread_id, poll_interval_ms=poll_interval_ms, **_common(create))
    )


def create_thread_and_poll(self: Any, *, poll_interval_ms: Any = NOT_GIVEN, **create: Any) -> Steps:
    """Start a thread with a run and wait for its end; takes the arguments of ``create_and_run``."""
    run = yield self.create_and_run(**create)
    return (
        yield self.runs.poll(
            run.id, thread_id=run.thread_id, poll_interval_ms=poll_interval_ms, **_common(create)
        )
    )


def submit_and_poll(
    self: Any, *, run_id: str, thread_id: str, poll_interval_ms: Any = NOT_GIVEN, **submit: Any
) -> Steps:
    """Submit tool outputs to a run and wait for its end; takes the arguments of ``submit_tool_outputs``."""
    run = yield self.submit_tool_outputs(run_id=run_id, thread_id=thread_id, **submit)
    return (
        yield self.poll(run.id, thread_id=thread_id, poll_interval_ms=poll_interval_ms, **_common(submit))
    )


def _common(given: Mapping[str, Any]) -> dict[str, Any]:
    names = ("extra_headers", "extra_query", "extra_body", "timeout")
    return {name: given[name] for name in names if name in given}
