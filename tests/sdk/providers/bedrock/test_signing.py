"""Requests signed for AWS: botocore's chain of credentials, refreshes, and one error for each failure."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bedrock_bodies import ENVIRONMENT, KEYS, MODEL, REGION, failure, is_signed, settings, whole
from botocore.credentials import RefreshableCredentials
from loopback_server import OpenAIServer, reply

from specclient import AsyncOpenAI, ConfigurationError, OpenAI, OpenAIError, PermissionDeniedError
from specclient.errors import CredentialsError
from specclient.providers.bedrock import signing
from specclient.providers.bedrock.signing import AWSAuthorizer, AWSCredentials
from specclient.types.wire import WireRequest

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"model": f"bedrock/{MODEL}", "messages": [{"role": "user", "content": "hi"}]}
OWN = dict(zip(("access_key", "secret_key", "session_token"), KEYS.values(), strict=True))


@pytest.fixture(autouse=True)
def _no_machine_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def _ask(server: OpenAIServer, **options: Any) -> Any:
    with OpenAI(config=settings(server), **{"max_retries": 0, **options}) as client:
        return client.chat.completions.create(**ASK)


def _request(url: str = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse") -> WireRequest:
    return WireRequest("POST", url, {"content-type": "application/json"}, b"{}")


def _keys_in(signed: WireRequest) -> tuple[str, str | None]:
    named = signed.headers["authorization"].partition("Credential=")[2].partition(",")[0]
    return named, signed.headers.get("x-amz-security-token")


@pytest.mark.usefixtures("keys")
def test_each_attempt_is_signed_for_its_own_time(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(500, {}, {"retry-after-ms": "1"}), whole("text"))
    _ask(openai_server, max_retries=1)
    assert all(is_signed(received, openai_server) for received in openai_server.requests)
    assert len(openai_server.requests) == 2
    assert not is_signed(openai_server.requests[0], openai_server, region="us-east-1")


@pytest.mark.usefixtures("keys")
def test_a_tracing_program_and_other_headers_do_not_break_the_signature(openai_server: OpenAIServer) -> None:
    openai_server.script(whole("text"))
    with OpenAI(config=settings(openai_server)) as client:
        client.chat.completions.create(
            **ASK, extra_headers={"X-Mine": "1", "x-amz-mine": " a  b ", "traceparent": "00-1"}
        )
    (received,) = openai_server.requests
    assert is_signed(received, openai_server)
    assert "x-amz-mine" in received.headers["authorization"]
    assert "traceparent" not in received.headers["authorization"]


def test_a_profile_of_the_shared_files_gives_keys_and_region(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config, stored = tmp_path / "config", tmp_path / "credentials"
    config.write_text(f"[default]\nregion = us-east-1\n[profile work]\nregion = {REGION}\n")
    stored.write_text(
        "[work]\n"
        f"aws_access_key_id = {OWN['access_key']}\naws_secret_access_key = {OWN['secret_key']}\n"
        f"aws_session_token = {OWN['session_token']}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(stored))
    monkeypatch.setenv("AWS_PROFILE", "work")
    openai_server.script(whole("text"))
    _ask(openai_server)
    assert is_signed(openai_server.requests[0], openai_server)


def test_a_process_gives_keys_that_are_asked_for_again_when_they_expire(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counter = tmp_path / "calls"
    made = {"Version": 1, "AccessKeyId": OWN["access_key"], "SecretAccessKey": OWN["secret_key"]}
    made |= {"SessionToken": OWN["session_token"]}
    made |= {
        "Expiration": (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    }  # soon, so it is refreshed
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps(made))
    program = tmp_path / "keys.py"
    program.write_text(
        f"open({str(counter)!r}, 'a').write('x')\nprint(open({str(answer)!r}).read())\n", encoding="utf-8"
    )
    config = tmp_path / "config"
    config.write_text(f"[default]\nregion = {REGION}\ncredential_process = {sys.executable} {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    openai_server.script(whole("text"), whole("text"))
    with OpenAI(config=settings(openai_server), max_retries=0) as client:
        for _ in range(2):
            client.chat.completions.create(**ASK)
    assert all(is_signed(received, openai_server) for received in openai_server.requests)
    assert len(counter.read_text()) >= 3


async def test_keys_in_memory_are_refreshed_by_one_thread_before_they_expire() -> None:
    threads: list[str] = []

    def refresh() -> dict[str, str]:
        threads.append(threading.current_thread().name)
        expiry = datetime.now(UTC) + timedelta(hours=1)
        number = len(threads)
        return {
            "access_key": f"AKID{number}", "secret_key": "s", "token": f"t{number}",
            "expiry_time": expiry.isoformat(),
        }  # fmt: skip

    old = datetime.now(UTC) + timedelta(seconds=5)
    found = RefreshableCredentials("AKID0", "s", "t0", old, refresh, "test")
    authorizer = AWSAuthorizer(REGION)
    authorizer._found = found
    for _ in range(3):
        name, token = _keys_in(await authorizer(_request()))
        assert (name[:6], token) == ("AKID1/", "t1")
    assert len(threads) == 1
    assert threads[0] != threading.current_thread().name


async def test_a_function_gives_keys_for_each_request() -> None:
    class Keys:
        def __init__(self, name: str) -> None:
            self.access_key, self.secret_key, self.token = name, "s", None

    names = iter(("AKIDA", "AKIDB"))
    authorizer = AWSAuthorizer(REGION, credentials=AWSCredentials(provider=lambda: Keys(next(names))))
    found = [_keys_in(await authorizer(_request())) for _ in range(2)]
    assert [name[:6] for name, _ in found] == ["AKIDA/", "AKIDB/"]
    assert [token for _, token in found] == [None, None]


async def test_the_region_is_that_of_the_url_before_that_of_the_settings() -> None:
    authorizer = AWSAuthorizer("us-east-1", credentials=AWSCredentials(**OWN))
    assert "/eu-west-1/bedrock/" in _keys_in(await authorizer(_request()))[0]
    assert "/us-east-1/bedrock/" in _keys_in(await authorizer(_request("http://127.0.0.1:1/x")))[0]


async def test_what_cannot_be_signed_is_refused() -> None:
    authorizer = AWSAuthorizer(None, credentials=AWSCredentials(**OWN))
    with pytest.raises(ConfigurationError, match="no AWS region: set AWS_REGION"):
        await authorizer(_request("http://127.0.0.1:1/x"))
    with pytest.raises(OpenAIError, match="signed with its whole body"):
        await authorizer(
            WireRequest("POST", "https://bedrock-runtime.eu-west-1.amazonaws.com/x", content=iter([b""]))
        )


def test_without_credentials_nothing_is_sent(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", REGION)
    with pytest.raises(CredentialsError, match=r"AWS_BEARER_TOKEN_BEDROCK.*AWS_PROFILE"):
        _ask(openai_server, max_retries=2)
    assert openai_server.requests == []


BROKEN: dict[str, tuple[dict[str, str], str]] = {
    "half a pair": ({"AWS_ACCESS_KEY_ID": "AKIDHALF"}, "PartialCredentialsError"),
    "no such profile": ({"AWS_PROFILE": "absent"}, "ProfileNotFound"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_credentials_that_botocore_refuses_are_one_clear_error(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    variables, why = BROKEN[name]
    for variable, value in {"AWS_REGION": REGION, **variables}.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(CredentialsError, match=rf"could not be read or refreshed \({why}") as caught:
        _ask(openai_server)
    assert caught.value.__cause__ is None
    assert openai_server.requests == []


def test_a_failing_process_names_no_output_of_it(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"[default]\nregion = {REGION}\ncredential_process = {sys.executable} -c print('not-json-key')\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    with pytest.raises(CredentialsError, match="could not be read or refreshed") as caught:
        _ask(openai_server)
    assert "not-json-key" not in str(caught.value)


@pytest.mark.usefixtures("keys")
async def test_expired_keys_are_the_servers_error_without_any_secret(openai_server: OpenAIServer) -> None:
    echoed = " ".join(KEYS.values())
    openai_server.script(
        failure(403, "ExpiredTokenException", f"The security token included is expired: {echoed}")
    )
    async with AsyncOpenAI(config=settings(openai_server), max_retries=0) as client:
        with pytest.raises(PermissionDeniedError, match="security token included is expired") as caught:
            await client.chat.completions.create(**ASK)
    error = caught.value
    assert error.type == "ExpiredTokenException"
    assert error.request_id == "req-1"
    received = openai_server.requests[0]
    shown = f"{error} {error.body} {error.request.headers} {error.response.text} {vars(error)}"
    for secret in (
        KEYS["AWS_ACCESS_KEY_ID"],
        KEYS["AWS_SESSION_TOKEN"],
        received.headers["authorization"][-64:],
    ):
        assert secret not in shown


@pytest.mark.usefixtures("keys")
def test_a_redirect_of_a_signed_request_is_not_followed(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(307, b"", {"location": f"{openai_server.url}/there"}))
    with pytest.raises(OpenAIError, match="307"):
        _ask(openai_server)
    assert len(openai_server.requests) == 1


def test_a_bearer_token_needs_no_botocore(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-1")
    for name in ("botocore", "botocore.auth", "botocore.session", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    openai_server.script(whole("text"))
    _ask(openai_server)
    (received,) = openai_server.requests
    assert received.headers["authorization"] == "Bearer bedrock-api-key-1"
    assert "x-amz-date" not in received.headers


@pytest.mark.usefixtures("keys")
def test_without_botocore_the_extra_is_named(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("botocore.auth", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=r"specclient\[bedrock\]"):
        _ask(openai_server)
    assert openai_server.requests == []


@pytest.fixture
def vendor_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "sys_vendor"
    monkeypatch.setattr(signing, "_VENDOR_FILE", path)
    return path


def test_what_is_missing_is_told_by_variables_and_files(vendor_file: Path, tmp_path: Path) -> None:
    home = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"), "AWS_CONFIG_FILE": str(tmp_path / "none")}
    missing = AWSAuthorizer(REGION, env=home).lacks
    assert missing is not None
    assert "AWS_BEARER_TOKEN_BEDROCK" in missing
    vendor_file.write_text("Amazon EC2\n")
    assert AWSAuthorizer(REGION, env=home).lacks is None
    assert AWSAuthorizer(REGION, env={**home, "AWS_EC2_METADATA_DISABLED": "True"}).lacks is not None
    vendor_file.unlink()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        assert AWSAuthorizer(REGION, env={**home, name: "x"}).lacks is None
    (tmp_path / "config").write_text("[default]\n")
    assert AWSAuthorizer(REGION, env={**home, "AWS_CONFIG_FILE": str(tmp_path / "config")}).lacks is None
    assert AWSAuthorizer(REGION, env=home, credentials=AWSCredentials(profile="work")).lacks is None


def test_equal_settings_are_equal_and_show_no_secret() -> None:
    first, second = (AWSAuthorizer(REGION, credentials=AWSCredentials(**OWN)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != AWSAuthorizer("us-east-1", credentials=AWSCredentials(**OWN))
    assert OWN["secret_key"] not in repr(first) + repr(AWSCredentials(**OWN))
