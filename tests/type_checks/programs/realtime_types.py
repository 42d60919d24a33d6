"""Secrets and event types of the Realtime API."""

from openai import OpenAI
from openai.types.realtime import (
    RealtimeServerEvent,
    RealtimeSessionCreateRequestParam,
    ResponseCreateEvent,
    SessionUpdateEvent,
)
from openai.types.realtime.client_secret_create_response import ClientSecretCreateResponse

SESSION: RealtimeSessionCreateRequestParam = {
    "type": "realtime",
    "model": "gpt-realtime",
    "output_modalities": ["audio"],
    "audio": {"output": {"voice": "marin"}},
}
secret: ClientSecretCreateResponse = OpenAI().realtime.client_secrets.create(session=SESSION)
print(secret.value, secret.expires_at)


def text(event: RealtimeServerEvent) -> str | None:
    if event.type == "response.output_text.delta":
        return event.delta
    if event.type == "error":
        return event.error.message
    return None


def name(event: ResponseCreateEvent | SessionUpdateEvent) -> str:
    return event.type
