"""Results of both clients' resources: pages, binary content and raw responses, awaited and iterated."""

from __future__ import annotations

import inspect

import openai_tree as oracle
import pytest
from loopback_server import OpenAIServer, reply

from specclient import AsyncOpenAI, OpenAI
from specclient.resources.table import index
from specclient.resources.table_resources import table_resource
from specclient.types.pages import AsyncCursorPage, AsyncPaginator, SyncCursorPage

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as running:
        yield running


@pytest.fixture
async def client(server):
    async with AsyncOpenAI(api_key="k", base_url=server.base_url, ledger="off", max_retries=0) as made:
        yield made


@pytest.fixture
def sync_client(server):
    with OpenAI(api_key="k", base_url=server.base_url, ledger="off", max_retries=0) as made:
        yield made


def pages():
    """Return responses with two pages of two files each."""
    first = {"object": "list", "data": [{"id": "a"}, {"id": "b"}], "has_more": True}
    last = {"object": "list", "data": [{"id": "c"}, {"id": "d"}], "has_more": False}
    return reply(200, first), reply(200, last)


async def test_an_async_list_is_iterated_over_all_pages(server, client):
    server.script(*pages())
    assert [file.id async for file in client.files.list(limit=2)] == ["a", "b", "c", "d"]
    assert [request.query for request in server.requests[-2:]] == ["limit=2", "limit=2&after=b"]


async def test_an_awaited_async_list_gives_one_page(server, client):
    server.script(*pages())
    paginator = client.files.list()
    assert isinstance(paginator, AsyncPaginator)
    page = await paginator
    assert isinstance(page, AsyncCursorPage)
    assert page.has_next_page()
    assert page.next_page_info().params == {"after": "b"}
    second = await page.get_next_page()
    assert type(second) is type(page)
    assert [file.id for file in second.data] == ["c", "d"]
    assert not second.has_next_page()


async def test_async_pages_are_iterated(server, client):
    server.script(*pages())
    page = await client.files.list()
    assert [[file.id for file in one.data] async for one in page.iter_pages()] == [["a", "b"], ["c", "d"]]


def test_sync_pages_are_iterated_with_the_extra_options(server, sync_client):
    server.script(*pages())
    page = sync_client.files.list(extra_query={"q": "1"}, extra_headers={"x-own": "2"})
    assert isinstance(page, SyncCursorPage)
    assert [[file.id for file in one.data] for one in page.iter_pages()] == [["a", "b"], ["c", "d"]]
    assert server.requests[-1].query == "q=1&after=b"
    assert server.requests[-1].headers["x-own"] == "2"
    assert type(page.data[0]).__name__ == "FileObject"


@pytest.mark.parametrize("body", [{"data": None}, {"data": [], "has_more": True}, {}])
def test_an_empty_page_has_no_next_page(server, sync_client, body):
    server.script(reply(200, body))
    page = sync_client.files.list()
    assert list(page) == []
    assert not page.has_next_page()


def test_a_bare_json_list_is_a_page(server, sync_client):
    server.script(reply(200, [{"id": "m"}]))
    assert [model.id for model in sync_client.models.list()] == ["m"]


async def test_raw_responses_are_parsed_into_lists(server, client, sync_client):
    server.script(*pages())
    response = sync_client.files.with_raw_response.list()
    assert response.headers["content-type"] == "application/json"
    assert [file.id for file in response.parse()] == ["a", "b", "c", "d"]
    server.script(*pages())
    response = await client.files.with_raw_response.list()
    assert [file.id async for file in response.parse()] == ["a", "b", "c", "d"]


CONTENT = "zeile 1\nzeile ü".encode()


def file_answer():
    return reply(200, CONTENT, {"content-type": "text/plain; charset=utf-8"})


