"""Use the `openai` package's own client over the pipeline: routing, the ledger and local models."""

import sys

try:
    import openai
except ModuleNotFoundError:
    sys.exit("pip install openai")

import specclient

messages = [{"role": "user", "content": "class Stack:\n"}]

# A client made here, with its figures in the response's headers and in last_call().
with specclient.openai_client() as client:
    raw = client.chat.completions.with_raw_response.create(
        model="local/demo", messages=messages, max_tokens=32, temperature=0
    )
    print(raw.parse().choices[0].message.content)
    print("route", raw.headers["x-specclient-route"], "cost", raw.headers["x-specclient-cost"])

# A client that any library makes.
specclient.instrument(on_call=lambda call: print("\nacceptance rate", call.speculation.acceptance_rate))
with openai.OpenAI(api_key="unused") as client:
    for chunk in client.chat.completions.create(
        model="local/demo", messages=messages, max_tokens=32, temperature=0, stream=True
    ):
        print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="")
specclient.uninstrument()
