"""Conversations, containers, evals and videos."""

from openai import OpenAI
from openai.types import ContainerCreateResponse, EvalCreateResponse
from openai.types.conversations import Conversation

client = OpenAI()
conversation: Conversation = client.conversations.create(
    items=[{"type": "message", "role": "user", "content": "Hi"}], metadata={"topic": "demo"}
)
for item in client.conversations.items.list(conversation.id, limit=10):
    if item.type == "message":
        print(item.role, [part.type for part in item.content])
container: ContainerCreateResponse = client.containers.create(name="work")
print(client.containers.files.create(container.id, file=b"data").path)
evaluation: EvalCreateResponse = client.evals.create(
    name="exact",
    data_source_config={"type": "custom", "item_schema": {"type": "object"}},
    testing_criteria=[
        {"type": "string_check", "name": "same", "input": "{{a}}", "operation": "eq", "reference": "{{b}}"}
    ],
)
for run in client.evals.runs.list(evaluation.id):
    print(run.status, run.result_counts.passed)
