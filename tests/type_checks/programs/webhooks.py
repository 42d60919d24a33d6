"""Webhooks: the signature is verified and the event is read."""

from collections.abc import Mapping

from openai import InvalidWebhookSignatureError, OpenAI
from openai.types.webhooks import BatchCompletedWebhookEvent, UnwrapWebhookEvent

client = OpenAI(webhook_secret="whsec_c2VjcmV0")


def handle(body: bytes, headers: Mapping[str, str]) -> int:
    try:
        event: UnwrapWebhookEvent = client.webhooks.unwrap(body, headers)
    except InvalidWebhookSignatureError:
        return 400
    if event.type == "response.completed":
        print(client.responses.retrieve(event.data.id).output_text)
    elif isinstance(event, BatchCompletedWebhookEvent):
        print(event.data.id, event.created_at)
    return 200


client.webhooks.verify_signature("{}", {"webhook-id": "1"}, secret="whsec_c2VjcmV0", tolerance=60)
