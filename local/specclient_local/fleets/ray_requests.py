"""Send HTTP requests from the nodes of a Ray cluster, by Ray Data. It is run by path, as ``ray_program.py``.

    python ray_requests.py ADDRESS FLEET

Each line of the input is a request as JSON: ``{"id", "method", "url", "headers", "body", "seconds"}``, with
the body as text. Each line of the output that begins with ``@`` is an answer:
``{"id", "status", "headers", "body"}``, or ``{"id", "error"}`` for a request without a response. The first
one is ``{"ready": true}``, or ``{"error": …}`` if the cluster cannot be used. The end of the input ends the
program.

Requests that wait are one dataset; the next dataset starts once half as many requests wait as are in
progress. Each of its blocks is a task on some node, which sends its requests at once and hands over each
answer as it arrives. Nothing of specclient is imported, because the environment with Ray need not have it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_GATHER_S = 0.05
"""Seconds for which requests are gathered before a dataset starts: a batch sends its first ones at once."""

_AT_ONCE = 64
"""Requests of a block at most, each of which has a thread."""

_out = threading.Lock()


def main(address: str, fleet: str) -> None:
    """Answer requests until the input ends."""
    problem = _connect(address, fleet)
    _print({"ready": True} if problem is None else {"error": problem})
    if problem is not None:
        return
    waiting: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_start_datasets, args=(waiting,), daemon=True).start()
    for line in sys.stdin:
        waiting.put(line)
    waiting.put(None)


def _connect(address: str, fleet: str) -> str | None:
    """Connect to the cluster, and return why it cannot be used; None if it can."""
    if importlib.util.find_spec("ray") is None:
        return f"{sys.executable} has no Ray; pip install 'ray[data,serve]' there, or set python"
    import ray  # noqa: PLC0415 - only here, after its presence was checked

    try:
        data = importlib.import_module("ray.data")
    except ImportError as error:
        return f"{sys.executable} has no Ray Data ({error}); pip install 'ray[data]' there"
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="serve")
        applications = importlib.import_module("ray.serve").status().applications
    except Exception as error:  # noqa: BLE001 - Ray raises several kinds
        return f"the cluster at {address} cannot be used: {' '.join(str(error).split())[-1500:]}"
    if fleet not in applications:
        return f"fleet {fleet!r} is not running; start it with `specclient fleet deploy {fleet}`"
    context = data.DataContext.get_current()
    context.target_max_block_size = 1  # each answer is a block of its own, which is handed over at once
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return None


def _start_datasets(waiting: queue.Queue[str | None]) -> None:
    """Start a dataset whenever enough requests wait."""
    running = _Count()
    while (first := waiting.get()) is not None:
        lines = [first]
        while True:
            time.sleep(_GATHER_S)
            while not waiting.empty():
                if (line := waiting.get()) is None:
                    return
                lines.append(line)
            if len(lines) >= running.value / 2:
                break
        running.add(len(lines))
        threading.Thread(target=_run_dataset, args=(lines, running), daemon=True).start()


class _Count:
    """The number of requests in progress."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self, change: int) -> None:
        """Add to the number."""
        with self._lock:
            self.value += change


def _run_dataset(lines: list[str], running: _Count) -> None:
    """Send requests by Ray Data, and print their answers as they arrive."""
    left = {json.loads(line)["id"] for line in lines}
    why = "the dataset ended without its answer"
    try:
        for answer in _answers(lines):
            left.discard(answer["id"])
            running.add(-1)
            _print(answer)
    except Exception as error:  # noqa: BLE001 - Ray raises several kinds
        why = f"Ray Data: {type(error).__name__}: {' '.join(str(error).split())[-500:]}"
    for number in left:
        running.add(-1)
        _print({"id": number, "error": why})


def _answers(lines: list[str]) -> Iterator[dict[str, Any]]:
    import ray  # noqa: PLC0415 - after the connection to the cluster

    nodes = sum(node["Alive"] for node in ray.nodes())
    blocks = min(len(lines), max(nodes, -(-len(lines) // _AT_ONCE)))
    rows = ray.data.from_items([{"request": line} for line in lines], override_num_blocks=blocks)
    # Requests wait for the fleet; replicas may hold all processors.
    answers = rows.map_batches(_send, batch_size=None, num_cpus=0)
    for row in answers.iter_rows():
        yield json.loads(row["answer"])


def _send(batch: Any) -> Iterator[Any]:
    """Send the requests of a block at once, and yield each answer as it arrives. It runs on a node."""
    import http.client  # noqa: PLC0415 - on the node
    import json as codec  # noqa: PLC0415
    import urllib.error  # noqa: PLC0415
    import urllib.request as web  # noqa: PLC0415
    from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    opener = web.build_opener(web.ProxyHandler({}))  # the fleet is in the cluster

    def answer_of(text: str) -> str:
        request = codec.loads(text)
        body = request["body"].encode() or None
        sent = web.Request(request["url"], body, request["headers"], method=request["method"])  # noqa: S310 - the fleet's own address
        try:
            try:
                response = opener.open(sent, timeout=request["seconds"])
            except urllib.error.HTTPError as error:  # a response with an error status
                response = error
            with response:
                text = response.read().decode("utf-8", "replace")
                found = {"status": response.status, "headers": [*response.headers.items()], "body": text}
        except (OSError, http.client.HTTPException) as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        return codec.dumps({"id": request["id"], **found})

    texts = [str(text) for text in batch["request"]]
    with ThreadPoolExecutor(len(texts)) as pool:
        for done in as_completed([pool.submit(answer_of, text) for text in texts]):
            yield {"answer": np.array([done.result()], dtype=object)}


def _print(answer: Any) -> None:
    with _out:
        print("@" + json.dumps(answer), flush=True)  # noqa: T201 - the protocol


if __name__ == "__main__":
    sys.path = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).parent]
    main(sys.argv[1], sys.argv[2])
