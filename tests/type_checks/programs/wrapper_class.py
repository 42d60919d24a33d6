"""A class around a client, subclasses of clients, and injected clients."""

from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from openai.resources.chat import AsyncCompletions, Completions
from openai.resources.embeddings import Embeddings
from openai.types.chat import ChatCompletionMessageParam


class Chat:
    def __init__(self, client: OpenAI, model: str) -> None:
        self.client = client
        self.model = model

    def ask(self, messages: list[ChatCompletionMessageParam], **options: Any) -> str:
        completions: Completions = self.client.chat.completions
        answer: str | None = (
            completions.create(model=self.model, messages=messages, **options).choices[0].message.content
        )
        return answer or ""


class Logged(OpenAI):
    def close(self) -> None:
        print("closing")
        super().close()


def embed(embeddings: Embeddings, text: str) -> list[float]:
    return embeddings.create(model="text-embedding-3-small", input=text).data[0].embedding


def of(client: AsyncOpenAI) -> AsyncCompletions:
    return client.chat.completions


chat = Chat(Logged(api_key="key"), "gpt-4.1")
print(chat.ask([{"role": "user", "content": "Hi"}], temperature=0), embed(chat.client.embeddings, "a"))
print(isinstance(chat.client, openai.OpenAI))
