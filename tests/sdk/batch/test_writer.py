"""Batches from file to file: resuming, repairing a truncated output file, and refusing files of others."""

from __future__ import annotations

import asyncio
import io
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from batch_server import BatchServer, records, write_lines

from specclient import AsyncOpenAI, ConfigurationError
from specclient.batch import BatchSummary, run_file
from specclient.batch.line_index import LineIndex
from specclient.batch.writer import RecordFile

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with BatchServer() as server:
        yield server


@pytest.fixture
async def client(server: BatchServer, tmp_path: Path) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(config=server.configuration(tmp_path), max_retries=0) as client:
        yield client


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Plain lines with and without ids, one that fails, one of OpenAI's form, and an invalid one."""
    chat = {"model": "mine/m", "messages": [{"role": "user", "content": "four"}]}
    return write_lines(
        tmp_path / "in.jsonl",
        [
            {"prompt": "one"},
            {"prompt": "two", "id": "2"},
            {"prompt": "fail 400", "id": "3"},
            {"custom_id": "2", "method": "POST", "url": "/v1/chat/completions", "body": chat},
            "no object",
        ],
    )


def line_counts(summary: BatchSummary) -> tuple[int, int, int, int]:
    return summary.answered, summary.failed, summary.skipped, summary.failed_before


async def test_a_second_run_skips_answered_lines_and_retries_failed_ones(
    client: AsyncOpenAI, server: BatchServer, lines: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    progress: list[int] = []
    summary = await run_file(
        lines, out, client=client, watch=lambda s: progress.append(s.answered + s.failed)
    )
    assert line_counts(summary) == (3, 2, 0, 0)
    assert progress == [1, 2, 3, 4, 5]
    assert summary.cost == Decimal("0.006")
    assert summary.read_bytes == lines.stat().st_size
    assert summary.reasons == {
        "BadRequestError: Error code: 400 - no fail 400": (1, (3,)),
        "is not a JSON object": (1, (5,)),
    }
    first = records(out)

    summary = await run_file(lines, out, client=client, retry_failed=False)
    assert line_counts(summary) == (0, 0, 5, 2)
    assert records(out) == first

    summary = await run_file(lines, out, client=client)
    assert line_counts(summary) == (0, 2, 3, 0)
    assert sorted(map(str, records(out))) == sorted(map(str, first))

    server.recovered = True
    summary = await run_file(lines, out, client=client)
    assert line_counts(summary) == (1, 1, 3, 0)
    assert summary.cost == Decimal("0.010"), "the cost includes earlier runs"
    assert server.request_counts == {"one": 1, "two": 1, "four": 1, "fail 400": 3}
    assert len(records(out)) == 5


@pytest.mark.parametrize("keep", [1, 30, -2, -1])
async def test_a_truncated_last_record_is_removed_and_its_line_run_again(
    client: AsyncOpenAI, server: BatchServer, lines: Path, tmp_path: Path, keep: int
) -> None:
    out = tmp_path / "out.jsonl"
    await run_file(lines, out, client=client, concurrency=1)
    whole = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(whole[:1]) + whole[1][:keep])  # as after SIGKILL during a write
    summary = await run_file(lines, out, client=client)
    assert line_counts(summary)[:3] == (
        (1, 2, 2) if keep == -1 else (2, 2, 1)
    )  # -1: only the newline is missing
    assert {str(r.get("custom_id", r["id"])) for r in records(out)} == {"1", "2", "3", "5"}
    assert len(records(out)) == 5
    assert server.request_counts["two"] == (1 if keep == -1 else 2)


