"""Call any OpenAI-compatible server: python openai_compatible.py [BASE_URL], a vLLM server by default."""

import sys

from specclient import APIConnectionError, OpenAI

base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"

# With an explicit base URL, model names are sent to the server unchanged.
with OpenAI(base_url=base_url, api_key="none", max_retries=1) as client:
    try:
        model = next(iter(client.models.list())).id
    except APIConnectionError as error:
        sys.exit(f"{error}")
    messages = [{"role": "user", "content": "Say hello."}]
    stream = client.chat.completions.create(model=model, messages=messages, stream=True)
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)

print("\nusage", stream.meta.usage)
print("cost", stream.meta.cost.total, "from", stream.meta.cost.source)
print("speculation", stream.meta.speculation)  # None if the server does not report it
