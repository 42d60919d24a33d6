"""Clients with options, and calls with options of their own."""

import httpx2
from openai import DEFAULT_MAX_RETRIES, NOT_GIVEN, DefaultHttpxClient, NotGiven, OpenAI, Timeout, omit


def timeout_of(seconds: float | None) -> float | NotGiven:
    return NOT_GIVEN if seconds is None else seconds


client = OpenAI(
    api_key="key",
    base_url="http://localhost:8000/v1",
    organization="org",
    project="proj",
    timeout=Timeout(10.0, connect=2.0),
    max_retries=DEFAULT_MAX_RETRIES,
    default_headers={"X-Title": "program"},
    default_query={"version": 2},
    http_client=DefaultHttpxClient(),
)
patient = client.with_options(timeout=120, max_retries=5)
copied: OpenAI = patient.copy(api_key="other", default_headers={"X-Title": "copy"})
completion = copied.chat.completions.create(
    model="gpt-4.1",
    messages=[{"role": "user", "content": "Hi"}],
    temperature=omit,
    extra_headers={"X-Trace": "1"},
    extra_query={"trace": True},
    extra_body={"top_k": 5},
    timeout=httpx2.Timeout(5.0),
)
models = client.models.list(timeout=timeout_of(None))
print(completion.id, models.data[0].owned_by, client.base_url, client.api_key, client.max_retries)
with OpenAI(api_key=lambda: "key") as closing:
    print(closing.is_closed())
