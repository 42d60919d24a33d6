"""A batch, from its file to its results."""

import time

from openai import OpenAI
from openai.types import Batch

client = OpenAI()


def run(file_id: str) -> Batch:
    batch = client.batches.create(
        input_file_id=file_id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"job": "nightly"},
    )
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(60)
        batch = client.batches.retrieve(batch.id)
    return batch


done = run("file-1")
if done.request_counts is not None:
    print(done.request_counts.completed, done.request_counts.failed)
if done.output_file_id:
    for line in client.files.content(done.output_file_id).iter_lines():
        print(line)
for batch in client.batches.list(limit=20):
    print(batch.id, batch.status)
print(client.batches.cancel(done.id).cancelled_at)
