"""Every method sends the OpenAI client's request, except irrelevant details, and reads responses alike."""

from __future__ import annotations

import inspect
import io
import json
import warnings
from email.parser import BytesParser
from urllib.parse import parse_qsl

import openai_tree as oracle
import pytest
from loopback_server import OpenAIServer, events, reply

from specclient import OpenAI
from specclient.resources.table import index

HEADERS = ("accept", "authorization", "openai-beta", "idempotency-key")
ANSWER = {
    "id": "obj-1",
    "object": "thing",
    "created_at": 7,
    "status": "completed",
    "nested": {"list": [{"a": 1}, None], "text": "ü"},
    "data": [{"id": "a", "index": 0}, {"id": "b", "unknown": {"x": [1.5]}}],
    "has_more": True,
    "choices": [],
    "last_id": "b",
    "next": "token",
}
VALUES = (
    "text ü & more",
    7,
    0.5,
    False,
    ["x", "y z"],
    {"a": {"b": [1, "two"]}, "c": None},
    [{"type": "t", "deep": [{"k": True}]}],
)


@pytest.fixture(scope="module")
def trio():
    """The server and both clients, shared by all tests because connections cost more than calls."""
    with (
        OpenAIServer() as server,
        OpenAI(
            api_key="sk-plain",
            admin_api_key="sk-admin",
            base_url=server.base_url,
            ledger="off",
            max_retries=0,
        ) as ours,
        oracle.sync_client(server.base_url) as theirs,
    ):
        yield server, ours, theirs


def rows(resource="", found=None):
    """Return every row of the endpoint table by name."""
    found = {} if found is None else found
    children = index.children_of(resource) if resource else index.roots()
    for child in children:
        name = f"{resource}.{child}" if resource else child
        found.update((row.name, row) for row in index.rows_of(name).values())
        rows(name, found)
    return found


ROWS = rows()


def arguments(row, turn):
    """Return a generated argument for every parameter; its type changes with ``turn``."""
    given = {name: f"id-{name}/ü 1:@" for name in row.places}
    for number, name in enumerate(row.params):
        if name == "stream":
            continue
        given[name] = VALUES[(number + turn) % len(VALUES)]
    for name in row.files:
        given[name] = [b"bytes", ("name.txt", b"more", "text/plain")][turn % 2]
    if row.name in ("skills.create", "skills.versions.create") or (row.name == "images.edit" and turn):
        given[next(iter(row.files - {"mask", "markup"}))] = [b"one", ("two.bin", b"2")]
    fixed = {"response_format": "json", "sdp": "offer", "model": "m"}
    given.update({name: value for name, value in fixed.items() if name in row.params})
    given.update({name: ["v1", "v2"] if name == "betas" else "key" for name in row.in_headers})
    return given


def call(client, server, path, given, body=ANSWER):
    """Return the result of a client's call, and its request."""
    server.script(reply(200, body))
    before = len(server.requests)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = oracle.at(client, path)(**given)
    assert len(server.requests) == before + 1, path
    return found, server.requests[-1]


def parts(message):
    """Return the parts of a form, sorted."""
    found = BytesParser().parsebytes(message).get_payload()
    if isinstance(found, str):  # a form without parts
        return []
    return sorted(
        (sorted((k, str(v)) for k, v in part.items()), part.get_payload(decode=True)) for part in found
    )


def sent(received):
    """Return the relevant parts of a request, for comparison."""
    kind, _, rest = received.headers.get("content-type", "").partition(";")
    if kind == "multipart/form-data":
        body = parts(f"content-type: {kind};{rest}\r\n\r\n".encode() + received.body)
    elif kind == "application/json" and received.body:
        body = json.loads(received.body)
    else:
        body = received.body
    return {
        "verb": received.method,
        "path": received.path,
        "query": sorted(parse_qsl(received.query, keep_blank_values=True)),
        "type": kind if received.body else "",
        "body": body,
        **{name: received.headers.get(name) for name in HEADERS},
    }


def shown(found):
    """Return a response as plain Python values."""
    if hasattr(found, "to_dict"):
        return found.to_dict(mode="json", warnings=False)
    return found.content if hasattr(found, "iter_bytes") else found


@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("name", sorted(name for name, row in ROWS.items() if not row.streams))
def test_every_method_matches_the_openai_client(trio, name, turn):
    server, ours, theirs = trio
    given = arguments(ROWS[name], turn)
    our_answer, our_request = call(ours, server, name, given)
    their_answer, their_request = call(theirs, server, name, given)
    assert sent(our_request) == sent(their_request)
    assert shown(our_answer) == shown(their_answer)


