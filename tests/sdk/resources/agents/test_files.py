"""Files of hosted agents' environments: the same requests and results as with the OpenAI client."""

from __future__ import annotations

import os
import re
from pathlib import Path

import anyio
import openai_tree as oracle
import pytest
from loopback_server import OpenAIServer, hang, reply

from specclient import AsyncOpenAI, OpenAI
from specclient.resources.agents import file_selection
from specclient.resources.agents.files import AgentFilePreparationError, PreparedAgentFiles

pytestmark = pytest.mark.anyio

CLIENTS = {
    "theirs": oracle.sync_client,
    "theirs async": oracle.async_client,
    "ours": lambda url: OpenAI(api_key="k", base_url=url, ledger="off", max_retries=0),
    "ours async": lambda url: AsyncOpenAI(api_key="k", base_url=url, ledger="off", max_retries=0),
}
BOUNDARY = re.compile(r"boundary=(.*)")


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    """A folder with two text files, and a third in a subfolder."""
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "in/c.py"):
        (root / name).write_text(f"content of {name}")
    return root


def sent(requests):
    found = []
    for one in requests:
        boundary = BOUNDARY.search(one.headers.get("content-type", ""))
        body = one.body.replace(boundary[1].encode(), b"...") if boundary else one.json
        found.append((one.method, one.path, one.query, one.headers.get("x-mark"), body))
    return found


def described(value):
    if isinstance(value, Exception):
        found = {"class": type(value).__name__, "cause": type(value.__cause__).__name__}
        if hasattr(value, "prepared"):
            found["prepared"] = described(value.prepared)
        return {**found, "upload": getattr(value, "uploaded_file_id", None)}
    if hasattr(value, "uploaded_file_ids"):
        return {"files": value.files, "ids": value.uploaded_file_ids}
    return {"id": value.uploaded_file_id, "file": value.file.to_dict()}


async def same(server, script, act):
    """Check that all clients get the same result with the same requests; return both."""
    found = {}
    for name, make in CLIENTS.items():
        server.script(*script)
        before = len(server.requests)
        client = make(server.base_url)
        try:
            if "async" in name:
                async with client:
                    got = await act(client.beta.agents.environments.files)
            else:
                with client:
                    got = await anyio.to_thread.run_sync(act, client.beta.agents.environments.files)
        except Exception as error:  # noqa: BLE001  # compared below
            got = error
        found[name] = (described(got), sent(server.requests[before:]))
        server._script.clear()
    for name, one in found.items():
        assert one == found["theirs"], name
    return found["theirs"]


def uploaded(number):
    return reply(200, {"id": f"file-{number}", "object": "file"})


REFUSED = reply(400, {"error": {"message": "no"}})


async def test_prepare_uploads_each_file(server, folder):
    got, requests = await same(
        server,
        [uploaded(1), uploaded(2)],
        lambda files: files.prepare(
            {"/workspace/x.txt": folder / "a.txt", "/workspace/d/c.py": str(folder / "in/c.py")},
            extra_headers={"X-Mark": "m"},
            extra_query={"q": "1"},
        ),
    )
    assert got["ids"] == ["file-1", "file-2"]
    assert got["files"][1] == {"type": "file_id", "file_id": "file-2", "path": "/workspace/d/c.py"}
    assert b"content of a.txt" in requests[0][4]
    assert b"user_data" in requests[0][4]


async def test_a_failed_upload_reports_the_earlier_ones(server, folder):
    got, _ = await same(
        server,
        [uploaded(1), REFUSED],
        lambda files: files.prepare({"/workspace/a": folder / "a.txt", "/workspace/b": folder / "b.txt"}),
    )
    assert (got["class"], got["cause"]) == ("AgentFilePreparationError", "BadRequestError")
    assert got["prepared"]["ids"] == ["file-1"]


BAD = {
    "relative": ["x"],
    "elsewhere": ["/etc/passwd"],
    "the workspace": ["/workspace"],
    "nothing in it": ["/workspace/"],
    "a backslash": ["/workspace/a\\b"],
    "a null": ["/workspace/a\x00b"],
    "up": ["/workspace/../a"],
    "a dot": ["/workspace/./a"],
    "an empty part": ["/workspace/a//b"],
    "codex": ["/workspace/.codex/a"],
    "agents": ["/workspace/.managed-agents"],
    "more agents": ["/workspace/.managed-agents-x/a"],
    "the outputs": ["/workspace/outputs"],
    "a file as a folder": ["/workspace/a", "/workspace/a/b"],
}


