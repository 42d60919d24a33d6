"""The batch APIs of vendors: OpenAI's, which many others have, too, and Anthropic's Message Batches.

Sources: OpenAI, "Batch API" (at most 50,000 requests and 200 MB a job, one endpoint and one model);
Anthropic, "Batch processing" (at most 100,000 requests and 256 MB a job).
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from pydantic_core import to_json

from specclient.batch.jobs.job_log import VendorJob
from specclient.call import unmetered
from specclient.client.core import ClientCore
from specclient.errors import ConfigurationError
from specclient.providers import Endpoint
from specclient.resources.table.index import rows_of
from specclient.resources.table_resources import request_of
from specclient.types.api_method import ApiMethod
from specclient.types.request import PerCallOptions, Request

__all__ = ["JobLine", "JobStatus", "VendorApi", "api_of"]

#: The key of OpenAI's ``metadata`` that marks a job, by its token.
_MARK: Final = "specclient"
#: An id, which becomes a part of a path.
_ID: Final = re.compile(r"[\w-]{1,256}")
_ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
#: How long before its note a job of Anthropic's may seem to be created, by another clock.
_CLOCKS = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class JobLine:
    """A request of a job.

    Attributes:
        url: the path of its method, such as ``/v1/chat/completions``.
        body: its JSON, as the provider has it.
    """

    url: str
    body: bytes


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job.

    Attributes:
        ended: whether all its results are there.
        outputs: the ids by which they are read, if it has ended.
        problem: why the provider refused the whole job; None if it did not.
    """

    ended: bool
    outputs: tuple[str, ...] = ()
    problem: str | None = None