@pytest.mark.parametrize("name", sorted(name for name, row in ROWS.items() if row.page not in ("", "Page")))
def test_the_next_pages_request_matches_the_openai_clients(trio, name):
    server, ours, theirs = trio
    row = ROWS[name]
    given = dict.fromkeys(row.places, "id") | dict.fromkeys(row.required, "x") | {"extra_query": {"q": 1}}
    requests = []
    for client in (ours, theirs):
        page, _ = call(client, server, name, given)
        server.script(reply(200, {**ANSWER, "data": [], "has_more": False, "last_id": None, "next": None}))
        items = list(page)
        assert [item.id for item in items] == ["a", "b"]
        requests.append(sent(server.requests[-1]))
        assert page.has_next_page()
    assert requests[0] == requests[1]


def test_an_unpaged_list_has_no_next_page(trio):
    server, ours, _ = trio
    page, _ = call(ours, server, "models.list", {})
    assert [model.id for model in page] == ["a", "b"]
    assert not page.has_next_page()
    assert page.next_page_info() is None
    with pytest.raises(RuntimeError, match="No next page expected"):
        page.get_next_page()


@pytest.mark.parametrize(
    "name", sorted(name for name, row in ROWS.items() if not row.required and row.params)
)
def test_a_call_without_optional_arguments_matches(trio, name):
    server, ours, theirs = trio
    row = ROWS[name]
    given = dict.fromkeys(row.places, "id") | dict.fromkeys((row.either or ((),))[0], "x")
    assert sent(call(ours, server, name, given)[1]) == sent(call(theirs, server, name, given)[1])


@pytest.mark.parametrize(
    "extra", [{"extra_query": {"a": [1, 2], "b": {"c": True}}}, {"extra_body": {"z": [1]}}]
)
@pytest.mark.parametrize(
    "name", ["batches.create", "files.create", "beta.threads.runs.create", "batches.cancel"]
)
def test_extra_options_match(trio, name, extra):
    server, ours, theirs = trio
    given = {**arguments(ROWS[name], 0), **extra, "extra_headers": {"X-Own": "1"}}
    our_request = call(ours, server, name, given)[1]
    assert sent(our_request) == sent(call(theirs, server, name, given)[1])
    assert our_request.headers["x-own"] == "1"


EVENTS = [
    ("thread.run.created", {"id": "run-1", "status": "queued", "object": "thread.run"}),
    ("thread.message.delta", {"id": "m", "delta": {"content": [{"index": 0, "type": "text"}]}}),
]
PLAIN_EVENTS = [
    (None, {"type": "some.delta", "delta": "ü", "sequence_number": 1}),
    ("x.y", {"type": "x.y", "a": [1]}),
]


