"""Embeddings of texts, and moderations."""

from openai import OpenAI
from openai.types import CreateEmbeddingResponse, Moderation

client = OpenAI()


def vectors(texts: list[str]) -> list[list[float]]:
    response: CreateEmbeddingResponse = client.embeddings.create(
        model="text-embedding-3-small", input=texts, dimensions=256, encoding_format="float"
    )
    print(response.usage.prompt_tokens, response.model)
    return [item.embedding for item in sorted(response.data, key=lambda item: item.index)]


def flagged(text: str) -> bool:
    result: Moderation = client.moderations.create(model="omni-moderation-latest", input=text).results[0]
    scores: float = result.category_scores.violence
    return result.flagged or result.categories.hate or scores > 0.5


print(len(vectors(["a", "b"])), flagged("c"))