class VendorApi(Protocol):
    """A batch API."""

    #: The most lines and bytes of a job, and whether all its lines have one method and one model.
    most_lines: int
    most_bytes: int
    uniform: bool

    async def create(self, job: VendorJob, lines: Sequence[JobLine]) -> str:
        """Create a job; return its id."""
        ...

    async def find(self, job: VendorJob) -> str | None:
        """Return the id of a job that may have been created before a crash; None if there is none."""
        ...

    async def status(self, identity: str) -> JobStatus:
        """Return the status of a job."""
        ...

    def read(self, output: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an output."""
        ...


def api_of(core: ClientCore, provider: str) -> VendorApi:
    """Return the batch API of a provider.

    Raises:
        ConfigurationError: the provider has none that is known.
    """
    destination = core.pipeline.destinations.get(provider)
    if isinstance(destination, Endpoint) and destination.dialect == "openai":
        return _OpenAIJobs(core, provider)
    if isinstance(destination, Endpoint) and destination.dialect == "anthropic" and destination.place is None:
        return _AnthropicJobs(core, provider)
    raise ConfigurationError(
        f"specclient knows no batch API of provider {provider!r}; jobs need OpenAI's or Anthropic's. Send "
        "the lines as single calls: without --job, or by run_file"
    )


@dataclass(slots=True)
class _Jobs:
    core: ClientCore
    provider: str

    async def _json(self, verb: str, path: str, content: bytes | None = None) -> Mapping[str, Any]:
        """Return the answer to a call by path; a call that creates something is sent once."""
        method = ApiMethod(name=verb, verb=verb, path=path, response_type=object)
        options = PerCallOptions() if content is None else PerCallOptions(max_retries=0)
        request = Request(method, content=content, provider=self.provider, options=options)
        answer = await self.core.pipeline.call(request)
        if not isinstance(answer, dict):
            raise ConfigurationError(f"the answer to {verb} {path} is {answer!r:.60}, no object")
        return answer

    async def _bytes(self, path: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an answer, without booking the lines in it."""
        pipeline, method = (
            self.core.pipeline,
            ApiMethod(name="GET", verb="GET", path=path, response_type=bytes),
        )
        await pipeline.ensure_transport()
        request = Request(method, provider=self.provider)
        answer = unmetered.stream_bytes(request, pipeline.destinations, pipeline.transport)
        async with aclosing(answer):
            await anext(answer)
            async for pieces in answer:
                for piece in pieces:
                    yield piece


class _OpenAIJobs(_Jobs):
    most_lines, most_bytes, uniform = 50_000, 200_000_000, True

    async def create(self, job: VendorJob, lines: Sequence[JobLine]) -> str:
        content = b"".join(
            b'{"custom_id": "%b", "method": "POST", "url": "%b", "body": %b}\n'
            % (job.custom_id(index).encode(), line.url.encode(), line.body)
            for index, line in enumerate(lines)
        )
        given = {"file": (f"{job.token}.jsonl", content), "purpose": "batch"}
        upload = replace(request_of(rows_of("files")["create"], given), provider=self.provider)
        file = await self.core.pipeline.call(upload)
        batch = {
            "input_file_id": file.id,
            "endpoint": lines[0].url,
            "completion_window": "24h",
            "metadata": {_MARK: job.token},
        }
        return _id_of(await self._json("POST", "/batches", to_json(batch)))

    async def find(self, job: VendorJob) -> str | None:
        after = ""
        while True:
            page = await self._json("GET", f"/batches?limit=100{after}")
            found = _objects(page.get("data"))
            for batch in found:
                metadata = batch.get("metadata")
                if isinstance(metadata, dict) and metadata.get(_MARK) == job.token:
                    return _id_of(batch)
            if not found or page.get("has_more") is not True:
                return None
            oldest = found[-1].get("created_at")
            if not isinstance(oldest, int) or oldest < (job.noted - _CLOCKS).timestamp():
                return None
            after = f"&after={_id_of(found[-1])}"

    async def status(self, identity: str) -> JobStatus:
        batch = await self._json("GET", f"/batches/{identity}")
        status = batch.get("status")
        if status not in _ENDED:
            return JobStatus(ended=False)
        files = (batch.get("output_file_id"), batch.get("error_file_id"))
        outputs = tuple(file for file in files if isinstance(file, str) and file)
        if status != "failed":
            return JobStatus(ended=True, outputs=outputs)
        errors = batch.get("errors")
        listed = _objects(errors.get("data") if isinstance(errors, dict) else None)
        reasons = "; ".join(str(each.get("message")) for each in listed[:3])
        return JobStatus(ended=True, outputs=outputs, problem=reasons or "the provider refused the job")

    def read(self, output: str) -> AsyncGenerator[bytes, None]:
        return self._bytes(f"/files/{output}/content")


class _AnthropicJobs(_Jobs):
    most_lines, most_bytes, uniform = 100_000, 256_000_000, False

    async def create(self, job: VendorJob, lines: Sequence[JobLine]) -> str:
        requests = b", ".join(
            b'{"custom_id": "%b", "params": %b}' % (job.custom_id(index).encode(), line.body)
            for index, line in enumerate(lines)
        )
        content = b'{"requests": [%b]}' % requests
        return _id_of(await self._json("POST", "/messages/batches", content))

    async def find(self, job: VendorJob) -> str | None:
        """Return the job that was created since the note with as many lines.

        Jobs have no metadata; the results show by the token in ``custom_id`` whether it is the right one.
        """
        page = await self._json("GET", "/messages/batches?limit=100")
        for batch in _objects(page.get("data")):
            counts = batch.get("request_counts")
            sent = [count for count in counts.values() if isinstance(count, int)] if counts else []
            created = datetime.fromisoformat(str(batch.get("created_at")))
            if created >= job.noted - _CLOCKS and sum(sent) == len(job.lines):
                return _id_of(batch)
        return None

    async def status(self, identity: str) -> JobStatus:
        batch = await self._json("GET", f"/messages/batches/{identity}")
        ended = batch.get("processing_status") == "ended"
        return JobStatus(ended=ended, outputs=(identity,) if ended else ())

    def read(self, output: str) -> AsyncGenerator[bytes, None]:
        return self._bytes(f"/messages/batches/{output}/results")


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _id_of(values: Mapping[str, Any]) -> str:
    """Return the id of a job.

    Raises:
        ConfigurationError: the provider's answer has none.
    """
    identity = values.get("id")
    if not isinstance(identity, str) or not _ID.fullmatch(identity):
        raise ConfigurationError(f"the provider's answer names no batch job: its id is {identity!r:.60}")
    return identity
