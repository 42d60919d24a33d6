"""Subject tokens, with which a workload proves its identity, from Kubernetes, Azure or Google Cloud.

A :class:`SubjectTokenProvider` reads one. :mod:`specclient.client.workload_identity` exchanges it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from specclient.errors import SubjectTokenProviderError
from specclient.http_transport.token_requests import get_token_from

#: https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
AZURE_URL: Final = "http://169.254.169.254/metadata/identity/oauth2/token"
#: https://cloud.google.com/compute/docs/instances/verifying-instance-identity
GOOGLE_URL: Final = (
    "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/identity"
)
_KUBERNETES_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_MOST_CHARACTERS: Final = 1 << 20  # of a token; a file may be something else by mistake


class SubjectTokenProvider(TypedDict):
    """Reads a subject token.

    Attributes:
        token_type: ``jwt``, or ``id`` for an OpenID Connect ID token.
        get_token: returns the token. It is called in a thread before each exchange, so it may block.
    """

    token_type: Literal["jwt", "id"]
    get_token: Callable[[], str]


def k8s_service_account_token_provider(
    token_file_path: str | Path = _KUBERNETES_FILE,
) -> SubjectTokenProvider:
    """Return a provider that reads the token which Kubernetes mounts as a file, afresh for each exchange.

    Args:
        token_file_path: the file.

    The provider raises SubjectTokenProviderError if the file cannot be read, is empty, or is over 1 MiB.
    """

    def get_token() -> str:
        try:
            with Path(token_file_path).open(encoding="utf-8") as file:
                text = file.read(_MOST_CHARACTERS + 1)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise SubjectTokenProviderError(
                f"Failed to read the token file at {token_file_path}: {reason}"
            ) from None
        if len(text) > _MOST_CHARACTERS:
            raise SubjectTokenProviderError(f"The token file at {token_file_path} is over 1 MiB.")
        if not text.strip():
            raise SubjectTokenProviderError(f"The token file at {token_file_path} is empty.")
        return text.strip()

    return {"token_type": "jwt", "get_token": get_token}


def azure_managed_identity_token_provider(
    resource: str = "https://management.azure.com/",
    *,
    object_id: str | None = None,
    client_id: str | None = None,
    msi_res_id: str | None = None,
    api_version: str = "2018-02-01",
    timeout: float = 10.0,
    http_client: Any = None,
) -> SubjectTokenProvider:
    """Return a provider of the tokens of a managed identity, from the metadata service of a machine in Azure.

    Args:
        resource: the URI that the token is for.
        object_id, client_id, msi_res_id: the identity, if the machine has several.
        api_version: the version of the metadata service.
        timeout: seconds for the request.
        http_client: an ``httpx`` or ``httpx2`` client; None for a new one in each exchange.

    The provider raises SubjectTokenProviderError if the service gives no token.
    """
    chosen = {"object_id": object_id, "client_id": client_id, "msi_res_id": msi_res_id}
    query = {"api-version": api_version, "resource": resource}
    query |= {name: value for name, value in chosen.items() if value is not None}

    def get_token() -> str:
        what = "Azure subject token from IMDS"
        response = get_token_from(
            AZURE_URL, what, http_client, params=query, headers={"Metadata": "true"}, timeout=timeout
        )
        try:
            token = response.json().get("access_token")
        except (ValueError, AttributeError):
            token = None
        if not isinstance(token, str) or not token:
            raise SubjectTokenProviderError(
                "Azure IMDS response did not include an access_token", response=response
            )
        return token

    return {"token_type": "jwt", "get_token": get_token}


def gcp_id_token_provider(
    audience: str = "https://api.openai.com/v1", *, timeout: float = 10.0, http_client: Any = None
) -> SubjectTokenProvider:
    """Return a provider of ID tokens from the metadata server of a machine in Google Cloud.

    Args:
        audience: the URI that the token is for.
        timeout: seconds for the request.
        http_client: an ``httpx`` or ``httpx2`` client; None for a new one in each exchange.

    The provider raises SubjectTokenProviderError if the server gives no token.
    """

    def get_token() -> str:
        what = "GCP subject token from metadata server"
        headers, params = {"Metadata-Flavor": "Google"}, {"audience": audience}
        response = get_token_from(
            GOOGLE_URL, what, http_client, params=params, headers=headers, timeout=timeout
        )
        token: str = response.text.strip()
        if not token:
            raise SubjectTokenProviderError("GCP metadata server returned an empty token", response=response)
        return token

    return {"token_type": "id", "get_token": get_token}
