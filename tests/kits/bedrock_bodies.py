"""Bedrock's answers and events under ``tests/data/bedrock``, frames of events, and checks of signatures."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from loopback_server import Behaviour, OpenAIServer, Received, events, reply
from paths import DATA
from pydantic import SecretStr

from specclient import Settings
from specclient.http_transport.event_frames import FrameDecoder
from specclient.providers.bedrock.dialect import BedrockDialect
from specclient.providers.endpoint import Endpoint
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request
from specclient.types.wire import FRAMES_TYPE, WireResponse

BODIES = DATA / "bedrock"
SAMPLES = ("text", "tools", "thinking", "citations", "guardrail", "router")
REGION = "eu-west-1"
MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE12345",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
    "AWS_SESSION_TOKEN": "session-token-of-the-tests",
}
#: Variables for botocore on this machine: keys, a region, and no look for the role of a cloud's machine.
ENVIRONMENT = {**KEYS, "AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}
BEARER = "bedrock-api-key-1"
ENDPOINT = Endpoint(
    name="bedrock",
    base_url=f"https://bedrock-runtime.{REGION}.amazonaws.com",
    dialect="bedrock",
    key=SecretStr(BEARER),
)
DIALECT = BedrockDialect(clock=lambda: 1_000.0, new_id=lambda: "chatcmpl-1")
_JSON = {"content-type": "application/json", "x-amzn-requestid": "req-1"}


def sample(name: str) -> dict[str, Any]:
    """Return a sample: its ``answer``, and its ``events`` as pairs of name and payload."""
    found: dict[str, Any] = json.loads((BODIES / f"{name}.json").read_bytes())
    return found


def encoded_headers(headers: Mapping[str, str]) -> bytes:
    """Encode the headers of a frame as texts."""
    parts = []
    for name, value in headers.items():
        raw = value.encode()
        parts.append(bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(raw)) + raw)
    return b"".join(parts)


def raw_frame(headers: bytes, payload: bytes) -> bytes:
    """Encode a frame with its checksums."""
    prelude = struct.pack("!II", len(headers) + len(payload) + 16, len(headers))
    start = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return start + struct.pack("!I", zlib.crc32(start))


def frame(name: str, payload: Any, kind: str = "event") -> bytes:
    """Encode an event or an exception."""
    headers = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    return raw_frame(encoded_headers(headers), json.dumps(payload).encode())


def frames(name: str) -> bytes:
    """Return the frames of a sample's events."""
    return b"".join(frame(*event) for event in sample(name)["events"])


def whole(name: str) -> Behaviour:
    return reply(200, sample(name)["answer"], _JSON)


def streamed(data: bytes, size: int = 97) -> Behaviour:
    """Send frames in pieces of some bytes."""
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return events(*pieces, headers={"content-type": FRAMES_TYPE, "x-amzn-requestid": "req-1"})


def failure(status: int, kind: str, message: str = "No.") -> Behaviour:
    """Answer with an error of AWS."""
    return reply(
        status,
        {"message": message},
        {**_JSON, "x-amzn-errortype": f"{kind}:http://x/", "retry-after-ms": "1"},
    )


def completion(answer: Any) -> Any:
    """Decode a whole answer to a chat completion."""
    return DIALECT.decode(CHAT, WireResponse(200, {}, json.dumps(answer).encode()))


def chunks(data: bytes) -> list[Any]:
    """Decode the frames of a stream to chunks."""
    read, found = DIALECT.events(CHAT), list[Any]()
    for event in FrameDecoder().feed(data):
        got = read(event.data, event.event)
        found += got if isinstance(got, list) else [] if got is None else [got]
    return found


def sent(params: dict[str, Any], *, model: str = MODEL, **options: Any) -> Any:
    """Return the request body that is sent for a chat with these parameters."""
    request = Request(CHAT, f"bedrock/{model}", params, options=PerCallOptions(**options))
    return json.loads(DIALECT.encode(request, ENDPOINT, model).content)


def settings(server: OpenAIServer, **more: Any) -> Settings:
    """Return settings in which the preset provider ``bedrock`` is a server on loopback."""
    return Settings.model_validate({"providers": {"bedrock": {"base_url": server.url}}, **more})


def is_signed(
    received: Received, server: OpenAIServer, *, service: str = "bedrock", region: str = REGION
) -> bool:
    """Return whether botocore's own signer gives the signature of a request that a server has received."""
    match = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=(\S+), SignedHeaders=(\S+), Signature=(\w+)",
        received.headers.get("authorization", ""),
    )
    if match is None:
        return False
    headers = {name: received.headers[name] for name in match[2].split(";")}
    query = f"?{received.query}" if received.query else ""
    url = f"{server.url}{received.path}{query}"
    made = AWSRequest(method=received.method, url=url, data=received.body, headers=headers)
    made.context["timestamp"] = received.headers["x-amz-date"]
    keys = Credentials(*KEYS.values())
    signer = SigV4Auth(keys, service, region)
    text = signer.string_to_sign(made, signer.canonical_request(made))
    return signer.scope(made) == match[1] and signer.signature(text, made) == match[3]