@pytest.mark.parametrize("name", BAD)
async def test_an_invalid_destination_is_refused_before_any_request(server, folder, name):
    got, requests = await same(
        server, [], lambda files: files.prepare(dict.fromkeys(BAD[name], folder / "a.txt"))
    )
    assert got["class"] == "ValueError"
    assert not requests


async def test_a_destination_in_the_outputs_folder_is_allowed(server, folder):
    await same(server, [uploaded(1)], lambda files: files.prepare({"/workspace/outputs/a": folder / "a.txt"}))


@pytest.mark.parametrize("name", ["missing", "a folder", "a link", "a pipe"])
async def test_an_invalid_source_is_refused_before_any_request(server, folder, name):
    source = folder / "source"
    if name == "a folder":
        source.mkdir()
    elif name == "a link":
        source.symlink_to(folder / "a.txt")
    elif name == "a pipe":
        os.mkfifo(source)
    got, requests = await same(server, [], lambda files: files.prepare({"/workspace/a": source}))
    assert got["class"] == "ValueError"
    assert not requests
    got, requests = await same(
        server, [], lambda files: files.upload("env", file=source, path="/workspace/a")
    )
    assert got["class"] == "ValueError"
    assert not requests


@pytest.mark.parametrize(("count", "keyed"), [(1, True), (2, True), (2, False)])
async def test_one_idempotency_key_for_several_uploads_is_refused(server, folder, count, keyed):
    names = {f"/workspace/{number}": folder / "a.txt" for number in range(count)}
    headers = {"Idempotency-KEY": "k"} if keyed else {}
    got, requests = await same(
        server, [uploaded(1), uploaded(2)], lambda files: files.prepare(names, extra_headers=headers)
    )
    assert len(requests) == (0 if (count, keyed) == (2, True) else count)
    assert ("class" in got) == (not requests)


@pytest.mark.parametrize("include", [["**/*"], ["*.txt", "a.*"], ["in/*.py"], ["in"]])
async def test_prepare_directory_uploads_the_matching_files(server, folder, include):
    got, requests = await same(
        server,
        [uploaded(number) for number in range(3)],
        lambda files: files.prepare_directory(folder, destination="/workspace/d", include=include),
    )
    assert ("class" in got) == (include == ["in"])
    assert len(requests) == {"**/*": 3, "*.txt": 2, "in/*.py": 1, "in": 0}[include[0]]


FOLDERS = {
    "a text": {"include": "*.txt"},
    "no patterns": {"include": []},
    "an empty pattern": {"include": [""]},
    "up": {"include": ["../*"]},
    "absolute": {"include": ["/etc/*"]},
    "elsewhere": {"include": ["*"], "destination": "/etc"},
    "kept": {"include": ["*.txt"], "destination": "/workspace/.codex"},
    "no match": {"include": ["*.md"]},
}


@pytest.mark.parametrize("name", FOLDERS)
async def test_invalid_folder_arguments_are_refused_before_any_request(server, folder, name):
    given = {"destination": "/workspace", **FOLDERS[name]}
    got, requests = await same(server, [], lambda files: files.prepare_directory(folder, **given))
    assert got["class"] == "ValueError"
    assert not requests


@pytest.mark.parametrize("name", ["a link", "a link to a folder", "no folder", "the folder is a link"])
async def test_links_and_non_folders_are_refused_before_any_request(server, folder, tmp_path, name):
    root = folder
    if name == "a link":
        (folder / "l.txt").symlink_to(folder / "a.txt")
    elif name == "a link to a folder":
        (folder / "l").symlink_to(folder / "in")
    elif name == "no folder":
        root = folder / "a.txt"
    else:
        root = tmp_path / "l"
        root.symlink_to(folder)
    got, requests = await same(
        server,
        [],
        lambda files: files.prepare_directory(root, destination="/workspace", include=["*", "*/*"]),
    )
    assert got["class"] == "ValueError"
    assert not requests


