"""Google's token services on loopback, with keys made here, and the settings of Vertex AI on loopback.

The services check what they receive: the RS256 signature and the claims of a service account's assertion
(RFC 7523), the subject token of a workload identity (RFC 8693), and the token of an impersonating account.
"""

from __future__ import annotations

import base64
import functools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from loopback_server import OpenAIServer, Received, Wire, reply

from specclient import Settings

PROJECT = "file-project-1"
EMAIL = "tester@file-project-1.iam.gserviceaccount.com"
TARGET = "target@file-project-1.iam.gserviceaccount.com"
SUBJECT_TOKEN = "subject-token-of-the-workload"
#: The audience of every assertion, wherever the service is.
AUDIENCE = "https://oauth2.googleapis.com/token"
#: Of Vertex AI, and of an account that acts as another one.
SCOPES = ("https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/iam")


@functools.cache
def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class TokenServer(OpenAIServer):
    """Serves ``/token``, ``/sts`` and ``generateAccessToken``.

    Attributes:
        lifetime_s: of the tokens that it gives.
        tokens: those that it gave.
    """

    def __init__(self) -> None:
        super().__init__(self._serve_token)
        self.lifetime_s = 3600
        self.tokens: list[str] = []

    async def _serve_token(self, received: Received, wire: Wire) -> None:
        try:
            answer = self._answer(received)
        except (InvalidSignature, AssertionError, KeyError, ValueError) as error:
            fault = {"error": "invalid_grant", "error_description": f"Invalid grant: {error!r}"}
            await reply(400, fault)(received, wire)
        else:
            await reply(200, answer)(received, wire)

    def _answer(self, received: Received) -> dict[str, Any]:
        if received.path.endswith(":generateAccessToken"):
            assert received.headers["authorization"].removeprefix("Bearer ") in self.tokens
            assert f"/serviceAccounts/{TARGET}:" in received.path
            ends = datetime.fromtimestamp(time.time() + self.lifetime_s, UTC)
            return {"accessToken": self._token(), "expireTime": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
        form = {name: values[0] for name, values in parse_qs(received.body.decode()).items()}
        if received.path == "/sts":
            assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
            assert form["subject_token"] == SUBJECT_TOKEN
        else:
            assert received.path == "/token"
            assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
            self._check_assertion(form["assertion"])
        issued = "urn:ietf:params:oauth:token-type:access_token"
        return {
            "access_token": self._token(),
            "expires_in": self.lifetime_s,
            "token_type": "Bearer",
            "issued_token_type": issued,
        }

    def _token(self) -> str:
        self.tokens.append(f"ya29.loopback-{len(self.tokens) + 1}")
        return self.tokens[-1]

    def _check_assertion(self, assertion: str) -> None:
        signed, _, signature = assertion.rpartition(".")
        head, claims = (json.loads(_decoded(part)) for part in signed.split("."))
        assert head["alg"] == "RS256"
        _key().public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        assert (claims["iss"], claims["aud"]) == (EMAIL, AUDIENCE)
        assert claims["scope"] in SCOPES
        assert claims["iat"] - 60 <= time.time() < claims["exp"]

    def service_account(self) -> dict[str, Any]:
        """Return the content of the file of a service account whose tokens come from here."""
        return {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "key-1",
            "private_key": _pem(_key()),
            "client_email": EMAIL,
            "client_id": "1",
            "token_uri": f"{self.url}/token",
        }

    def impersonation(self) -> dict[str, Any]:
        """Return the content of a file that lets the service account act as another one."""
        return {
            "type": "impersonated_service_account",
            "service_account_impersonation_url": (
                f"{self.url}/v1/projects/-/serviceAccounts/{TARGET}:generateAccessToken"
            ),
            "source_credentials": self.service_account(),
        }

    def workload_identity(self, token_file: Path) -> dict[str, Any]:
        """Return the content of the file of a workload identity, whose subject token is in another file."""
        token_file.write_text(SUBJECT_TOKEN)
        return {
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/a",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{self.url}/sts",
            "credential_source": {"file": str(token_file)},
        }


@contextmanager
def running_token_server() -> Iterator[TokenServer]:
    """Run the token services."""
    with TokenServer() as server:
        yield server


def foreign_key() -> str:
    """Return a private key that the token services do not know, as PEM."""
    return _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))


def written(path: Path, content: dict[str, Any]) -> str:
    """Write a file of credentials; return its path."""
    path.write_text(json.dumps(content))
    return str(path)


def vertex_settings(server: OpenAIServer, *, prices: Any = None, **table: Any) -> Settings:
    """Return settings in which Vertex AI is a server on loopback; by default with an access token."""
    usual: dict[str, Any] = {"project": "p-1", "location": "europe-west4"}
    if not table.keys() & {"api_key", "credentials"}:
        usual |= {"api_key": "ya29.plain", "key_header": "authorization"}
    provider = {"base_url": server.url, **usual, **table}
    return Settings.model_validate({"providers": {"vertex": provider}, "prices": prices or {}})


def _pem(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
