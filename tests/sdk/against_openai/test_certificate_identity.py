"""Identities of a client certificate: exchanges and calls over mutual TLS, as by the OpenAI client."""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from both_clients import Both, Side, sent
from loopback_server import Behaviour, OpenAIServer, Received, Wire, behave, reply
from paths import DATA

import specclient

#: A self-signed certificate for localhost with its key, which server and clients show and trust.
PEM = DATA / "tls/localhost.pem"
ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}
REFUSED = reply(401, {"error": {"message": "expired", "code": "invalid_api_key"}})
SOON = {"retry-after-ms": "1"}


def token(number: int = 1, life: Any = 3600, **fields: Any) -> Behaviour:
    return reply(
        200, {"access_token": f"access-{number}", "expires_in": life, "token_type": "Bearer", **fields}
    )


class CertificateServer(OpenAIServer):
    """OpenAI's API and token service under their own names, for clients that show the certificate.

    Attributes:
        exchanges, calls: the answers to the next exchanges, and to the next calls.
        clients: close the users' clients of a scenario.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(PEM))
        self.tls.verify_mode = ssl.CERT_REQUIRED
        self.tls.load_cert_chain(PEM)
        self.exchanges: deque[Behaviour] = deque()
        self.calls: deque[Behaviour] = deque()
        self.clients: list[Callable[[], object]] = []

    async def _answer(self, received: Received, wire: Wire) -> None:
        is_exchange = received.path == "/oauth/token"
        scripted = self.exchanges if is_exchange else self.calls
        await (scripted.popleft() if scripted else token() if is_exchange else behave)(received, wire)

    def seen(self) -> list[Any]:
        """Return the requests since the last call, with the hosts they were for."""
        found = [(each.headers["host"], sent(each)) for each in self.requests]
        self.requests.clear()
        return found


@pytest.fixture(scope="module")
def _server() -> Iterator[CertificateServer]:
    with CertificateServer() as running:
        yield running


@pytest.fixture
def server(_server: CertificateServer, monkeypatch: pytest.MonkeyPatch) -> CertificateServer:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    _server.seen()
    return _server


def http_client(side: Side, server: CertificateServer) -> Any:
    """Return a user's client with the certificate, whose connections go to the server of the tests."""
    context = ssl.create_default_context(cafile=str(PEM))
    context.load_cert_chain(PEM)

    def rewritten(request: Any) -> Any:
        return httpx2.Request(
            request.method,
            request.url.copy_with(host="localhost", port=server.port),
            headers=request.headers.raw,
            stream=request.stream,
            extensions=request.extensions,
        )

    if side.is_async:

        class AsyncToServer(httpx2.AsyncHTTPTransport):
            async def handle_async_request(self, request: Any) -> Any:
                return await super().handle_async_request(rewritten(request))

        made: Any = httpx2.AsyncClient(transport=AsyncToServer(verify=context))
        server.clients.append(lambda: side.get(made.aclose()))
        return made

    class ToServer(httpx2.HTTPTransport):
        def handle_request(self, request: Any) -> Any:
            return super().handle_request(rewritten(request))

    made = httpx2.Client(transport=ToServer(verify=context))
    server.clients.append(made.close)
    return made


def identity(side: Side, **changes: Any) -> Any:
    made = side.lib.auth.x509_workload_identity(identity_provider_id="idp-1", service_account_id="sa-1")
    return {**made, **changes}


def make(side: Side, server: CertificateServer, **options: Any) -> Any:
    given = {"workload_identity": identity(side), "max_retries": 0, **options}
    if "http_client" not in given:
        given["http_client"] = http_client(side, server)
    return side.make("OpenAI", **given)


def ask(side: Side, client: Any) -> Any:
    return side.get(client.chat.completions.create(**ASK))


def compared(
    both: Both,
    server: CertificateServer,
    scenario: Callable[[Side], Any],
    *,
    exchanges: tuple[Behaviour, ...] = (),
    calls: tuple[Behaviour, ...] = (),
) -> tuple[Any, list[Any]]:
    """Run a scenario with both libraries; return the outcome and the requests, which are the same."""
    seen = []

    def counted(side: Side) -> Any:
        server.exchanges = deque(exchanges)
        server.calls = deque(calls)
        try:
            return scenario(side)
        finally:
            seen.append(server.seen())
            while server.clients:
                server.clients.pop()()

    outcome = both.same(counted)
    assert seen[1] == seen[0]
    return outcome, seen[1]


def test_a_token_is_exchanged_once_over_mutual_tls_and_sent_with_each_request(
    both: Both, server: CertificateServer
) -> None:
    def scenario(side: Side) -> Any:
        client = make(side, server)
        ask(side, client)
        side.get(client.models.list())
        return [client.api_key, str(client.base_url), dict(client.workload_identity)]

    _, seen = compared(both, server, scenario)
    assert [host for host, _ in seen] == ["mtls.auth.openai.com", *["mtls.api.openai.com"] * 2]
    assert seen[0][1]["body"]["subject_token_type"] == "urn:openai:params:oauth:token-type:x509"
    assert [each["headers"].get("authorization") for _, each in seen] == [None, *["Bearer access-1"] * 2]


@pytest.mark.parametrize("region", ["global", "us", "eu"])
def test_each_region_has_an_address_of_its_own(both: Both, server: CertificateServer, region: str) -> None:
    def scenario(side: Side) -> Any:
        client = make(side, server, data_residency=region)
        ask(side, client)
        return str(client.base_url)

    compared(both, server, scenario)