async def test_of_two_records_of_a_line_the_first_is_kept(
    client: AsyncOpenAI, lines: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    await run_file(lines, out, client=client)
    first = records(out)
    out.write_text(out.read_text() * 2)
    await run_file(lines, out, client=client, retry_failed=False)
    assert records(out) == first


@pytest.mark.parametrize(
    "content",
    [
        '{"prompt": "mine"}\n',
        "notes\n",
        "notes",
        '{"id": 1, "prompt": "mine"}',
        '{"id": 1, "output": "x", "error": null}\n\n',
    ],
)
async def test_files_that_are_no_batch_output_are_not_overwritten(
    client: AsyncOpenAI, server: BatchServer, lines: Path, tmp_path: Path, content: str
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(content)
    with pytest.raises(ConfigurationError, match=r"line \d of .*out.jsonl is not a batch record"):
        await run_file(lines, out, client=client)
    assert out.read_text() == content
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match="is the source"):
        await run_file(lines, tmp_path / "folder" / ".." / lines.name, client=client)
    with pytest.raises(ConfigurationError, match="there is no file"):
        await run_file(tmp_path / "nowhere", tmp_path / "new", client=client)
    assert not (tmp_path / "new").exists()
    assert not server.request_counts


async def test_an_output_file_is_locked_by_its_batch(
    client: AsyncOpenAI, lines: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    other = RecordFile(out, LineIndex(), retry_failed=True)
    with pytest.raises(ConfigurationError, match="another batch is writing"):
        await run_file(lines, out, client=client)
    other.close()
    await run_file(lines, out, client=client)
    other = RecordFile(out, LineIndex(), retry_failed=True)  # the rewritten file is locked as well
    with pytest.raises(ConfigurationError, match="another batch is writing"):
        await run_file(lines, out, client=client)
    other.close()
    assert [path.name for path in tmp_path.iterdir() if "rewritten" in path.name] == []


async def test_a_rewritten_file_keeps_its_mode(client: AsyncOpenAI, lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    await run_file(lines, out, client=client)
    out.chmod(0o600)
    await run_file(lines, out, client=client)
    assert out.stat().st_mode & 0o777 == 0o600


async def test_duplicates_remain_errors_in_later_runs(
    client: AsyncOpenAI, server: BatchServer, tmp_path: Path
) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [{"prompt": p, "id": "a"} for p in ("slow one", "two")])
    out = tmp_path / "out.jsonl"
    for retry in (False, False, True, True):
        await run_file(lines, out, client=client, retry_failed=retry)
        assert sorted(str(r["output"]) for r in records(out)) == ["None", "SLOW ONE"]
    assert server.request_counts == {"slow one": 1}


async def test_streams_and_devices_can_be_outputs(client: AsyncOpenAI, lines: Path) -> None:
    out = io.BytesIO()
    summary = await run_file(io.BytesIO(lines.read_bytes()), out, client=client)
    assert line_counts(summary)[:2] == (3, 2)
    assert len([json.loads(line) for line in out.getvalue().splitlines()]) == 5
    assert line_counts(await run_file(lines, "/dev/null", client=client))[:2] == (3, 2)


async def test_a_batch_stopped_by_max_cost_resumes_with_a_higher_one(
    client: AsyncOpenAI, server: BatchServer, tmp_path: Path
) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [{"prompt": f"p{i}", "max_tokens": 1} for i in range(30)])
    out = tmp_path / "out.jsonl"
    summary = await run_file(lines, out, client=client, max_cost="0.02")
    assert "run it again with a higher limit" in summary.stopped
    assert summary.cost <= Decimal("0.02")
    sent = sum(server.request_counts.values())
    assert sent == summary.answered == len(records(out)) > 0
    summary = await run_file(lines, out, client=client, max_cost="0.02")
    assert summary.answered == 0, "max_cost includes the cost of earlier runs"
    summary = await run_file(lines, out, client=client, max_cost="0.2")
    assert (summary.stopped, summary.answered + summary.skipped) == (None, 30)
    assert set(server.request_counts.values()) == {1}


async def test_the_summary_of_an_interrupted_batch_states_it(client: AsyncOpenAI, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [{"prompt": f"slow {i}"} for i in range(30)])
    stop = asyncio.Event()
    summary = await run_file(
        lines, tmp_path / "out.jsonl", client=client, stop=stop, watch=lambda _: stop.set()
    )
    assert "interrupted" in summary.stopped
    assert len(records(tmp_path / "out.jsonl")) == summary.answered


async def test_the_number_of_error_reasons_is_limited(client: AsyncOpenAI, tmp_path: Path) -> None:
    many = [{"prompt": f"fail 400 for reason {i}"} for i in range(60)]
    summary = await run_file(write_lines(tmp_path / "in", many), tmp_path / "out", client=client)
    assert summary.failed == 60
    assert sum(count for count, _ in summary.reasons.values()) == 60
    assert len(summary.reasons) <= 21


def test_the_line_index_uses_little_memory() -> None:
    ids = LineIndex()
    tracemalloc.start()
    try:
        for i in range(100_000):
            assert ids.add_line(f"id {i}", i) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000  # SQLite's own memory is bounded by its cache
    assert (ids.add_line("id 7", 200_000), ids.add_line("id 99999", 200_001)) == (7, 99_999)
    ids.close()
