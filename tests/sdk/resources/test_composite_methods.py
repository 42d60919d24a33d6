"""Methods that make several requests make the OpenAI client's requests and return the same results."""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import json
import warnings

import anyio
import openai
import openai_tree as oracle
import pytest
from loopback_server import OpenAIServer, events, reply

from specclient import AsyncOpenAI, InvalidWebhookSignatureError, OpenAI
from specclient.resources import webhook_signatures as webhooks
from specclient.resources.assistants import AssistantEventHandler, AsyncAssistantEventHandler

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as running:
        yield running


def ours_sync(url):
    return OpenAI(api_key="k", base_url=url, ledger="off", max_retries=0)


def ours_async(url):
    return AsyncOpenAI(api_key="k", base_url=url, ledger="off", max_retries=0)


CLIENTS = {
    "ours": ours_sync,
    "ours async": ours_async,
    "theirs": oracle.sync_client,
    "theirs async": oracle.async_client,
}


def body_of(request):
    """Return a request's body without ``stream: false``, which only the OpenAI client sends."""
    if not request.body.startswith(b"{"):
        return len(request.body) > 0
    return {name: value for name, value in request.json.items() if (name, value) != ("stream", False)}


async def outcome(make, server, script, act):
    """Return the result or exception of a client's call, and its requests.

    ``act`` receives the client and returns a result or an awaitable.
    """
    server.script(*script)
    before = len(server.requests)
    client = make(server.base_url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            if isinstance(client, OpenAI | openai.OpenAI):
                with client:
                    found = await anyio.to_thread.run_sync(act, client)
            else:
                async with client:
                    found = await act(client)
        except Exception as error:  # noqa: BLE001  # compared below
            found = f"{type(error).__name__}: {error}"
    requests = [
        (
            one.method,
            one.path,
            body_of(one),
            one.headers.get("x-stainless-poll-helper"),
            one.headers.get("x-stainless-custom-poll-interval"),
        )
        for one in server.requests[before:]
    ]
    return found.to_dict(mode="json") if hasattr(found, "to_dict") else found, requests


async def same(server, script, act):
    """Check that all four clients get the same result with the same requests; return both."""
    found = {name: await outcome(make, server, script, act) for name, make in CLIENTS.items()}
    for name, one in found.items():
        assert one == found["theirs"], name
    return found["theirs"]


def job(status, **more):
    return {"id": "job-1", "object": "o", "status": status, "thread_id": "thread-1", **more}


def counts(running):
    number = {"in_progress": running, "completed": 1, "failed": 0, "cancelled": 0, "total": 1}
    return {**job("in_progress" if running else "completed"), "file_counts": number}


FAST = {"openai-poll-after-ms": "1"}
SCRIPTS = {
    "a wish of the server": (
        [reply(200, job("in_progress"), FAST), reply(200, job("in_progress")), reply(200, job("completed"))],
        lambda c: c.vector_stores.files.poll("f", vector_store_id="v"),
    ),
    "an interval of the caller": (
        [reply(200, job("in_progress")), reply(200, job("failed"))],
        lambda c: c.vector_stores.files.poll("f", vector_store_id="v", poll_interval_ms=1),
    ),
    "an endless file": (
        [reply(200, job("in_progress")), *[reply(200, job("in_progress"))] * 0],
        lambda c: c.vector_stores.files.poll("f", vector_store_id="v", max_wait_seconds=-1),
    ),
    "create and poll a file": (
        [reply(200, job("in_progress")), reply(200, job("in_progress"), FAST), reply(200, job("completed"))],
        lambda c: c.vector_stores.files.create_and_poll("f", vector_store_id="v", attributes={"a": 1}),
    ),
    "upload a file": (
        [reply(200, {"id": "file-9"}), reply(200, job("in_progress"))],
        lambda c: c.vector_stores.files.upload(vector_store_id="v", file=b"content"),
    ),
    "upload and poll a file": (
        [reply(200, {"id": "file-9"}), reply(200, job("in_progress")), reply(200, job("completed"))],
        lambda c: c.vector_stores.files.upload_and_poll(vector_store_id="v", file=b"content"),
    ),
    "poll a batch": (
        [reply(200, counts(1), FAST), reply(200, counts(0))],
        lambda c: c.vector_stores.file_batches.poll("b", vector_store_id="v"),
    ),
    "create and poll a batch": (
        [reply(200, counts(1)), reply(200, counts(1), FAST), reply(200, counts(0))],
        lambda c: c.vector_stores.file_batches.create_and_poll("v", file_ids=["f"]),
    ),
    "upload and poll a batch": (
        [
            reply(200, {"id": "file-9"}),
            reply(200, {"id": "file-9"}),
            reply(200, counts(1)),
            reply(200, counts(0)),
        ],
        lambda c: c.vector_stores.file_batches.upload_and_poll("v", files=[b"a", b"b"], file_ids=["f"]),
    ),
    "an upload that fails": (
        [reply(400, {"error": {"message": "no"}})],
        lambda c: c.vector_stores.file_batches.upload_and_poll("v", files=[b"a"]),
    ),
    "poll a video": (
        [reply(200, job("queued"), FAST), reply(200, job("in_progress")), reply(200, job("completed"))],
        lambda c: c.videos.poll("v"),
    ),
    "create and poll a video": (
        [reply(200, job("queued")), reply(200, job("completed"))],
        lambda c: c.videos.create_and_poll(prompt="p", poll_interval_ms=2),
    ),
    "poll a run": (
        [reply(200, job("queued"), FAST), reply(200, job("cancelling")), reply(200, job("requires_action"))],
        lambda c: c.beta.threads.runs.poll("r", "t"),
    ),
    "create and poll a run": (
        [reply(200, job("queued")), reply(200, job("queued"), FAST), reply(200, job("completed"))],
        lambda c: c.beta.threads.runs.create_and_poll(thread_id="t", assistant_id="a", instructions="i"),
    ),
    "create a thread and poll": (
        [reply(200, job("queued")), reply(200, job("expired"))],
        lambda c: c.beta.threads.create_and_run_poll(assistant_id="a", thread={"messages": []}),
    ),
    "submit and poll": (
        [reply(200, job("queued")), reply(200, job("incomplete"))],
        lambda c: c.beta.threads.runs.submit_tool_outputs_and_poll(
            run_id="r", thread_id="t", tool_outputs=[{"output": "x", "tool_call_id": "c"}], poll_interval_ms=1
        ),
    ),
    "wait for a file": (
        [reply(200, job("uploaded")), reply(200, job("processed"))],
        lambda c: c.files.wait_for_processing("f", poll_interval=0.001),
    ),
    "give up on a file": (
        [reply(200, job("uploaded")), reply(200, job("uploaded"))],
        lambda c: c.files.wait_for_processing("f", poll_interval=0.001, max_wait_seconds=0),
    ),
    "content in parts": (
        [
            reply(200, job("pending")),
            *[reply(200, {"id": f"part-{n}"}) for n in range(3)],
            reply(200, job("done")),
        ],
        lambda c: c.uploads.upload_file_chunked(
            file=b"12345",
            mime_type="text/plain",
            purpose="batch",
            filename="n",
            bytes=5,
            part_size=2,
            md5="m",
        ),
    ),
    "content without a name": (
        [],
        lambda c: c.uploads.upload_file_chunked(file=b"12345", mime_type="text/plain", purpose="batch"),
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_all_clients_make_the_same_requests(server, name):
    script, act = SCRIPTS[name]
    if name == "an endless file":
        script = []
    _, requests = await same(server, script, act)
    assert len(requests) == len(script)


async def test_a_file_path_is_uploaded_in_parts(server, tmp_path):
    path = tmp_path / "big.bin"
    path.write_bytes(b"12345")
    script = [reply(200, job("pending")), *[reply(200, {"id": "p"})] * 3, reply(200, job("done"))]
    _, requests = await same(
        server,
        script,
        lambda c: c.uploads.upload_file_chunked(
            file=path, mime_type="text/plain", purpose="batch", part_size=2
        ),
    )
    assert requests[0][2] == {
        "bytes": 5,
        "filename": "big.bin",
        "mime_type": "text/plain",
        "purpose": "batch",
    }


async def test_concurrent_uploads_are_limited(server):
    """Uploads three files with at most two at a time."""
    script = [
        *[reply(200, {"id": f"file-{n}"}) for n in range(3)],
        reply(200, counts(1)),
        reply(200, counts(0)),
    ]
    server.script(*script)
    async with ours_async(server.base_url) as client:
        await client.vector_stores.file_batches.upload_and_poll(
            "v", files=[b"a", b"b", b"c"], max_concurrency=2
        )
    assert sorted(server.requests[-2].json["file_ids"]) == ["file-0", "file-1", "file-2"]


def text(index, value):
    return {"index": index, "type": "text", "text": {"value": value, "annotations": []}}


def message(content, status="in_progress"):
    return {
        "id": "msg-1",
        "object": "thread.message",
        "content": content,
        "status": status,
        "role": "assistant",
    }


def message_delta(*pieces):
    return "thread.message.delta", {"id": "msg-1", "object": "o", "delta": {"content": list(pieces)}}


def step(calls, status="in_progress"):
    details = {"type": "tool_calls", "tool_calls": calls}
    return {"id": "step-1", "object": "thread.run.step", "status": status, "step_details": details}


def code(index, **more):
    return {"index": index, "type": "code_interpreter", "code_interpreter": more}


def step_delta(*calls):
    details = {"type": "tool_calls", "tool_calls": list(calls)}
    return "thread.run.step.delta", {"id": "step-1", "object": "o", "delta": {"step_details": details}}


IMAGE = {"index": 1, "type": "image_file", "image_file": {"file_id": "f"}}
RUN = [
    ("thread.created", {"id": "thread-1", "object": "thread"}),
    ("thread.run.created", job("queued")),
    ("thread.run.in_progress", job("in_progress")),
    ("thread.run.step.created", step([])),
    ("thread.run.step.in_progress", step([])),
    step_delta({**code(0, input="im"), "id": "call-0"}),
    step_delta(code(0, input="port", outputs=[{"index": 0, "type": "logs", "logs": "a"}])),
    step_delta(code(0, outputs=[{"index": 0, "type": "logs", "logs": "b"}])),
    step_delta({**code(1, input="x"), "id": "call-1"}),
    ("thread.run.step.completed", step([code(0, input="import")], "completed")),
    ("thread.message.created", message([])),
    ("thread.message.in_progress", message([])),
    message_delta(text(0, "Hel")),
    message_delta(text(0, "lo")),
    message_delta(IMAGE),
    ("thread.message.completed", message([{"type": "text", "text": {"value": "Hello"}}, IMAGE], "completed")),
    ("thread.run.completed", job("completed")),
]


def frames(run):
    return [f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in run] + [
        b"event: done\ndata: [DONE]\n\n"
    ]


def plain(value):
    return value.to_dict(mode="json", warnings=False) if hasattr(value, "to_dict") else value


def recording(base):
    """Return a handler class that records every hook call with its arguments and the handler's properties."""

    def hook(name):
        def note(self, *args):
            shown = (self.current_run, self.current_message_snapshot, self.current_run_step_snapshot)
            self.log.append((name, [plain(arg) for arg in args], [plain(one) for one in shown]))

        async def anote(self, *args):
            note(self, *args)

        return anote if inspect.iscoroutinefunction(getattr(base, name)) else note

    hooks = {name: hook(name) for name in dir(base) if name.startswith("on_")}
    return type("Recording", (base,), {**hooks, "log": None})


HANDLERS = {
    "ours": AssistantEventHandler,
    "ours async": AsyncAssistantEventHandler,
    "theirs": openai.AssistantEventHandler,
    "theirs async": openai.AsyncAssistantEventHandler,
}
STREAMS = {
    "runs": lambda c, h: c.beta.threads.runs.stream(thread_id="t", assistant_id="a", event_handler=h),
    "create": lambda c, h: c.beta.threads.runs.create_and_stream(
        thread_id="t", assistant_id="a", event_handler=h
    ),
    "thread": lambda c, h: c.beta.threads.create_and_run_stream(assistant_id="a", event_handler=h),
    "outputs": lambda c, h: c.beta.threads.runs.submit_tool_outputs_stream(
        run_id="r", thread_id="t", tool_outputs=[{"output": "o"}], event_handler=h
    ),
}


async def run_with_handler(name, server, method, run):
    """Return the log of a recording handler, and the client's request."""
    server.script(events(*frames(run)))
    handler = recording(HANDLERS[name])()
    handler.log = []
    client = CLIENTS[name](server.base_url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            if "async" in name:
                async with client, STREAMS[method](client, handler) as stream:
                    handler.log.append([plain(one) for one in await stream.get_final_messages()])
                    handler.log.append([plain(one) for one in await stream.get_final_run_steps()])
                    handler.log.append(plain(await stream.get_final_run()))
            else:
                with client, STREAMS[method](client, handler) as stream:
                    handler.log.append([plain(one) for one in stream.get_final_messages()])
                    handler.log.append([plain(one) for one in stream.get_final_run_steps()])
                    handler.log.append(plain(stream.get_final_run()))
        except RuntimeError as error:
            handler.log.append(str(error))
    sent = server.requests[-1]
    return handler.log, (sent.method, sent.path, sent.json)


@pytest.mark.parametrize("method", STREAMS)
async def test_handlers_receive_the_openai_clients_hook_calls(server, method):
    found = {name: await run_with_handler(name, server, method, RUN) for name in HANDLERS}
    for name, (log, sent) in found.items():
        assert sent == found["theirs"][1], name
        assert len(log) == len(found["theirs"][0]), name
        for ours, theirs in zip(log, found["theirs"][0], strict=True):
            assert ours == theirs, name
    hooks = {entry[0] for entry in found["ours"][0][:-3]}
    assert {"on_text_delta", "on_tool_call_done", "on_image_file_done", "on_end"} <= hooks


async def test_a_delta_without_a_message_is_an_error(server):
    found = {
        name: await run_with_handler(name, server, "runs", [message_delta(text(0, "x"))]) for name in HANDLERS
    }
    for name, (log, _) in found.items():
        assert log[-1] == "Encountered a message delta with no previous snapshot", name
        hooks = [entry[0] for entry in log[:-1]]
        assert hooks == ["on_event", "on_exception", "on_end"], name


def test_text_deltas_are_iterated_and_a_handler_cannot_be_shared(server):
    server.script(events(*frames(RUN)))
    with ours_sync(server.base_url) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with client.beta.threads.runs.stream(thread_id="t", assistant_id="a") as stream:
            assert list(stream.text_deltas) == ["Hel", "lo"]
        with pytest.raises(RuntimeError, match="cannot be shared"):
            stream._init(object())


SECRET = "whsec_" + base64.b64encode(b"0123456789").decode()
BODY = json.dumps({"type": "response.completed", "id": "evt", "data": {"id": "resp"}})
NOW = 1_700_000_000


def signed(body=BODY, stamp=NOW, secret=SECRET):
    key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    digest = hmac.new(key, f"wh-1.{stamp}.{body}".encode(), hashlib.sha256).digest()
    signature = f"v1,AAAA v1,{base64.b64encode(digest).decode()}"
    return {"Webhook-Signature": signature, "webhook-timestamp": str(stamp), "WEBHOOK-ID": "wh-1"}


def test_a_valid_webhook_signature_is_accepted():
    webhooks.check(BODY, signed(), secret=SECRET, tolerance=300, now=NOW + 300)
    webhooks.check(BODY.encode(), signed(secret="plain"), secret="plain", tolerance=300, now=NOW - 300)


@pytest.mark.parametrize(
    ("headers", "now", "message"),
    [
        (signed(), NOW + 301, "too old"),
        (signed(), NOW - 301, "too new"),
        ({**signed(), "webhook-timestamp": "soon"}, NOW, "timestamp format"),
        (signed(body=BODY + " "), NOW, "does not match"),
        (signed(secret="other"), NOW, "does not match"),
        ({**signed(), "Webhook-Signature": "ü"}, NOW, "does not match"),
    ],
)
def test_an_invalid_webhook_signature_is_refused(headers, now, message):
    with pytest.raises(InvalidWebhookSignatureError, match=message):
        webhooks.check(BODY, headers, secret=SECRET, tolerance=300, now=now)


def test_a_missing_webhook_header_is_named():
    for name in signed():
        headers = {known: value for known, value in signed().items() if known != name}
        with pytest.raises(ValueError, match=name.lower()):
            webhooks.check(BODY, headers, secret=SECRET, tolerance=1, now=NOW)


@pytest.mark.parametrize("make", [OpenAI, AsyncOpenAI])
def test_unwrap_verifies_and_decodes_a_webhook(make, monkeypatch):
    monkeypatch.delenv("OPENAI_WEBHOOK_SECRET", raising=False)
    monkeypatch.setattr(webhooks.time, "time", lambda: NOW)
    client = make(api_key="k", webhook_secret=SECRET, ledger="off")
    for payload in (BODY, BODY.encode()):
        event = client.webhooks.unwrap(payload, signed())
        assert (event.type, event.data.id) == ("response.completed", "resp")
    assert client.webhooks.verify_signature(BODY, signed()) is None
    with pytest.raises(InvalidWebhookSignatureError):
        client.webhooks.unwrap(BODY, signed(secret="other"))
    client.webhook_secret = None
    with pytest.raises(ValueError, match="OPENAI_WEBHOOK_SECRET"):
        client.webhooks.verify_signature(BODY, signed())
