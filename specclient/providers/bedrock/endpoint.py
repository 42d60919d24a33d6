"""The endpoint of Amazon Bedrock: its address by the region, and the signature of its requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specclient.providers.bedrock.regions import is_region, region_in, region_of_url, runtime_url
from specclient.providers.bedrock.signing import AWSAuthorizer
from specclient.providers.endpoint import Endpoint

#: The address of the Converse API in place of AWS's own, as botocore reads it.
_ADDRESS = "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"


def placed_endpoint(endpoint: Endpoint, env: Mapping[str, str]) -> Endpoint:
    """Return the endpoint with its address and authorisation, from its settings and the environment.

    A key is a Bedrock API key, sent as a bearer token. Without one, requests are signed with the credentials
    that botocore finds.
    """
    region = region_of_url(endpoint.base_url) or region_in(env)
    base_url = endpoint.base_url
    if "{" in base_url and env.get(_ADDRESS):
        base_url = env[_ADDRESS].strip()
    elif "{" in base_url and region is not None and is_region(region):
        base_url = runtime_url(region)
    has_key = endpoint.key is not None or endpoint.key_source is not None
    authorizer = None if has_key else AWSAuthorizer(region, env=env)
    return replace(endpoint, base_url=base_url, authorizer=authorizer)
