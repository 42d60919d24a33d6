"""Many calls from a file of lines into a file of records: streamed, resumable, within a budget.

    async for record in specclient.batch.run("in.jsonl", model="openai/gpt-4.1-mini"):
        print(record.id, record.ok, record.cost, record.data)

:func:`run` serves lines and yields records; :func:`run_file` writes them to a file, and goes on in it where
an earlier run ended. A line is one of OpenAI's batch files, or plain; see :mod:`specclient.batch.lines`, and
for what is written :mod:`specclient.batch.records`.
"""

from __future__ import annotations

from specclient.batch.file_runner import BatchSummary, run_file
from specclient.batch.records import Record
from specclient.batch.runner import run

__all__ = ["BatchSummary", "Record", "run", "run_file"]