@pytest.mark.parametrize("second", [200, 401])
def test_a_refused_token_is_replaced_once(both: Both, server: CertificateServer, second: int) -> None:
    calls = (REFUSED,) if second == 200 else (REFUSED, REFUSED)
    outcome, seen = compared(
        both, server, lambda side: ask(side, make(side, server)), exchanges=(token(1), token(2)), calls=calls
    )
    assert len(seen) == 4
    assert (outcome.error is None) == (second == 200)


EXCHANGES: dict[str, Behaviour] = {
    "refused": reply(400, {"error": "invalid_grant", "error_description": "The subject is unknown."}),
    "refused without a body": reply(401),
    "forbidden": reply(403, {"error": {"message": "x"}}),
    "failed": reply(500, {"error": "x"}),
    "redirected": reply(307, b"", {"location": "/elsewhere"}),
    "no body": reply(200),
    "no object": reply(200, [1]),
    "no token": reply(200, {"expires_in": 3}),
    "a token with blanks": token(access_token="a b"),
    "another type": token(token_type="mac"),
    "a type that is no text": token(token_type=None),
    "a life that is no number": token(life="3600"),
    "no life": token(life=0),
    "a life without end": token(life=float("inf")),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_failed_exchange_raises_the_same_error_and_sends_nothing(
    both: Both, server: CertificateServer, name: str
) -> None:
    outcome, seen = compared(
        both, server, lambda side: ask(side, make(side, server)), exchanges=(EXCHANGES[name],)
    )
    assert outcome.error is not None
    assert len(seen) == 1


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_an_exchange_is_retried_twice_at_most(both: Both, server: CertificateServer, retries: int) -> None:
    failed = reply(503, {"error": "x"}, SOON)
    outcome, seen = compared(
        both,
        server,
        lambda side: ask(side, make(side, server, max_retries=retries)),
        exchanges=(failed, failed, failed, failed),
    )
    assert outcome.error is not None
    # A failed exchange ends the call, or is that of one of its attempts.
    assert 1 + min(retries, 2) <= len(seen)


def test_a_valid_token_outlives_a_failed_exchange(both: Both, server: CertificateServer) -> None:
    def scenario(side: Side) -> Any:
        client = make(side, server, workload_identity=identity(side, refresh_buffer_seconds=3600))
        ask(side, client)
        time.sleep(1.1)  # half of its life, when it is renewed
        return ask(side, client)

    outcome, seen = compared(both, server, scenario, exchanges=(token(1, 2), reply(503, {"error": "x"})))
    assert outcome.error is None
    assert len(seen) == 4


IDENTITIES: dict[str, dict[str, Any]] = {
    "a provider": {"provider": {"token_type": "jwt", "get_token": lambda: "x"}},
    "a client ID": {"client_id": "x"},
    "an unknown field": {"certificate": "x"},
    "no provider ID": {"identity_provider_id": ""},
    "an account that is no text": {"service_account_id": 3},
    "a negative buffer": {"refresh_buffer_seconds": -1},
    "an endless buffer": {"refresh_buffer_seconds": float("inf")},
    "a buffer that is no number": {"refresh_buffer_seconds": True},
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_invalid_identities_are_refused(both: Both, server: CertificateServer, name: str) -> None:
    theirs, ours = both.run(
        lambda side: make(
            side, server, http_client=None, workload_identity=identity(side, **IDENTITIES[name])
        )
    )
    assert theirs.error is not None
    assert ours.error is not None
    assert theirs.error["classes"] <= ours.error["classes"]


OPTIONS: dict[str, dict[str, Any]] = {
    "plain HTTP": {"base_url": "http://localhost/v1"},
    "a password in the URL": {"base_url": "https://user:password@localhost/v1"},
    "a region without an address": {"data_residency": "jp"},
    "a key, too": {"api_key": "sk-other"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_a_certificate_does_not_allow_are_refused(
    both: Both, server: CertificateServer, name: str
) -> None:
    def scenario(side: Side) -> Any:
        return ask(side, make(side, server, http_client=None, **OPTIONS[name]))

    theirs, ours = both.run(scenario)
    assert theirs.error is not None
    assert ours.error is not None
    assert theirs.error["classes"] <= ours.error["classes"]
    assert server.seen() == []


def test_another_key_in_a_header_is_refused(both: Both, server: CertificateServer) -> None:
    def scenario(side: Side) -> Any:
        client = make(side, server)
        return side.get(client.chat.completions.create(**ASK, extra_headers={"X-API-Key": "sk-other"}))

    outcome, seen = compared(both, server, scenario)
    assert outcome.error is not None
    assert seen == []


def test_websockets_are_refused(server: CertificateServer) -> None:
    side = Side(specclient, False, "", {}, [])
    client = make(side, server)
    with pytest.raises(specclient.OpenAIError, match="not supported by WebSocket"):
        client.realtime.connect(model="m").enter()
    side.close()
    server.clients.pop()()
    assert server.seen() == []


def test_copies_with_the_same_certificate_share_the_token(server: CertificateServer) -> None:
    side = Side(specclient, False, "", {}, [])
    client = make(side, server)
    for copied in (client, client.with_options(timeout=5)):
        ask(side, copied)
    assert len(server.seen()) == 3
    ask(side, client.with_options(http_client=http_client(side, server)))
    assert len(server.seen()) == 2
    side.close()
    while server.clients:
        server.clients.pop()()
