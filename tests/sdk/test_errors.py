"""Exceptions: every class of the OpenAI client exists with equal name, bases and arguments, and pickles."""

from __future__ import annotations

import copy
import inspect
import pickle
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import openai._exceptions as theirs
import pytest

from specclient import errors

REQUEST = httpx.Request("POST", "https://api.example.com/v1/chat/completions", content=b"{}")
THEIR_CLASSES = {
    name: cls
    for name, cls in vars(theirs).items()
    if inspect.isclass(cls) and issubclass(cls, Exception) and cls.__module__.startswith("openai")
}
OUR_CLASSES = {
    name: getattr(errors, name) for name in errors.__all__ if inspect.isclass(getattr(errors, name))
}


def response(status: int = 429) -> httpx.Response:
    return httpx.Response(status, request=REQUEST, headers={"x-request-id": "req-1"}, json={"error": {}})


@pytest.mark.parametrize("name", sorted(THEIR_CLASSES))
def test_every_class_has_the_openai_clients_bases_and_arguments(name: str) -> None:
    cls, ours = THEIR_CLASSES[name], OUR_CLASSES[name]
    bases = [base.__name__ for base in cls.__mro__ if base in THEIR_CLASSES.values() or base is ValueError]
    ours_too = [base.__name__ for base in ours.__mro__ if base.__name__ in {*THEIR_CLASSES, "ValueError"}]
    assert ours_too == bases
    if cls.__init__ in (Exception.__init__, ValueError.__init__):
        return
    given = inspect.signature(ours).parameters
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.name not in ("args", "kwargs"):
            assert given[parameter.name].kind == parameter.kind


def test_every_error_name_of_the_openai_package_is_exported() -> None:
    shown = {name for name in dir(openai) if name.endswith("Error") and not name.startswith("_")}
    assert shown <= set(errors.__all__)


BODY = {"message": "slow down", "code": 429, "param": "messages", "type": "tokens"}
MADE: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("OpenAIError", ("said",), {}),
    ("APIError", ("said", REQUEST), {"body": BODY}),
    ("APIError", ("said", REQUEST), {"body": "text"}),
    ("APIConnectionError", (), {"request": REQUEST}),
    ("APIConnectionError", (), {"message": "said", "request": REQUEST}),
    ("APITimeoutError", (REQUEST,), {}),
    ("APITimeoutError", (), {"request": REQUEST}),
    ("APIResponseValidationError", (response(200), {"a": 1}), {}),
    ("APIResponseValidationError", (), {"response": response(200), "body": None, "message": "said"}),
    ("APIStatusError", ("said",), {"response": response(418), "body": None}),
    ("RateLimitError", ("said",), {"response": response(), "body": BODY}),
    ("InternalServerError", ("said",), {"response": response(503), "body": [1]}),
    ("OAuthError", (), {"response": response(401), "body": {"error": "invalid_grant"}}),
    ("OAuthError", (), {"response": response(401), "body": {"error": "x", "error_description": "said"}}),
    ("LengthFinishReasonError", (), {"completion": SimpleNamespace(usage={"total_tokens": 3})}),
    ("LengthFinishReasonError", (), {"completion": SimpleNamespace(usage=None)}),
    ("ContentFilterFinishReasonError", (), {}),
    ("ContentFilterFinishReasonError", (), {"completion": SimpleNamespace(id="c")}),
    ("InvalidWebhookSignatureError", ("said",), {}),
    ("SubjectTokenProviderError", ("said",), {"response": None}),
    ("WebSocketConnectionClosedError", ("said",), {"unsent_messages": ["a", b"b", b"\xff"]}),
    ("WebSocketConnectionClosedError", ("said",), {"unsent_messages": ["a"]}),
    ("WebSocketQueueFullError", ("said",), {}),
]
SEEN = (
    "message", "request", "response", "body", "code", "param", "type", "status_code", "request_id", "error",
    "completion", "unsent_messages", "unsent_frames",
)  # fmt: skip


@pytest.mark.parametrize(("name", "args", "options"), MADE)
def test_equal_arguments_give_equal_attributes(name: str, args: Any, options: Any) -> None:
    ours, other = OUR_CLASSES[name](*args, **options), THEIR_CLASSES[name](*args, **options)
    assert (str(ours), ours.args) == (str(other), other.args)
    assert isinstance(ours, errors.OpenAIError) or name == "InvalidWebhookSignatureError"
    for attribute in SEEN:
        assert hasattr(ours, attribute) == hasattr(other, attribute), attribute
        assert getattr(ours, attribute, None) == getattr(other, attribute, None), attribute


