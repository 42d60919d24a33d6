"""Assistants, threads, messages, and a run with an event handler."""

from openai import AssistantEventHandler, OpenAI
from openai.types.beta import Assistant, Thread
from openai.types.beta.threads import Run, Text, TextDelta
from openai.types.beta.threads.runs import RunStep
from typing_extensions import override


class Printer(AssistantEventHandler):
    @override
    def on_text_delta(self, delta: TextDelta, snapshot: Text) -> None:
        print(delta.value, len(snapshot.value))

    @override
    def on_end(self) -> None:
        print("end")


client = OpenAI()
assistant: Assistant = client.beta.assistants.create(
    model="gpt-4.1", name="Helper", tools=[{"type": "code_interpreter"}, {"type": "file_search"}]
)
thread: Thread = client.beta.threads.create(messages=[{"role": "user", "content": "Hi"}])
client.beta.threads.messages.create(thread.id, role="user", content="Again")
run: Run = client.beta.threads.runs.create_and_poll(thread_id=thread.id, assistant_id=assistant.id)
if run.status == "requires_action" and run.required_action:
    calls = run.required_action.submit_tool_outputs.tool_calls
    run = client.beta.threads.runs.submit_tool_outputs_and_poll(
        run_id=run.id,
        thread_id=thread.id,
        tool_outputs=[{"tool_call_id": call.id, "output": call.function.arguments} for call in calls],
    )
steps: list[RunStep] = list(client.beta.threads.runs.steps.list(run.id, thread_id=thread.id))
for message in client.beta.threads.messages.list(thread.id, order="asc"):
    for part in message.content:
        if part.type == "text":
            print(part.text.value, part.text.annotations)
with client.beta.threads.runs.stream(
    thread_id=thread.id, assistant_id=assistant.id, event_handler=Printer()
) as stream:
    stream.until_done()
print(steps, client.beta.threads.delete(thread.id).deleted)
