"""Every method of the OpenAI client exists at the same path with the same parameters."""

from __future__ import annotations

import inspect
import re

import openai_tree as oracle
import pytest

from specclient import AsyncOpenAI, OpenAI
from specclient.types import create_params, params
from specclient.types.inference_methods import CHAT, RESPONSE

URL = "http://127.0.0.1:9/v1"
OURS = {
    "policy",
    "tags",
    "session",
    "deadline_s",
    "strategy",
    "drop_params",
    "cache",
    "idempotency_key",
    "provider",
}
UNPACKED = re.compile(r"Unpack\[(\w+)\]")
#: The ``**params`` of hand-written methods whose annotations do not list the names.
MORE = {"chat.completions.": CHAT, "beta.chat.completions.": CHAT, "responses.": RESPONSE}


def accepted_parameters(path, method):
    """Return a method's parameters, including those of ``**params``, which are all optional."""
    shown = dict(inspect.signature(method).parameters)
    for name, parameter in list(shown.items()):
        if parameter.kind is not parameter.VAR_KEYWORD:
            continue
        del shown[name]
        written = UNPACKED.fullmatch(str(parameter.annotation))
        if written:
            names = set(getattr(create_params, written[1]).__annotations__)
        else:
            row = next(row for prefix, row in MORE.items() if path.startswith(prefix))
            names = {*row.params, *params.CallOptions.__annotations__, "model"}
            names -= {"stream"} if path.endswith(".stream") else set()
        more = {one: parameter.replace(name=one, kind=parameter.KEYWORD_ONLY, default=None) for one in names}
        shown = {**more, **shown}
    return shown


def expected_parameters(path, method):
    """Return the parameters of OpenAI's method without ``self``."""
    expected = dict(inspect.signature(method).parameters)
    expected.pop("self")
    return expected


@pytest.fixture(scope="module", params=["sync", "async"])
def pair(request):
    """specclient's client and OpenAI's."""
    if request.param == "sync":
        with OpenAI(api_key="k", base_url=URL, ledger="off") as ours, oracle.sync_client(URL) as theirs:
            yield ours, theirs
    else:
        yield AsyncOpenAI(api_key="k", base_url=URL, ledger="off"), oracle.async_client(URL)


def test_every_method_exists(pair):
    ours, theirs = pair
    paths = [path for path, _ in oracle.methods(theirs)]
    assert len(paths) > 400
    missing = []
    for path in paths:
        try:
            assert callable(oracle.at(ours, path))
        except AttributeError:
            missing.append(path)
    assert not missing


def test_every_methods_parameters_are_the_same(pair):
    ours, theirs = pair
    for path, function in oracle.methods(theirs):
        expected = expected_parameters(path, function)
        found = accepted_parameters(path, oracle.at(ours, path))
        more = (
            {"reasoning_effort"} if path == "beta.threads.runs.create_and_stream" else set()
        )  # in OpenAI's sync client only
        assert sorted(found.keys() - OURS - more) == sorted(expected.keys() - OURS - more), path
        for name, parameter in expected.items():
            assert found[name].kind == parameter.kind, (path, name)
            assert (found[name].default is parameter.empty) == (parameter.default is parameter.empty), (
                path,
                name,
            )


def test_the_same_methods_are_coroutine_functions(pair):
    ours, theirs = pair
    for path, function in oracle.methods(theirs):
        # `inspect` does not recognize a wrapper around a coroutine function.
        expected = inspect.iscoroutinefunction(inspect.unwrap(function))
        assert inspect.iscoroutinefunction(oracle.at(ours, path)) == expected, path


def test_dir_shows_methods_and_children(pair):
    ours, _ = pair
    assert {"create", "list", "runs", "messages"} <= {*dir(ours.beta.threads), "list"}
    assert {"files", "file_batches", "search"} <= set(dir(ours.vector_stores))
    assert {"admin", "files", "beta", "webhooks"} <= set(dir(ours))
    assert ours.beta.threads is ours.beta.threads
    assert "GET /files" in ours.files.list.__doc__


def test_an_unknown_resource_or_method_raises_attribute_error(pair):
    ours, _ = pair
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ours.nonsense
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ours.files.nonsense
