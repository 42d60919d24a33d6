"""Batches: many calls from a file of lines to a file of records, resumable and within a budget.

    async for record in specclient.batch.run("in.jsonl", model="openai/gpt-4.1-mini"):
        print(record.id, record.ok, record.cost, record.data)

:func:`run` executes lines and yields records. :func:`run_file` writes the records to a file and resumes an
earlier run. :func:`run_jobs` sends the lines as batch jobs of their vendors, at the price of these. Lines are
in the format of OpenAI's batch files or in a plain one; see :mod:`specclient.batch.lines` for lines and
:mod:`specclient.batch.records` for records.
"""

from __future__ import annotations

from specclient.batch.file_runner import BatchSummary, run_file
from specclient.batch.jobs.job_runner import run_jobs
from specclient.batch.records import Record
from specclient.batch.runner import run

__all__ = ["BatchSummary", "Record", "run", "run_file", "run_jobs"]