def test_binary_content_is_read_in_every_form(server, sync_client, tmp_path):
    server.script(file_answer())
    content = sync_client.files.content("f")
    assert (content.content, content.read(), content.text) == (CONTENT, CONTENT, CONTENT.decode())
    assert (content.encoding, content.charset_encoding) == ("utf-8", "utf-8")
    assert list(content.iter_bytes(4)) == [CONTENT[i : i + 4] for i in range(0, len(CONTENT), 4)]
    assert b"".join(content.iter_raw()) == CONTENT
    assert list(content.iter_lines()) == ["zeile 1", "zeile ü"]
    assert "".join(content.iter_text(3)) == CONTENT.decode()
    assert content.response.status_code == 200
    for write in (content.write_to_file, content.stream_to_file):
        write(tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == CONTENT
    content.close()


async def test_async_binary_content_is_read_in_every_form(server, client, tmp_path):
    server.script(file_answer())
    content = await client.files.content("f")
    assert await content.aread() == CONTENT
    assert b"".join([piece async for piece in await content.aiter_bytes(4)]) == CONTENT
    assert b"".join([piece async for piece in await content.aiter_raw()]) == CONTENT
    assert [line async for line in await content.aiter_lines()] == ["zeile 1", "zeile ü"]
    assert "".join([piece async for piece in await content.aiter_text()]) == CONTENT.decode()
    await content.astream_to_file(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    await content.aclose()


def test_binary_content_decodes_json(server, sync_client):
    server.script(reply(200, {"a": [1]}))
    assert sync_client.files.content("f").json() == {"a": [1]}


def test_streamed_content_is_written_to_a_file(server, sync_client, tmp_path):
    server.script(file_answer())
    with sync_client.files.with_streaming_response.content("f") as response:
        response.stream_to_file(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT


async def test_files_may_be_given_as_paths(server, client, tmp_path):
    path = tmp_path / "batch.jsonl"
    path.write_bytes(b"{}")
    server.script(*[reply(200, {"id": "f"})] * 2)
    await client.files.create(file=path, purpose="batch")
    assert b'filename="batch.jsonl"' in server.requests[-1].body
    await client.files.create(file=("other", path), purpose="batch")
    assert b'filename="other"' in server.requests[-1].body
    with pytest.raises(FileNotFoundError):
        await client.files.create(file=tmp_path / "none", purpose="batch")


async def test_both_clients_send_the_same_bytes(server, client, sync_client):
    """One call of each kind of table row: checks of the sync client's bytes then hold for the async one."""
    calls = [
        ("batches.create", {"completion_window": "24h", "endpoint": "/v1/x", "input_file_id": "f"}),
        ("vector_stores.files.retrieve", {"file_id": "f", "vector_store_id": "v"}),
        ("responses.delete", {"response_id": "r"}),
        ("containers.files.create", {"container_id": "c", "file_id": "f"}),
        ("realtime.calls.create", {"sdp": "offer"}),
    ]
    for path, given in calls:
        server.script(*[reply(200, {"id": "x"})] * 2)
        oracle.at(sync_client, path)(**given)
        await oracle.at(client, path)(**given)
        first, second = server.requests[-2:]
        assert (first.method, first.path, first.query, first.body) == (
            second.method,
            second.path,
            second.query,
            second.body,
        )


def test_resource_classes_are_created_once():
    made = table_resource("vector_stores.files", is_async=False)
    assert made is table_resource("vector_stores.files", is_async=False)
    assert made.__name__ == "Files"
    assert table_resource("vector_stores.files", is_async=True).__name__ == "AsyncFiles"
    with pytest.raises(KeyError):
        table_resource("nonsense", is_async=False)


def test_generated_methods_have_signature_and_docstring():
    create = table_resource("uploads.parts", is_async=False).create
    assert list(inspect.signature(create).parameters)[:3] == ["self", "upload_id", "data"]
    assert create.__qualname__ == "Parts.create"
    assert "POST /uploads/{upload_id}/parts" in create.__doc__


def test_every_table_is_reachable():
    assert {"admin", "beta", "files", "webhooks"} <= index.roots()
    assert "projects" in index.children_of("admin.organization")
    assert index.rows_of("admin.organization.projects")["archive"].verb == "POST"
    assert index.rows_of("nonsense") == {}
    assert index.children_of("files") == frozenset()
