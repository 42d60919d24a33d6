"""The endpoint of Amazon Bedrock: its address by the region, and the signature of its requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from specclient.providers.bedrock.regions import is_region, region_in, region_of_url, runtime_url
from specclient.providers.bedrock.signing import AWSAuthorizer, AWSCredentials, CredentialsProvider
from specclient.providers.endpoint import Endpoint

#: The address of the Converse API in place of AWS's own, as botocore reads it.
_ADDRESS = "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"


def placed_endpoint(endpoint: Endpoint, env: Mapping[str, str]) -> Endpoint:
    """Return the endpoint with its address and authorisation, from its settings and the environment.

    A key is a Bedrock API key, sent as a bearer token. Without one, requests are signed with the credentials
    of the settings (the name of a profile, credentials of botocore, or a function that returns them), or else
    with those that botocore finds.
    """
    cloud = endpoint.cloud
    profile = cloud.credentials if isinstance(cloud.credentials, str) else None
    region = region_of_url(endpoint.base_url) or cloud.location or region_in(env, profile)
    base_url = endpoint.base_url
    if "{" in base_url and env.get(_ADDRESS):
        base_url = env[_ADDRESS].strip()
    elif "{" in base_url and region is not None and is_region(region):
        base_url = runtime_url(region)
    has_key = endpoint.key is not None or endpoint.key_source is not None
    credentials = AWSCredentials(profile=profile, provider=_provider_of(cloud.credentials))
    authorizer = None if has_key else AWSAuthorizer(region, credentials=credentials, env=env)
    return replace(endpoint, base_url=base_url, authorizer=authorizer)


def _provider_of(credentials: Any) -> CredentialsProvider | None:
    """Return a function that returns the credentials; None for the name of a profile, or none."""
    if credentials is None or isinstance(credentials, str):
        return None
    return credentials if callable(credentials) else partial(_same, credentials)


def _same(credentials: Any) -> Any:
    return credentials