@pytest.mark.parametrize("name", sorted(name for name, row in ROWS.items() if row.event))
def test_streamed_events_match(trio, name):
    server, ours, theirs = trio
    row = ROWS[name]
    frames = EVENTS if name.startswith("beta.threads") else PLAIN_EVENTS
    lines = [(f"event: {kind}\n" if kind else "") + f"data: {json.dumps(data)}\n\n" for kind, data in frames]
    given = {name: value for name, value in arguments(row, 0).items() if name in (*row.places, *row.required)}
    given |= {} if row.streams else {"stream": True}
    found, requests = [], []
    for client in (ours, theirs):
        server.script(events(*(line.encode() for line in lines), b"data: [DONE]\n\n"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            stream = oracle.at(client, name)(**given)
            found.append([shown(event) for event in stream])
        requests.append(sent(server.requests[-1]))
        requests[-1].pop("accept")  # the OpenAI client accepts JSON here
    assert requests[0] == requests[1]
    assert found[0] == found[1]
    assert len(found[0]) == 2


@pytest.mark.parametrize("wanted", ["text", "srt", "vtt", "json", "verbose_json", "diarized_json"])
def test_transcription_formats_are_read_alike(trio, wanted):
    server, ours, theirs = trio
    given = {"file": ("a.mp3", b"sound"), "model": "whisper-1", "response_format": wanted}
    body = b"spoken words" if wanted in ("text", "srt", "vtt") else {"text": "spoken words", "segments": []}
    found = [call(client, server, "audio.transcriptions.create", given, body)[0] for client in (ours, theirs)]
    assert shown(found[0]) == shown(found[1])
    assert type(found[0]).__name__ == type(found[1]).__name__


def files_in(tmp_path):
    """Return a file in every form that a caller may pass."""
    path = tmp_path / "näme.txt"
    path.write_bytes(b"content")
    return [
        b"content",
        io.BytesIO(b"content"),
        path,
        ("other.jsonl", b"content"),
        ("other.jsonl", path, "application/jsonl"),
        ("other", io.BytesIO(b"content"), "text/x", {"X-Part": "1"}),
        path.open("rb"),
    ]


def test_every_form_of_a_file_is_sent_alike(trio, tmp_path):
    server, ours, theirs = trio
    both = []
    for client in (ours, theirs):
        requests = []
        for file in files_in(tmp_path):
            given = {
                "file": file,
                "purpose": "batch",
                "expires_after": {"anchor": "created_at", "seconds": 60},
            }
            requests.append(sent(call(client, server, "files.create", given)[1]))
            if isinstance(file, io.IOBase):
                file.close()
        both.append(requests)
    assert both[0] == both[1]


@pytest.mark.parametrize("file", ["a path", 7, {"a": 1}, None])
def test_an_invalid_file_is_refused(trio, file):
    _, ours, theirs = trio
    for client in (ours, theirs):
        with pytest.raises(RuntimeError, match="Expected entry at `file` to be bytes"):
            client.files.create(file=file, purpose="batch")


def test_a_realtime_offer_with_a_session_matches(trio):
    server, ours, theirs = trio
    requests = [
        call(
            client, server, "realtime.calls.create", {"sdp": "v=0", "session": {"type": "realtime", "ü": [1]}}
        )[1]
        for client in (ours, theirs)
    ]
    assert sent(requests[0]) == sent(requests[1])


def test_the_reserved_field_name_async_is_sent(trio):
    server, ours, theirs = trio
    given = {"model": "m", "compaction": {"type": "auto", "async_": True}}
    ours_sent = sent(call(ours, server, "beta.agents.create", given)[1])
    assert ours_sent == sent(call(theirs, server, "beta.agents.create", given)[1])
    assert ours_sent["body"]["compaction"]["async"] is True


WRONG = [
    ("files.retrieve", (), {}, TypeError, "missing 1 required positional argument: 'file_id'"),
    ("files.retrieve", ("a", "b"), {}, TypeError, "takes 2 positional arguments but 3 were given"),
    ("files.retrieve", ("a",), {"file_id": "b"}, TypeError, "got multiple values for argument 'file_id'"),
    ("files.retrieve", ("",), {}, ValueError, "Expected a non-empty value for `file_id` but received ''"),
    ("files.retrieve", ("..",), {}, ValueError, "dot-segment"),
    ("files.create", (), {"purpose": "p"}, TypeError, "missing 1 required keyword-only argument: 'file'"),
    ("files.create", (), {}, TypeError, "required keyword-only arguments: 'file' and 'purpose'"),
    ("files.list", (), {"befor": 1}, TypeError, "got an unexpected keyword argument 'befor'"),
    ("files.create", (), {"fil": b""}, TypeError, "got an unexpected keyword argument 'fil'"),
    ("files.retrieve", (), {"file": "a"}, TypeError, "got an unexpected keyword argument 'file'"),
]


@pytest.mark.parametrize(("path", "args", "kwargs", "error", "message"), WRONG)
def test_wrong_arguments_raise_the_openai_clients_errors(trio, path, args, kwargs, error, message):
    _, ours, theirs = trio
    for client in (ours, theirs):
        with pytest.raises(error) as caught:
            oracle.at(client, path)(*args, **kwargs)
        assert message in str(caught.value)


def test_missing_alternative_arguments_raise(trio):
    _, ours, theirs = trio
    for client in (ours, theirs):
        with pytest.raises(TypeError, match=r"(?i)missing required arguments"):
            client.beta.agents.automations.create(name="n", target={}, type="t", expression="* * * * *")


def test_deprecated_methods_warn(trio):
    server, ours, _ = trio
    server.script(reply(200, ANSWER))
    with pytest.warns(DeprecationWarning, match="Responses API") as caught:
        ours.beta.threads.retrieve("a")
    assert caught[0].filename == __file__
    assert inspect.signature(ours.beta.threads.retrieve).parameters["thread_id"]
