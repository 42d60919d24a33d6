"""Answer the prompts of a file, resume an interrupted run, and use the records as they arrive."""

import asyncio
import json
from pathlib import Path

from specclient import batch

LINES, RECORDS = Path("prompts.jsonl"), Path("answers.jsonl")


async def main() -> None:
    """Do the same as `specclient batch prompts.jsonl answers.jsonl -m local/demo --max-tokens 24`."""
    prompts = [{"id": name, "prompt": f"def {name}(items):\n"} for name in ("first", "last", "swap")]
    LINES.write_text("".join(json.dumps(line) + "\n" for line in prompts))

    for _ in range(2):  # the second run finds all lines done and sends no requests
        summary = await batch.run_file(LINES, RECORDS, model="local/demo", params={"max_tokens": 24})
        print(summary.answered, "answered,", summary.skipped, "done before,", summary.cost, "dollars")
    for line in RECORDS.read_text().splitlines():
        record = json.loads(line)
        print(record["id"], repr(record["output"]))

    # A list of lines in OpenAI's batch format; records in input order; a limit on the cost in dollars.
    messages = [{"role": "user", "content": "import json\n"}]
    body = {"model": "local/demo", "messages": messages, "max_tokens": 8}
    lines = [{"custom_id": f"c{i}", "url": "/v1/chat/completions", "body": body} for i in range(3)]
    async for record in batch.run(lines, ordered=True, max_cost=0.05):
        response = record.data["response"]
        print(record.id, response["status_code"], response["body"]["usage"], record.cost)


asyncio.run(main())