STAGED = reply(200, {"id": "ef-1", "object": "file", "path": "/workspace/a"})
FILES = {
    "a path": lambda root: root / "a.txt",
    "a named path": lambda root: ("n.txt", root / "a.txt", "text/markdown"),
    "content": lambda _: b"abc",
    "named content": lambda _: ("n.bin", b"abc"),
    "an open file": lambda root: (root / "a.txt").open("rb"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("last", [STAGED, REFUSED])
async def test_upload_accepts_every_form_of_a_file(server, folder, name, last):
    def act(files):
        file = FILES[name](folder)
        return files.upload("env-1", file=file, path="/workspace/a", extra_headers={"X-Mark": "m"})

    opened = []
    if name == "an open file":

        def act(files):
            opened.append(FILES[name](folder))
            return files.upload("env-1", file=opened[-1], path="/workspace/a", extra_headers={"X-Mark": "m"})

    got, requests = await same(server, [uploaded(1), last], act)
    for one in opened:
        one.close()
    assert [one[1] for one in requests] == ["/v1/files", "/v1/agents/environments/env-1/files"]
    assert requests[1][4] == {"type": "file_id", "file_id": "file-1", "path": "/workspace/a"}
    assert got["id" if last is STAGED else "upload"] == "file-1"


@pytest.mark.parametrize("given", [("", "/workspace/a"), ("env-1", "a")])
async def test_invalid_upload_arguments_are_refused_before_any_request(server, given):
    got, requests = await same(server, [], lambda files: files.upload(given[0], file=b"x", path=given[1]))
    assert got["class"] == "ValueError"
    assert not requests


async def test_a_refused_upload_raises_without_a_file_id(server):
    got, _ = await same(server, [REFUSED], lambda files: files.upload("e", file=b"x", path="/workspace/a"))
    assert (got["class"], got["upload"]) == ("BadRequestError", None)


@pytest.mark.parametrize("change", ["grown", "gone", "another file", "a link"])
def test_a_file_changed_after_its_snapshot_is_refused(folder, change):
    path = folder / "a.txt"
    snapshot = file_selection.snapshot_of(path)
    assert snapshot.read() == path.read_bytes()
    if change == "grown":
        path.write_text("content that is longer")
    else:
        moved = path.rename(folder / "moved")
        if change == "a link":
            path.symlink_to(moved)
        elif change == "another file":
            path.write_bytes(moved.read_bytes())
    kind = FileNotFoundError if change == "gone" else ValueError
    with pytest.raises(kind):
        snapshot.read()
    with pytest.raises(ValueError, match=r"a\.txt"):
        file_selection.snapshot_of(snapshot)


@pytest.mark.parametrize("make", [CLIENTS["ours"], CLIENTS["ours async"]])
async def test_a_file_changed_between_uploads_reports_the_earlier_uploads(server, folder, make, monkeypatch):
    """Both clients report the files that were uploaded before the error."""
    read = file_selection.FileSnapshot.read

    def changed(snapshot):
        if snapshot.path.name == "b.txt":
            Path(snapshot).write_text("other, longer content")
        return read(snapshot)

    monkeypatch.setattr(file_selection.FileSnapshot, "read", changed)
    server.script(uploaded(1))
    client = make(server.base_url)
    given = {"/workspace/a": folder / "a.txt", "/workspace/b": folder / "b.txt"}
    prepare = client.beta.agents.environments.files.prepare
    with pytest.raises(AgentFilePreparationError) as raised:
        await (anyio.to_thread.run_sync(prepare, given) if isinstance(client, OpenAI) else prepare(given))
    await (anyio.to_thread.run_sync(client.close) if isinstance(client, OpenAI) else client.close())
    assert raised.value.prepared.uploaded_file_ids == ["file-1"]
    assert isinstance(raised.value.__cause__, ValueError)


async def test_a_cancelled_call_reports_its_uploads(server, folder):
    prepared = []

    async def prepare(files, given):
        try:
            await files.prepare(given)
        except BaseException as error:
            prepared.append(error.prepared)
            raise

    server.script(uploaded(1), hang)
    given = {"/workspace/a": folder / "a.txt", "/workspace/b": folder / "b.txt"}
    async with CLIENTS["ours async"](server.base_url) as client:
        before = len(server.requests)
        async with anyio.create_task_group() as group:
            group.start_soon(prepare, client.beta.agents.environments.files, given)
            while len(server.requests) < before + 2:
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
    assert prepared == [
        PreparedAgentFiles([{"type": "file_id", "file_id": "file-1", "path": "/workspace/a"}], ["file-1"])
    ]
