"""A loopback vendor with OpenAI's and Anthropic's batch APIs, which answers every line in capitals."""

from __future__ import annotations

import json
import re
from typing import Any

from loopback_server import OpenAIServer, Received, Wire, reply

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
CREATED = 1_795_176_000


class BatchVendor(OpenAIServer):
    """Runs batch jobs. A prompt ``fail`` is refused, and one ``expire`` has no result.

    Attributes:
        jobs: the jobs by id, with their lines.
        looks: how often a job is looked at before it has ended.
        lose_answer: whether a job is created and the connection then reset, without an answer.
    """

    def __init__(self) -> None:
        super().__init__(self._vendor)
        self.files: dict[str, bytes] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.lines: dict[str, list[Any]] = {}
        self.looks = 1
        self.lose_answer = False

    async def _vendor(self, received: Received, wire: Wire) -> None:
        path, verb = received.path.removeprefix("/v1"), received.method
        if verb == "POST" and self.lose_answer and path.endswith("batches"):
            self._created(path, received)
            return wire.reset()
        if path == "/files":
            identity = f"file-{len(self.files)}"
            found = re.search(rb'filename="[^"]*".*?\r\n\r\n(.*?)\r\n--', received.body, re.DOTALL)
            assert found is not None
            self.files[identity] = found[1]
            shown = {"id": identity, "object": "file", "bytes": 1, "created_at": 1, "filename": "x",
                     "purpose": "batch", "status": "processed"}  # fmt: skip
            return await _json(shown)(received, wire)
        if verb == "POST":
            return await _json(self._created(path, received))(received, wire)
        if path.endswith("/content"):
            return await reply(200, self.files[path.split("/")[2]])(received, wire)
        if path.endswith("/results"):
            return await reply(200, self._results(path.split("/")[3]))(received, wire)
        if path.endswith("/batches"):
            page = {"object": "list", "data": list(self.jobs.values())[::-1], "has_more": False}
            return await _json(page)(received, wire)
        return await _json(self._status(path.rpartition("/")[2]))(received, wire)

    def _created(self, path: str, received: Received) -> dict[str, Any]:
        identity = f"batch_{len(self.jobs)}"
        if path == "/batches":
            job = received.json | {
                "id": identity,
                "object": "batch",
                "status": "in_progress",
                "created_at": 2**33,
            }
            lines = [json.loads(line) for line in self.files[job["input_file_id"]].splitlines()]
            assert {line["url"] for line in lines} == {job["endpoint"]}
        else:
            lines = received.json["requests"]
            job = {
                "id": identity, "processing_status": "in_progress", "created_at": "2100-01-01T00:00:00Z",
                "request_counts": {"processing": len(lines)},
            }  # fmt: skip
        self.jobs[identity], self.lines[identity] = job | {"looks": 0}, lines
        return job

    def _status(self, identity: str) -> dict[str, Any]:
        job = self.jobs[identity]
        job["looks"] += 1
        if job["looks"] <= self.looks:
            return job
        if "endpoint" in job:
            answers = [_openai(line) for line in self.lines[identity]]
            output = [each for each in answers if each and each["response"]["status_code"] == 200]
            errors = [each for each in answers if each and each["response"]["status_code"] != 200]
            job |= {
                "status": "completed",
                "output_file_id": f"{identity}-out",
                "error_file_id": f"{identity}-err",
            }
            self.files |= {f"{identity}-out": _lines(output), f"{identity}-err": _lines(errors)}
        return job | {"processing_status": "ended"}

    def _results(self, identity: str) -> bytes:
        return _lines([_anthropic(line) for line in self.lines[identity]])


def _lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in values)


def _json(values: Any) -> Any:
    return reply(200, json.dumps(values).encode(), {"content-type": "application/json"})


def _openai(line: Any) -> dict[str, Any] | None:
    text = line["body"]["messages"][-1]["content"]
    assert "stream" not in line["body"]
    response: dict[str, Any] = {"status_code": 400, "request_id": "r", "body": {"error": {"code": "bad"}}}
    if text == "expire":
        return None
    if text != "fail":
        message = {"role": "assistant", "content": text.upper()}
        body = {
            "id": "c", "object": "chat.completion", "created": CREATED, "model": line["body"]["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE,
        }  # fmt: skip
        response = {"status_code": 200, "request_id": "r", "body": body}
    return {
        "id": f"req_{line['custom_id']}",
        "custom_id": line["custom_id"],
        "response": response,
        "error": None,
    }


def _anthropic(line: Any) -> dict[str, Any]:
    content = line["params"]["messages"][-1]["content"]
    text = content if isinstance(content, str) else content[-1]["text"]
    message = {
        "id": "msg", "type": "message", "role": "assistant", "model": line["params"]["model"],
        "content": [{"type": "text", "text": text.upper()}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }  # fmt: skip
    result = {"type": "expired"} if text == "expire" else {"type": "succeeded", "message": message}
    return {"custom_id": line["custom_id"], "result": result}
