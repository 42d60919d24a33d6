"""A chat completion, with the options of the call and the fields of the answer."""

from openai import OpenAI
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.chat.chat_completion import Choice


def answer(client: OpenAI, question: str) -> str:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": question}]},
    ]
    completion = client.chat.completions.create(
        model="gpt-4.1",
        messages=messages,
        temperature=0.2,
        max_completion_tokens=100,
        n=2,
        seed=7,
        logprobs=True,
    )
    messages.append({"role": "assistant", "content": completion.choices[0].message.content})
    report(completion.usage)
    return best(completion).message.content or ""


def best(completion: ChatCompletion) -> Choice:
    return min(completion.choices, key=lambda choice: choice.index)


def report(usage: CompletionUsage | None) -> None:
    if usage is not None and usage.prompt_tokens_details is not None:
        cached: int | None = usage.prompt_tokens_details.cached_tokens
        print(usage.total_tokens, cached)


print(answer(OpenAI(), "Why is the sky blue?"))
