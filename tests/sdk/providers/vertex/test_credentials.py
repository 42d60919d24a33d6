"""Access tokens of every kind of Google credentials, obtained once for all callers; errors show no secret."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import google.auth.credentials
import google.auth.exceptions
import pytest
from google.auth import compute_engine, iam
from google.auth.compute_engine import _metadata
from google_cloud import (
    PROJECT,
    SUBJECT_TOKEN,
    TARGET,
    TokenServer,
    foreign_key,
    vertex_settings,
    written,
)
from loopback_server import OpenAIServer, Received, Wire, hang, reply

from specclient import AsyncOpenAI, OpenAI
from specclient.errors import AuthenticationError, CredentialsError
from specclient.providers.vertex.credentials import GoogleCredentials

pytestmark = pytest.mark.anyio


class Held(google.auth.credentials.Credentials):
    """Credentials whose next token is the next of ``outcomes``, once ``gate`` is open."""

    def __init__(self, *outcomes: str | Exception, lifetime_s: float = 3600.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.outcomes = list(outcomes)
        self.lifetime_s = lifetime_s
        self.refreshes = 0
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def refresh(self, request: Any) -> None:
        self.refreshes += 1
        self.threads.add(threading.current_thread().name)
        self.gate.wait(10)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        self.token = outcome
        ends = datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=self.lifetime_s)
        self.expiry = ends.replace(tzinfo=None)  # google-auth's times are naive


class Clock:
    """The time, which a test moves."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


async def test_a_service_account_gets_tokens_for_signed_assertions(
    tokens: TokenServer, tmp_path: Path
) -> None:
    path = written(tmp_path / "key.json", tokens.service_account())
    access = await GoogleCredentials(path).access()
    assert (access.token, access.project) == ("ya29.loopback-1", PROJECT)
    assert access.expires_at is not None
    assert 3500 < access.expires_at - time.time() < 3700
    (sent,) = tokens.requests
    assert sent.path == "/token"  # the server has verified its RS256 signature and its claims


