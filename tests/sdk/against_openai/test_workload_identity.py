"""Workload identities: the same exchanges, requests, copies and errors as the OpenAI client's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from both_clients import Both, Side
from loopback_server import OpenAIServer, reply

import specclient
import specclient.auth
from specclient.client import workload_identity

ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}
REFUSED = reply(401, {"error": {"message": "expired", "code": "invalid_api_key"}})
FAILED = reply(500, {"error": {"message": "x"}}, {"retry-after-ms": "1"})


def token(number: int = 1, life: Any = 3600) -> Any:
    return reply(200, {"access_token": f"access-{number}", "expires_in": life, "token_type": "Bearer"})


def identity(**changes: Any) -> dict[str, Any]:
    return {
        "identity_provider_id": "idp-1",
        "service_account_id": "sa-1",
        "provider": {"token_type": "jwt", "get_token": lambda: "subject-secret"},
        **changes,
    }


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """The token service of both libraries."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    with OpenAIServer() as server:
        url = server.base_url.removesuffix("/v1") + "/oauth/token"
        defaults = openai.auth.WorkloadIdentityAuth.__init__.__kwdefaults__
        monkeypatch.setitem(defaults, "token_exchange_url", url)
        monkeypatch.setattr(workload_identity, "TOKEN_EXCHANGE_URL", url)
        yield server


def make(side: Side, **options: Any) -> Any:
    given = {"workload_identity": identity(), "base_url": f"{side.url}/v1", "max_retries": 0, **options}
    return side.make("OpenAI", **given)


def ask(side: Side, client: Any) -> Any:
    return side.get(client.chat.completions.create(**ASK))


def exchanges(tokens: OpenAIServer) -> list[Any]:
    """Return the exchanges since the last call, and forget them."""
    seen = [(each.method, each.path, each.json) for each in tokens.requests]
    tokens.requests.clear()
    return seen


def compared(both: Both, tokens: OpenAIServer, scenario: Any, *answers: Any, exchanged: Any = ()) -> Any:
    """Run a scenario with both libraries, and check that both exchange the same; return the outcome."""
    seen = []

    def counted(side: Side) -> Any:
        tokens.script(*(exchanged or (token(),)))
        try:
            return scenario(side)
        finally:
            seen.append(exchanges(tokens))

    outcome = both.same(counted, *answers)
    assert seen[0] == seen[1]
    return outcome, seen[1]


def test_a_token_is_exchanged_once_and_sent_with_each_request(both: Both, tokens: OpenAIServer) -> None:
    def scenario(side: Side) -> Any:
        client = make(side)
        ask(side, client)
        side.get(client.models.list())
        return [client.api_key, dict(client.auth_headers), client.workload_identity["service_account_id"]]

    outcome, exchanged = compared(both, tokens, scenario)
    assert [each["headers"]["authorization"] for each in outcome.sent] == ["Bearer access-1"] * 2
    assert len(exchanged) == 1
    assert exchanged[0][2]["subject_token"] == "subject-secret"


@pytest.mark.parametrize("second", [200, 401])
def test_a_refused_token_is_replaced_once(both: Both, tokens: OpenAIServer, second: int) -> None:
    answers = [REFUSED] if second == 200 else [REFUSED, REFUSED]
    outcome, exchanged = compared(
        both, tokens, lambda side: ask(side, make(side)), *answers, exchanged=(token(1), token(2))
    )
    sent = [each["headers"]["authorization"] for each in outcome.sent]
    assert sent == ["Bearer access-1", "Bearer access-2"]
    assert len(exchanged) == 2
    assert (outcome.error is None) == (second == 200)


def test_a_retry_after_another_error_keeps_the_token(both: Both, tokens: OpenAIServer) -> None:
    outcome, exchanged = compared(both, tokens, lambda side: ask(side, make(side, max_retries=1)), FAILED)
    assert (len(outcome.sent), len(exchanged)) == (2, 1)


