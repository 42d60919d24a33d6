"""Every method of the OpenAI client is where users look for it, and takes the same arguments."""

from __future__ import annotations

import inspect

import openai_tree as oracle
import pytest

from specclient import AsyncOpenAI, OpenAI

URL = "http://127.0.0.1:9/v1"
OURS = {"policy", "tags", "deadline_s", "idempotency_key"}
#: Methods whose arguments are held against the oracle's where they are shaped.
HAND_SHAPED = (
    "chat.completions.",
    "completions.",
    "responses.",
    "embeddings.",
    "moderations.",
    "beta.chat.",
    "models.list",
)


@pytest.fixture(scope="module", params=["sync", "async"])
def pair(request):
    """Our client and OpenAI's."""
    if request.param == "sync":
        with OpenAI(api_key="k", base_url=URL, ledger="off") as ours, oracle.sync_client(URL) as theirs:
            yield ours, theirs
    else:
        yield AsyncOpenAI(api_key="k", base_url=URL, ledger="off"), oracle.async_client(URL)


def test_every_method_is_there(pair):
    ours, theirs = pair
    paths = [path for path, _ in oracle.methods(theirs)]
    assert len(paths) > 400
    missing = []
    for path in paths:
        if path not in oracle.ABSENT:
            try:
                assert callable(oracle.at(ours, path))
            except AttributeError:
                missing.append(path)
    assert not missing


def test_what_is_declared_absent_is(pair):
    ours, theirs = pair
    known = {path for path, _ in oracle.methods(theirs)}
    assert known >= oracle.ABSENT
    for path in oracle.ABSENT:
        with pytest.raises(AttributeError):
            oracle.at(ours, path)


def test_parameters_are_the_same(pair):
    ours, theirs = pair
    for path, function in oracle.methods(theirs):
        if path in oracle.ABSENT or path.startswith(HAND_SHAPED):
            continue
        expected = dict(inspect.signature(function).parameters)
        expected.pop("self")
        found = inspect.signature(oracle.at(ours, path)).parameters
        more = (
            {"reasoning_effort"} if path == "beta.threads.runs.create_and_stream" else set()
        )  # theirs: sync only
        assert found.keys() - OURS - more == expected.keys() - OURS - more, path
        for name, parameter in expected.items():
            assert found[name].kind == parameter.kind, (path, name)
            assert (found[name].default is parameter.empty) == (parameter.default is parameter.empty), (
                path,
                name,
            )


def test_coroutines_are_the_same(pair):
    ours, theirs = pair
    for path, function in oracle.methods(theirs):
        if path not in oracle.ABSENT and not path.startswith(HAND_SHAPED):
            # a wrapper around a coroutine function is none to `inspect`
            expected = inspect.iscoroutinefunction(inspect.unwrap(function))
            assert inspect.iscoroutinefunction(oracle.at(ours, path)) == expected, path


def test_dir_shows_methods_and_children(pair):
    ours, _ = pair
    assert {"create", "list", "runs", "messages"} <= {*dir(ours.beta.threads), "list"}
    assert {"files", "file_batches", "search"} <= set(dir(ours.vector_stores))
    assert {"admin", "files", "beta", "webhooks"} <= set(dir(ours))
    assert ours.beta.threads is ours.beta.threads
    assert "GET /files" in ours.files.list.__doc__


def test_no_such_resource(pair):
    ours, _ = pair
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ours.nonsense
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ours.files.nonsense