async def test_default_credentials_impersonation_and_workload_identity(
    tokens: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = written(tmp_path / "key.json", tokens.service_account())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", own)
    default = await GoogleCredentials().access()
    assert (default.token, default.project) == ("ya29.loopback-1", PROJECT)

    # google-auth takes the account from the URL in the file, and has the URL of the service itself.
    monkeypatch.setattr(
        iam, "_IAM_ENDPOINT", f"{tokens.url}/v1/projects/-/serviceAccounts/{{}}:generateAccessToken"
    )
    other = written(tmp_path / "acting.json", tokens.impersonation())
    acting = await GoogleCredentials(other).access()
    assert acting.token == "ya29.loopback-3"  # 2 is that of the account that acts
    assert tokens.requests[-1].path.endswith(f"/serviceAccounts/{TARGET}:generateAccessToken")

    federated = written(tmp_path / "pool.json", tokens.workload_identity(tmp_path / "subject"))
    assert (await GoogleCredentials(federated).access()).token == "ya29.loopback-4"
    assert tokens.requests[-1].path == "/sts"


async def test_a_machine_of_google_cloud_gives_its_token_and_project(monkeypatch: pytest.MonkeyPatch) -> None:
    async def metadata(received: Received, wire: Wire) -> None:
        assert received.headers.get("metadata-flavor") == "Google"
        answers: dict[str, Any] = {
            "/computeMetadata/v1/project/project-id": b"machine-project",
            "/computeMetadata/v1/instance/service-accounts/default/": {"email": "m@x", "scopes": []},
            "/computeMetadata/v1/instance/service-accounts/m@x/token": {
                "access_token": "ya29.machine",
                "expires_in": 3600,
                "token_type": "Bearer",
            },
        }
        path = received.path.replace("/default/token", "/m@x/token")
        answer = answers.get(path, b"")
        text = {"content-type": "application/text"} if isinstance(answer, bytes) else {}
        await reply(200, answer, {"metadata-flavor": "Google", **text})(received, wire)

    with OpenAIServer(metadata) as server:
        monkeypatch.setenv("NO_GCE_CHECK", "false")
        monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{server.port}")
        monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", f"127.0.0.1:{server.port}")
        access = await GoogleCredentials().access()
    assert (access.token, access.project) == ("ya29.machine", "machine-project")


async def test_concurrent_callers_share_one_renewal_off_the_event_loop() -> None:
    held = Held("ya29.one")
    held.gate.clear()
    credentials = GoogleCredentials(held)
    waiting = [asyncio.create_task(credentials.access()) for _ in range(20)]
    await asyncio.sleep(0.05)  # the event loop runs while the renewal blocks
    waiting[0].cancel()  # does not end the renewal of the others
    held.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert {access.token for access in found[1:] if not isinstance(access, BaseException)} == {"ya29.one"}
    assert held.refreshes == 1
    assert held.threads == {"specclient-google-auth"}


def test_threads_with_event_loops_of_their_own_share_one_renewal() -> None:
    held, tokens = Held("ya29.one"), list[str]()
    held.gate.clear()
    credentials = GoogleCredentials(held)

    def ask() -> None:
        tokens.append(asyncio.run(credentials.access()).token)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    held.gate.set()
    for thread in threads:
        thread.join(10)
    assert (tokens, held.refreshes) == (["ya29.one"] * 5, 1)


async def test_a_child_process_renews_by_itself() -> None:
    held = Held("ya29.one", "ya29.one")
    held.gate.clear()
    credentials = GoogleCredentials(held)
    credentials._renew()  # its thread does not live on in a forked child
    await _until(lambda: held.refreshes == 1)
    credentials.reset_after_fork()
    asked = asyncio.create_task(credentials.access())
    await _until(lambda: held.refreshes == 2)
    held.gate.set()
    assert (await asked).token == "ya29.one"


async def test_a_missing_package_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth.transport.requests", None)
    with pytest.raises(CredentialsError, match=r"pip install 'specclient\[vertex\]', or"):
        await GoogleCredentials(Held("ya29.one")).access()


async def test_a_token_is_kept_until_shortly_before_its_expiry() -> None:
    held, clock = Held("ya29.one", "ya29.two", "ya29.three"), Clock()
    credentials = GoogleCredentials(held, now=clock)
    assert (await credentials.access()).token == "ya29.one"
    clock.ahead = 3600 - 301
    assert (await credentials.access()).token == "ya29.one"
    assert held.refreshes == 1
    clock.ahead = 3600 - 200
    assert (await credentials.access()).token == "ya29.one"  # renewed meanwhile
    await _until(lambda: credentials._access is not None and credentials._access.token == "ya29.two")
    clock.ahead = 0.0
    assert (await credentials.access()).token == "ya29.two"
    clock.ahead = 3600.0
    assert (await credentials.access()).token == "ya29.three"  # an expired token is not used
    assert held.refreshes == 3


async def test_a_failed_renewal_does_not_end_calls_while_the_token_is_valid() -> None:
    refused = google.auth.exceptions.RefreshError("invalid_grant: revoked")  # type: ignore[no-untyped-call]
    held, clock = Held("ya29.one", refused, refused), Clock()
    credentials = GoogleCredentials(held, now=clock)
    await credentials.access()
    clock.ahead = 3600 - 100
    assert (await credentials.access()).token == "ya29.one"
    await _until(lambda: credentials._next_try > 0)
    assert (await credentials.access()).token == "ya29.one"
    assert held.refreshes == 2  # not again at once
    clock.ahead = 3600 - 10
    with pytest.raises(
        CredentialsError, match=r"Google refused a new access token \(invalid_grant: revoked\)"
    ):
        await credentials.access()


async def test_a_wait_for_a_token_is_bounded(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai_server.script(*[hang] * 9)  # a metadata server that is away
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", f"127.0.0.1:{openai_server.port}")
    credentials = GoogleCredentials(compute_engine.Credentials(), renewal_s=0.3)  # type: ignore[no-untyped-call]
    with pytest.raises(CredentialsError, match=r"gave no access token within 0\.3 s; check the network"):
        await credentials.access()
    assert openai_server.requests


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        ("{", "it is no JSON object with a type"),
        ("[]", "it is no JSON object with a type"),
        ('{"type": "password"}', "has the type 'password'; it must be one of service_account"),
        ('{"type": "service_account", "private_key": "x"}', "MalformedError"),
    ],
)
async def test_an_unusable_file_is_named_with_the_reason_and_the_way_out(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "key.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CredentialsError) as caught:
        await GoogleCredentials(str(path)).access()
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)
    assert "gcloud auth application-default login" in str(caught.value)
    assert isinstance(caught.value, AuthenticationError)


