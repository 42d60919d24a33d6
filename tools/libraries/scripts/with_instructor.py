"""instructor: ``from_openai`` in its modes for tools and for JSON schemas."""

from typing import Any

import instructor
from checks import PROMPT, TOOL, Case, City, run

_MESSAGES: Any = [{"role": "user", "content": PROMPT}]


def _client(case: Case, mode: instructor.Mode) -> Any:
    return instructor.from_openai(case.client(), mode=mode)


def _options(name: str) -> dict[str, Any]:
    return {"model": name, "messages": _MESSAGES, "temperature": 0, "max_tokens": 256, "max_retries": 0}


def whole(case: Case) -> Any:
    client = _client(case, instructor.Mode.JSON_SCHEMA)
    return client.create(response_model=None, **_options(case.model)).choices[0].message.content


def streamed(case: Case) -> Any:
    client = _client(case, instructor.Mode.JSON_SCHEMA)
    chunks = client.create(response_model=None, stream=True, **_options(case.model))
    return [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]


def tool(case: Case) -> Any:
    client = _client(case, instructor.Mode.TOOLS)
    found, answer = client.create_with_completion(
        response_model=City, parallel_tool_calls=False, **_options(case.tool_model)
    )
    assert answer.choices[0].message.tool_calls[0].function.name == "City"
    return TOOL["function"]["name"], {"city": found.city}


def structured(case: Case) -> Any:
    client = _client(case, instructor.Mode.JSON_SCHEMA)
    parts = list(client.create_partial(response_model=City, **_options(case.model)))
    found = client.create(response_model=City, **_options(case.model))
    assert parts[-1].city == found.city
    return found.city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
