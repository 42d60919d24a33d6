"""Raw responses, streaming responses and calls by path: the same results as with the OpenAI client."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Union

import pytest
from both_clients import Both, Side
from loopback_server import events, reply

ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}
JSON = {"id": "x", "object": "model", "created": 1, "owned_by": "me"}


def metadata(side: Side, response: Any) -> list[Any]:
    """Return the status, headers and other metadata of a response."""
    return [
        response.status_code,
        response.headers["X-Request-ID"],
        response.headers.get("content-type"),
        response.request_id,
        response.method,
        response.url,
        response.http_version,
        response.retries_taken,
        response.is_closed,
        response.http_request.method,
        response.http_response.status_code,
    ]


def test_raw_responses(both: Both) -> None:
    def scenario(side: Side) -> Any:
        raw = side.client.chat.completions.with_raw_response
        response = side.get(raw.create(**ASK))
        parsed = side.get(response.parse())
        again = side.get(response.parse())
        assert response.elapsed.total_seconds() >= 0
        return [
            metadata(side, response),
            response.text,
            response.content,
            parsed,
            again is parsed,
            response.text,
        ]

    both.same(scenario)


def test_raw_responses_of_streams(both: Both) -> None:
    def scenario(side: Side) -> Any:
        response = side.get(side.client.chat.completions.with_raw_response.create(**ASK, stream=True))
        seen = [response.headers["x-request-id"], response.status_code, response.retries_taken]
        return [*seen, side.get(response.parse())]

    both.same(scenario)


def test_raw_responses_count_retries(both: Both) -> None:
    def scenario(side: Side) -> Any:
        return side.get(side.client.models.with_raw_response.list()).retries_taken

    failed = reply(500, b"", {"retry-after-ms": "1"})
    assert both.same(scenario, failed, failed, max_retries=2).result == 2


def test_raw_responses_parse_to_a_given_type(both: Both) -> None:
    def scenario(side: Side) -> Any:
        class Mine(side.lib.BaseModel):  # type: ignore[misc, name-defined]
            id: str
            created: int

        response = side.get(side.client.models.with_raw_response.retrieve("m"))
        return [side.get(response.parse(to=kind)) for kind in (Mine, str, dict[str, object], object)]

    both.same(scenario, reply(200, JSON))


def test_an_error_status_of_a_raw_call_is_raised(both: Both) -> None:
    both.same(
        lambda side: side.get(side.client.chat.completions.with_raw_response.create(**ASK)),
        reply(429, {"error": {"message": "slow down"}}),
    )


def test_raw_embeddings_and_pages(both: Both) -> None:
    def scenario(side: Side) -> Any:
        vectors = side.get(side.client.embeddings.with_raw_response.create(model="m", input="x"))
        models = side.get(side.client.models.with_raw_response.list())
        page = side.get(models.parse())
        return [side.get(vectors.parse()), [model.id for model in side.items(page)]]

    vector = {
        "object": "list",
        "model": "m",
        "data": [{"object": "embedding", "index": 0, "embedding": "AAAAPw=="}],
    }
    both.same(scenario, reply(200, {**vector, "usage": {"prompt_tokens": 1, "total_tokens": 1}}))


STREAMED = {
    "read": lambda side, response: side.get(response.read()),
    "text": lambda side, response: side.get(response.text()),
    "json": lambda side, response: side.get(response.json()),
    "parse": lambda side, response: side.get(response.parse()),
    "parse twice": lambda side, response: [side.get(response.parse()), side.get(response.parse())],
    "bytes": lambda side, response: b"".join(side.items(response.iter_bytes())),
    "sized bytes": lambda side, response: side.items(response.iter_bytes(7)),
    "texts": lambda side, response: "".join(side.items(response.iter_text())),
    "sized texts": lambda side, response: side.items(response.iter_text(5)),
    "lines": lambda side, response: side.items(response.iter_lines()),
    "read and bytes": lambda side, response: [side.get(response.read()), side.items(response.iter_bytes(9))],
    "nothing": lambda side, response: None,
    "closed": lambda side, response: side.get(response.close()),
}


@pytest.mark.parametrize("name", STREAMED)
def test_each_way_of_reading_a_streaming_response(both: Both, name: str) -> None:
    def scenario(side: Side) -> Any:
        with side.within(side.client.chat.completions.with_streaming_response.create(**ASK)) as response:
            seen = [metadata(side, response)[:8]]
            seen.append(STREAMED[name](side, response))
        return [*seen, response.is_closed]

    both.same(scenario)


def test_streaming_responses_of_streams(both: Both) -> None:
    def scenario(side: Side) -> Any:
        create = side.client.chat.completions.with_streaming_response.create
        with side.within(create(**ASK, stream=True)) as response:
            chunks = side.get(side.get(response.parse()))
        with side.within(create(**ASK, stream=True)) as response:
            lines = side.items(response.iter_lines())
        return [chunks, lines]

    both.same(scenario)


def test_streaming_responses_are_written_to_a_file(both: Both, tmp_path: Path) -> None:
    def scenario(side: Side) -> Any:
        with side.within(side.client.models.with_streaming_response.list()) as response:
            if hasattr(response, "stream_to_file"):
                side.get(response.stream_to_file(tmp_path / "out"))
                return (tmp_path / "out").read_bytes()
            return side.get(response.read())

    both.same(scenario)


def test_an_error_status_of_a_streaming_response_is_raised_on_entry(both: Both) -> None:
    def scenario(side: Side) -> Any:
        with side.within(side.client.chat.completions.with_streaming_response.create(**ASK)):
            pass

    both.same(scenario, reply(401, {"error": {"message": "who are you", "code": "invalid_api_key"}}))


def test_clients_and_resources_have_raw_and_streaming_variants(both: Both) -> None:
    def scenario(side: Side) -> Any:
        raw = side.get(side.client.with_raw_response.chat.completions.create(**ASK))
        deep = side.get(side.client.chat.with_raw_response.completions.create(**ASK))
        with side.within(side.client.with_streaming_response.models.list()) as response:
            listed = side.get(response.json())
        return [raw.status_code, side.get(raw.parse()), deep.status_code, listed]

    both.same(scenario)


KINDS = [object, str, type(None), dict[str, object]]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_get_by_path_is_cast_to_the_given_type(both: Both, kind: Any) -> None:
    both.same(lambda side: side.get(side.client.get("/models/m", cast_to=kind)), reply(200, JSON))


def test_calls_by_path_with_each_method_and_body(both: Both) -> None:
    def scenario(side: Side) -> Any:
        class Mine(side.lib.BaseModel):  # type: ignore[misc, name-defined]
            id: str
            object: str | None = None

        client, options = side.client, {"headers": {"X-Mine": "1"}, "params": {"q": ["a", 1]}, "timeout": 3}
        return [
            side.get(client.get("/a", cast_to=Mine, options=options)),
            side.get(
                client.post("/b", cast_to=Mine, body={"x": [1]}, options={**options, "extra_json": {"y": 2}})
            ),
            side.get(client.post("/b", cast_to=Mine)),
            side.get(client.post("/b", cast_to=Mine, body={})),
            side.get(client.post("b?c=1", cast_to=object, content=b"raw bytes")),
            side.get(client.post("/b", cast_to=object, body=["a", "list"])),
            side.get(client.put("/c", cast_to=Mine, body={"x": 1})),
            side.get(client.patch("/d", cast_to=Mine, body={"x": 1})),
            side.get(client.delete("/e", cast_to=Mine, body={"x": 1})),
            side.get(client.delete("/e", cast_to=Mine)),
            side.get(client.get(f"{side.url}/whole", cast_to=Mine)),
        ]

    both.same(scenario, *[reply(200, JSON)] * 11)


def test_a_call_by_path_can_be_cast_to_an_http_response(both: Both) -> None:
    def scenario(side: Side) -> Any:
        import httpx
        import httpx2

        for kind in (httpx.Response, httpx2.Response):
            answer = side.get(side.client.get("/a", cast_to=kind))
            assert answer.json() == JSON
        return answer.status_code

    both.same(scenario, reply(200, JSON), reply(200, JSON))


def test_a_call_by_path_can_stream(both: Both) -> None:
    def scenario(side: Side) -> Any:
        cls = side.lib.AsyncStream if side.is_async else side.lib.Stream
        from importlib import import_module

        chunk = import_module(f"{side.lib.__name__}.types.chat").ChatCompletionChunk
        sent = side.client.post(
            "/chat/completions",
            cast_to=chunk,
            body={**ASK, "stream": True},
            stream=True,
            stream_cls=cls[chunk],
        )
        return side.get(sent)

    both.same(scenario)


def test_get_api_list_iterates_over_pages(both: Both) -> None:
    def scenario(side: Side) -> Any:
        from importlib import import_module

        pages = import_module(
            "openai.pagination" if side.lib.__name__ == "openai" else "specclient.types.pages"
        )
        page = pages.AsyncCursorPage if side.is_async else pages.SyncCursorPage
        model = side.lib.types.Model
        return side.items(side.client.get_api_list("/things", model=model, page=page[model]))

    pages = [{"data": [JSON], "has_more": True}, {"data": [{**JSON, "id": "y"}], "has_more": False}]
    both.same(scenario, *(reply(200, page) for page in pages))


def test_a_response_body_that_is_not_json(both: Both) -> None:
    def scenario(side: Side) -> Any:
        return side.get(side.client.get("/a", cast_to=object))

    both.same(scenario, reply(200, b"just text", {"content-type": "text/plain"}))


def test_invalid_calls_by_path_raise_the_same_errors(both: Both) -> None:
    both.same(lambda side: side.get(side.client.post("/a", cast_to=object, body={}, content=b"x")))
    both.same(lambda side: side.get(side.client.post("/a", cast_to=object, files={"f": b"x"}, content=b"x")))
    both.same(lambda side: side.get(side.client.post("/a", cast_to=object, nonsense=1)))
    both.same(lambda side: side.get(side.client.get("/a")))


def test_a_post_by_path_uploads_files(both: Both) -> None:
    def scenario(side: Side) -> Any:
        options = {"headers": {"Content-Type": "multipart/form-data"}}
        files = {"file": ("a.txt", b"hello", "text/plain")}
        body = {"purpose": "x", "list": [1, 2]}
        return side.get(side.client.post("/f", cast_to=object, body=body, files=files, options=options))

    both.same(scenario, reply(200, JSON))


TEXT = {"content-type": "text/plain"}


@pytest.mark.parametrize("body", [b"True", b" true ", b"False", b"1", b"3.5", b"x", b""])
def test_text_parses_to_truth_values_and_numbers(both: Both, body: bytes) -> None:
    def scenario(side: Side) -> Any:
        found: list[Any] = []
        for kind in (bool, int, float):
            response = side.get(side.client.models.with_raw_response.retrieve("m"))
            try:
                found.append(side.get(response.parse(to=kind)))
            except ValueError:
                found.append("ValueError")
        return [*found, side.get(side.client.get("/models/m", cast_to=bool))]

    both.same(scenario, *[reply(200, body, TEXT)] * 4)


KINDS_OF_JSON: Any = [
    Union[int, str],  # noqa: UP007 - the OpenAI client does not know unions made with `|`
    Union[dict[str, int], list[int]],  # noqa: UP007
    dict[str, int],
    list[int],
]


@pytest.mark.parametrize("kind", KINDS_OF_JSON, ids=str)
@pytest.mark.parametrize(
    "answer",
    [reply(200, b"hello", TEXT), reply(200, {"a": 1}), reply(200, [1]), reply(200, 3), reply(200, "s")],
    ids=["text", "object", "list", "number", "string"],
)
def test_a_body_of_another_type_than_parsed_to_is_given_as_sent(both: Both, kind: Any, answer: Any) -> None:
    def scenario(side: Side) -> Any:
        response = side.get(side.client.models.with_raw_response.retrieve("m"))
        with side.within(side.client.models.with_streaming_response.retrieve("m")) as streamed:
            return [side.get(response.parse(to=kind)), side.get(streamed.parse(to=kind))]

    assert both.same(scenario, answer, answer).error is None


def test_a_streaming_response_of_a_file_parses_to_bytes(both: Both) -> None:
    def scenario(side: Side) -> Any:
        with side.within(side.client.files.with_streaming_response.content("f")) as response:
            content = side.get(response.parse())
        create = side.client.audio.speech.with_streaming_response.create
        with side.within(create(model="m", input="x", voice="alloy")) as response:
            return [content, side.get(response.parse())]

    binary = reply(200, b"abc", {"content-type": "application/octet-stream"})
    assert both.same(scenario, binary, binary).result == [b"abc", b"abc"]


def test_a_stream_by_path_has_events_of_every_name(both: Both) -> None:
    def scenario(side: Side) -> Any:
        cls = (side.lib.AsyncStream if side.is_async else side.lib.Stream)[object]
        return side.get(side.client.post("/x", cast_to=object, body={}, stream=True, stream_cls=cls))

    named = (
        b'event: %b\ndata: {"message": "%b"}\n\n' % (name, name) for name in (b"ping", b"other", b"error")
    )
    assert len(both.same(scenario, events(*named, b"data: [DONE]\n\n")).result) == 3


@pytest.mark.parametrize("verb", ["post", "put", "patch", "delete"])
def test_bytes_as_the_body_are_sent_with_the_same_warning(both: Both, verb: str) -> None:
    def scenario(side: Side) -> Any:
        with pytest.warns(DeprecationWarning, match="raw bytes as `body` is deprecated") as caught:
            answer = side.get(getattr(side.client, verb)("/x", cast_to=object, body=b'{"a":1}'))
        assert side.is_async or caught[0].filename == __file__
        return answer

    for happened in both.run(scenario, reply(200, {})):
        assert (happened.error, happened.result) == (None, {})


@pytest.mark.parametrize("verb", ["get", "post"])
@pytest.mark.parametrize(
    "security",
    [
        {"bearer_auth": True},
        {"admin_api_key_auth": True},
        {"bearer_auth": True, "admin_api_key_auth": True},
        {"bearer_auth": False, "admin_api_key_auth": True},
        {},
    ],
    ids=str,
)
def test_a_call_by_path_has_the_key_that_its_security_names(
    both: Both, verb: str, security: dict[str, bool]
) -> None:
    outcome = both.same(
        lambda side: side.get(
            getattr(side.client, verb)("/x", cast_to=object, options={"security": security})
        ),
        reply(200, {}),
        admin_api_key="sk-admin-key",
    )
    assert (outcome.error is None) == bool(security)