async def test_missing_default_credentials_raise_one_clear_error(
    tokens: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CredentialsError, match="there are no usable Google credentials") as caught:
        await GoogleCredentials().access()
    assert "GOOGLE_APPLICATION_CREDENTIALS" in str(caught.value)


async def test_a_refused_key_is_an_error_without_secrets(
    tokens: TokenServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pem = foreign_key()
    path = written(tmp_path / "key.json", {**tokens.service_account(), "private_key": pem})
    with caplog.at_level(logging.DEBUG), pytest.raises(CredentialsError) as caught:
        await GoogleCredentials(path).access()
    assert "Google refused a new access token (invalid_grant" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    secrets = [pem.splitlines()[3], tokens.requests[0].body.decode().partition("assertion=")[2][:40]]
    shown = [
        str(caught.value),
        *(record.getMessage() for record in caplog.records if record.name == "specclient"),
    ]
    assert not any(secret in text for secret in secrets for text in shown)


async def test_tokens_in_the_text_of_an_error_are_not_shown() -> None:
    token = "ya29.c.b0AXv0zTPn-secret"
    leak = google.auth.exceptions.RefreshError(f"{token} eyJhbGciOi.JIUzI1.NiJ9 is refused")  # type: ignore[no-untyped-call]
    with pytest.raises(CredentialsError, match=r"\[redacted\] \[redacted\] is refused"):
        await GoogleCredentials(Held(leak)).access()
    known = await GoogleCredentials(Held(token)).access()
    assert token not in repr(known)


async def test_a_call_sends_the_token_and_the_project_of_its_credentials(
    openai_server: OpenAIServer, tokens: TokenServer, tmp_path: Path
) -> None:
    path = written(tmp_path / "key.json", {**tokens.service_account(), "quota_project_id": "paying-project"})
    settings = vertex_settings(openai_server, credentials=path, project=None)
    answer = {"candidates": [{"content": {"parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}
    openai_server.script(*[reply(200, answer)] * 5)
    model = "vertex/gemini-2.5-flash"
    async with AsyncOpenAI(config=settings) as client:
        ask = [
            client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])
            for _ in range(4)
        ]
        await asyncio.gather(*ask)
        repr_ = repr(client.pipeline.destinations.endpoints["vertex"])
        rows = [str(row) for row in client.ledger.rows()]
    with OpenAI(config=settings) as other:  # shares the token
        other.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])
    assert len(tokens.requests) == 1
    for sent in openai_server.requests:
        assert sent.path.startswith(f"/v1beta1/projects/{PROJECT}/locations/europe-west4/publishers/google/")
        assert sent.headers["authorization"] == "Bearer ya29.loopback-1"
    assert not any("ya29" in text for text in (repr_, *rows))


async def test_a_refused_token_is_an_authentication_error_that_does_not_show_it(
    openai_server: OpenAIServer, tokens: TokenServer, tmp_path: Path
) -> None:
    path = written(tmp_path / "key.json", tokens.service_account())

    async def echo(received: Any, wire: Any) -> None:
        fault = {"code": 401, "status": "UNAUTHENTICATED", "message": received.headers["authorization"]}
        await reply(401, {"error": fault})(received, wire)

    openai_server.script(echo)
    async with AsyncOpenAI(config=vertex_settings(openai_server, credentials=path)) as client:
        with pytest.raises(AuthenticationError, match=r"\[redacted\]") as caught:
            await client.chat.completions.create(model="vertex/gemini-2.5-flash", messages=[])
    assert (
        "ya29" not in f"{caught.value!r} {caught.value.body} {json.dumps(caught.value.__dict__, default=str)}"
    )


async def test_a_call_without_credentials_is_not_sent_and_not_retried(
    openai_server: OpenAIServer, tmp_path: Path
) -> None:
    settings = vertex_settings(openai_server, credentials=str(tmp_path / "none.json"))
    async with AsyncOpenAI(config=settings, max_retries=3) as client:
        with pytest.raises(CredentialsError, match=r"none\.json: No such file") as caught:
            await client.chat.completions.create(model="vertex/claude-opus-5", messages=[])
        (row,) = client.ledger.rows()
    assert not openai_server.requests
    assert (row.status, row.error, row.attempts) == ("error", "CredentialsError", 1)
    assert caught.value.response is None
    assert SUBJECT_TOKEN not in str(caught.value)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)
