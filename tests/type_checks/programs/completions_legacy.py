"""Legacy completions, models, and calls by path."""

from openai import OpenAI
from openai.types import Completion, Model, ModelDeleted

client = OpenAI()
completion: Completion = client.completions.create(
    model="gpt-3.5-turbo-instruct", prompt="One, two,", max_tokens=5, stop=["."], echo=True, logprobs=2
)
print(completion.choices[0].text, completion.choices[0].logprobs)
for part in client.completions.create(model="gpt-3.5-turbo-instruct", prompt="One", stream=True):
    print(part.choices[0].text)
model: Model = client.models.retrieve("gpt-4.1")
deleted: ModelDeleted = client.models.delete("ft:gpt-4.1")
answer = client.post("/rerank", body={"query": "a"}, cast_to=object)
print(model.id, deleted.deleted, answer, client.get("/models/gpt-4.1", cast_to=Model).id)
