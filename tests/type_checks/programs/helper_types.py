"""Functions that take and return the types of requests and responses."""

from typing import Any

from openai import OpenAI
from openai.types import ChatModel, CreateEmbeddingResponse, Reasoning
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionContentPartParam,
    ChatCompletionMessage,
    ChatCompletionSystemMessageParam,
    ChatCompletionToolChoiceOptionParam,
    ChatCompletionUserMessageParam,
    CompletionCreateParams,
)
from openai.types.chat.completion_create_params import ResponseFormat
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from openai.types.shared import ReasoningEffort
from openai.types.shared_params import ResponseFormatJSONSchema

MODEL: ChatModel = "gpt-4.1"
EFFORT: ReasoningEffort = "medium"
SCHEMA: ResponseFormatJSONSchema = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
}


def system(text: str) -> ChatCompletionSystemMessageParam:
    return {"role": "system", "content": text}


def user(parts: list[ChatCompletionContentPartParam]) -> ChatCompletionUserMessageParam:
    return ChatCompletionUserMessageParam(role="user", content=parts)


def assistant(message: ChatCompletionMessage) -> ChatCompletionAssistantMessageParam:
    return {"role": "assistant", "content": message.content}


def request(schema: bool) -> CompletionCreateParams:
    wanted: ResponseFormat = SCHEMA if schema else {"type": "text"}
    return {"model": MODEL, "messages": [system("Hi")], "response_format": wanted, "stream": False}


def choice(name: str | None) -> ChatCompletionToolChoiceOptionParam:
    return "auto" if name is None else {"type": "function", "function": {"name": name}}


def response(text: str) -> ResponseCreateParamsNonStreaming:
    return {"model": MODEL, "input": text}


def dumped(result: CreateEmbeddingResponse) -> dict[str, Any]:
    return result.model_dump()


picture: ChatCompletionContentPartParam = {
    "type": "image_url",
    "image_url": {"url": "https://example.com/a.png", "detail": "low"},
}
print(request(schema=True), choice(None), response("Hi"), user([picture]), Reasoning(effort=EFFORT))
made = ChatCompletionMessage(role="assistant", content="Hi")
print(assistant(made), OpenAI().chat.completions.create(model=MODEL, messages=[assistant(made)]).to_json())
