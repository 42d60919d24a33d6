"""Replace the OpenAI client by changing one import; the bundled model needs no key and no network."""

from specclient import OpenAI

client = OpenAI()
messages = [{"role": "user", "content": "def fibonacci(n):\n"}]

answer = client.chat.completions.create(model="local/demo", messages=messages, max_tokens=64, temperature=0)
print(answer.choices[0].message.content)

# OpenAI's objects have one additional attribute, `meta`: the record of the call.
speculation = answer.meta.speculation
print("\nserved by", answer.meta.route.chosen)
print(
    "acceptance rate", speculation.acceptance_rate, "| mean accepted length", speculation.mean_accepted_length
)
print("cost in dollars", answer.meta.cost.total, "| estimated:", answer.meta.cost.estimated)

client.close()