EXCHANGES: dict[str, Any] = {
    "refused": reply(400, {"error": "invalid_grant", "error_description": "The subject is unknown."}),
    "refused without a body": reply(401),
    "forbidden": reply(403, {"error": "access_denied"}),
    "failed": reply(500, {"error": "x"}),
    "redirected": reply(307, b"", {"location": "/elsewhere"}),
    "no body": reply(200),
    "no object": reply(200, [1]),
    "no token": reply(200, {"expires_in": 3}),
    "a life that is no number": token(life="3600"),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_failed_exchange_raises_the_same_error_and_sends_nothing(
    both: Both, tokens: OpenAIServer, name: str
) -> None:
    outcome, _ = compared(both, tokens, lambda side: ask(side, make(side)), exchanged=(EXCHANGES[name],))
    assert outcome.error is not None
    assert outcome.sent == []


COPIES: dict[str, dict[str, Any]] = {
    "another key": {"api_key": "sk-other"},
    "another identity": {"workload_identity": identity(service_account_id="sa-2")},
    "key and identity": {"api_key": "sk-other", "workload_identity": identity()},
    "an organization": {"organization": "org-2"},
    "a header in place of the token": {"default_headers": {"Authorization": "Basic abc"}},
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_have_the_same_credential(both: Both, tokens: OpenAIServer, name: str) -> None:
    def scenario(side: Side) -> Any:
        copied = make(side).with_options(**COPIES[name])
        ask(side, copied)
        return copied.api_key

    compared(both, tokens, scenario)


INVALID: dict[str, dict[str, Any]] = {
    "key and identity": {"api_key": "sk-1"},
    "no provider": {"workload_identity": {"identity_provider_id": "a", "service_account_id": "b"}},
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_options_raise_when_the_client_is_created(both: Both, name: str) -> None:
    theirs, ours = both.run(lambda side: make(side, **INVALID[name]))
    assert theirs.error is not None
    assert ours.error is not None
    assert theirs.error["classes"] <= ours.error["classes"]


def test_a_file_of_kubernetes_is_read_for_each_exchange(
    both: Both, tokens: OpenAIServer, tmp_path: Path
) -> None:
    file = tmp_path / "token"

    def scenario(side: Side) -> Any:
        provider = side.lib.auth.k8s_service_account_token_provider(file)
        client = make(side, workload_identity=identity(provider=provider))
        file.write_text("first\n")
        ask(side, client)
        file.write_text("second")
        return ask(side, client)

    outcome, exchanged = compared(
        both, tokens, scenario, reply(200, {}), REFUSED, exchanged=(token(1), token(2))
    )
    assert [each[2]["subject_token"] for each in exchanged] == ["first", "second"]
    assert len(outcome.sent) == 3


@pytest.mark.parametrize("content", [None, " \n"])
def test_a_file_without_a_token_raises_the_same_class(
    both: Both, tokens: OpenAIServer, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)

    def scenario(side: Side) -> Any:
        provider = side.lib.auth.k8s_service_account_token_provider(file)
        return ask(side, make(side, workload_identity=identity(provider=provider)))

    theirs, ours = both.run(scenario)
    assert theirs.error is not None
    assert ours.error is not None
    assert "SubjectTokenProviderError" in theirs.error["classes"] <= ours.error["classes"]
    assert tokens.requests == []


METADATA: dict[str, Any] = {
    "token": reply(200, {"access_token": "of the machine"}),
    "empty": reply(200, b""),
    "refused": reply(400, {"error": "x"}),
}


@pytest.mark.parametrize("name", METADATA)
@pytest.mark.parametrize("cloud", ["azure", "google"])
def test_metadata_services_are_asked_in_the_same_way(cloud: str, name: str) -> None:
    seen = []
    for lib in (openai, specclient):
        with OpenAIServer() as server, httpx.Client(proxy=server.url) as client:
            server.script(METADATA[name])
            provider = (
                lib.auth.azure_managed_identity_token_provider(client_id="c", http_client=client)  # type: ignore[arg-type]
                if cloud == "azure"
                else lib.auth.gcp_id_token_provider("me", http_client=client)  # type: ignore[arg-type]
            )
            try:
                outcome: Any = provider["get_token"]()
            except (openai.OpenAIError, specclient.OpenAIError) as error:
                outcome = type(error).__name__
            request = server.requests[0]
            own = {name: text for name, text in request.headers.items() if name.startswith("metadata")}
            seen.append((provider["token_type"], request.path, request.query, own, outcome))
    assert seen[0] == seen[1]
    assert len(seen[0][3]) == 1


def test_concurrent_calls_share_one_exchange(tokens: OpenAIServer) -> None:
    asked = threading.Barrier(4)
    subjects: list[str] = []

    def subject() -> str:
        subjects.append("s")
        return "s"

    provider: Any = {"token_type": "id", "get_token": subject}
    auth = specclient.auth.WorkloadIdentityAuth(workload_identity=identity(provider=provider))  # type: ignore[arg-type]
    tokens.script(token())

    def get() -> str:
        asked.wait()
        return auth.get_token()

    with ThreadPoolExecutor(4) as pool:
        assert {each.result() for each in [pool.submit(get) for _ in range(4)]} == {"access-1"}
    assert len(subjects) == len(tokens.requests) == 1


def test_an_exchange_without_an_answer_holds_no_subject_token(tokens: OpenAIServer) -> None:
    async def hang_up(_: Any, wire: Any) -> None:
        wire.reset()

    tokens.script(hang_up)
    auth = specclient.auth.WorkloadIdentityAuth(workload_identity=identity())  # type: ignore[arg-type]
    with pytest.raises(specclient.APIConnectionError) as caught:
        auth.get_token()
    error: BaseException | None = caught.value
    assert error.request.url.path == "/oauth/token"  # type: ignore[union-attr]
    while error is not None:
        assert "subject-secret" not in str(getattr(error, "_request", None) and error.request.content)  # type: ignore[attr-defined]
        error = error.__cause__ or error.__context__


def test_no_secret_is_in_texts(tokens: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with OpenAIServer() as server:
        client = specclient.OpenAI(workload_identity=identity(), base_url=server.base_url, max_retries=0)  # type: ignore[arg-type]
        tokens.script(token(), reply(400, {"error": "invalid_grant"}))
        server.script(REFUSED)
        with pytest.raises(specclient.OAuthError) as caught:
            client.chat.completions.create(**ASK)
        client.close()
    error: BaseException | None = caught.value
    texts = [caplog.text, repr(client), repr(client.core.default)]
    while error is not None:
        texts += [
            repr(error),
            str(vars(error)),
            str(getattr(error, "request", None) and error.request.content),
        ]  # type: ignore[attr-defined]
        error = error.__cause__ or error.__context__
    assert not any(secret in text for text in texts for secret in ("subject-secret", "access-1"))


def test_a_provider_is_refused_with_the_way_out() -> None:
    with pytest.raises(specclient.ConfigurationError, match="model='bedrock/MODEL'"):
        specclient.OpenAI(provider=openai.providers.bedrock(api_key="x", region="us-east-1"))