OF_OURS = [
    errors.DeadlineExceededError(REQUEST, message="late", partial="so far"),
    errors.CircuitOpenError("rests", deployment="p/m", retry_after_s=1.5),
    errors.BudgetExceededError("spent"),
    errors.NoRouteError("none", decision={"candidates": ["a"]}),
    errors.ConfigurationError("bad"),
    errors.UnsupportedParameterError("no", body={"param": "prediction"}),
    errors.ContextOverflowError("long"),
    errors.CheckpointError("none"),
    errors.LedgerError("locked"),
]
EVERY = [*(OUR_CLASSES[name](*args, **options) for name, args, options in MADE), *OF_OURS]


def pickled(error: Any) -> Any:
    return pickle.loads(pickle.dumps(error))


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("copied", [pickled, copy.copy, copy.deepcopy])
def test_every_error_can_be_pickled_and_copied(error: Any, copied: Any, monkeypatch: Any) -> None:
    if copied is pickled:
        monkeypatch.setattr(errors.OpenAIError, "pickle_request_bodies", True)
    if hasattr(error, "add_note"):
        error.__dict__.pop("__notes__", None)
        error.add_note("seen on the way")
    result = copied(error)
    assert type(result) is type(error)
    assert (str(result), result.args, result.__notes__) == (str(error), error.args, ["seen on the way"])
    shown = (httpx.Request, httpx.Response)
    for name, value in vars(error).items():
        got = getattr(result, name)
        assert type(got) is type(value)
        if isinstance(value, shown):
            assert (str(got.url), got.content) == (str(value.url), value.content)
        else:
            assert got == value


PROMPT = "my secret diary"
SENT = httpx.Request("POST", "https://api.example.com/v1/x", json={"messages": [{"content": PROMPT}]})


def refused() -> httpx.Response:
    """Return a response after a redirect; both requests have the prompt in their bodies."""
    answer = httpx.Response(
        429, request=SENT, headers={"x-request-id": "req-1"}, json={"error": {"code": "x"}}
    )
    answer.history = [httpx.Response(307, request=SENT)]
    return answer


WITH_PROMPT = [
    errors.APITimeoutError(SENT, partial="so far"),
    errors.APIConnectionError(request=SENT),
    errors.RateLimitError("slow down", response=refused(), body={"code": "x"}),
    errors.APIResponseValidationError(refused()),
    errors.WebSocketConnectionClosedError("closed", unsent_messages=[PROMPT, PROMPT.encode()]),
]


@pytest.mark.parametrize("error", WITH_PROMPT, ids=lambda error: type(error).__name__)
def test_a_pickled_error_holds_no_prompt_unless_wanted(error: Any) -> None:
    data = pickle.dumps(error)
    assert PROMPT.encode() not in data
    arrived = pickle.loads(data)
    assert (type(arrived), str(arrived)) == (type(error), str(error))
    assert arrived.__dict__.keys() == error.__dict__.keys()
    if request := getattr(error, "request", None):
        assert (arrived.request.method, arrived.request.url) == ("POST", SENT.url)
        assert arrived.request.headers == request.headers
        assert arrived.request.content == b""
    if response := getattr(error, "response", None):
        assert (arrived.response.status_code, arrived.response.content) == (429, response.content)
        assert arrived.request_id == "req-1" if hasattr(error, "request_id") else True
        assert arrived.response.request.content == b""
    wanted = copy.copy(error)
    wanted.pickle_request_bodies = True
    assert PROMPT.encode() in pickle.dumps(wanted)
    assert PROMPT.encode() not in pickle.dumps(error)


def test_pickling_an_error_does_not_change_it() -> None:
    error = errors.RateLimitError("slow down", response=refused())
    pickle.dumps(error)
    assert PROMPT.encode() in error.request.content
    assert PROMPT.encode() in error.response.request.content
    assert PROMPT.encode() in error.response.history[0].request.content


def test_specclients_errors_have_the_documented_bases() -> None:
    late, rests = OF_OURS[0], OF_OURS[1]
    assert isinstance(late, errors.APITimeoutError | errors.SpecClientError)
    assert isinstance(late, errors.SpecClientError)
    assert isinstance(rests, errors.APIConnectionError)
    assert isinstance(rests, errors.SpecClientError)
    assert not isinstance(rests, errors.APITimeoutError)


def test_a_response_without_a_request_can_make_an_error() -> None:
    error = errors.RateLimitError("said", response=httpx.Response(429), body=None)
    assert (error.request, error.status_code) == (None, 429)


def test_unsent_socket_messages_are_not_in_the_repr() -> None:
    error = errors.WebSocketConnectionClosedError("closed", unsent_messages=["a secret"])
    assert "secret" not in repr(vars(error)) + repr(error)
    assert error.unsent_messages == ["a secret"]
