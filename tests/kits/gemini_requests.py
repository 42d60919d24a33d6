"""Chats as this client and the google-genai package write them; the requests of both must be equal."""

from __future__ import annotations

import base64
import re
from typing import Any

from gemini_bodies import SIGNATURE
from google.genai import types

PNG = base64.b64decode("iVBORw0KGgo=") + b"\xff\xfe\xfa"
PNG_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
SCHEMA = {"type": "object", "properties": {"title_text": {"type": "string"}}, "required": ["title_text"]}
HARMLESS = {"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}

#: Fields whose values contain the user's names, not Gemini's.
_USERS = frozenset({"args", "response", "parametersJsonSchema", "responseJsonSchema"})
#: Base64 fields. Gemini accepts both alphabets; the package writes the URL-safe one.
_BASE64 = frozenset({"data", "thoughtSignature"})


def camel_case(value: Any) -> Any:
    """Return a body with all field names in camel case: the package writes some in snake case."""
    if isinstance(value, list):
        return [camel_case(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, inner in value.items():
        wire = re.sub(r"_([a-z])", lambda letter: letter[1].upper(), name)
        if wire in _BASE64:
            found[wire] = inner.replace("-", "+").replace("_", "/")
        else:
            found[wire] = inner if wire in _USERS else camel_case(inner)
    return found


def _user(*parts: types.Part) -> types.Content:
    return types.Content(role="user", parts=list(parts))


def _model(*parts: types.Part) -> types.Content:
    return types.Content(role="model", parts=list(parts))


def _calls(*names: str) -> list[dict[str, Any]]:
    return [
        {"id": f"id-{name}", "type": "function", "function": {"name": name, "arguments": '{"deep_key": [1]}'}}
        for name in names
    ]


def _function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "Does it.", "parameters": SCHEMA}}


_DECLARED = types.FunctionDeclaration(name="f", description="Does it.", parameters_json_schema=SCHEMA)
_HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}

CASES: dict[str, tuple[dict[str, Any], Any, types.GenerateContentConfigDict]] = {
    "text": (_HI, "hi", {}),
    "system": (
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "user", "content": "c"},
            ]
        },
        [_user(types.Part(text="a")), _model(types.Part(text="b")), _user(types.Part(text="c"))],
        {"system_instruction": "Be brief."},
    ),
    "settings": (
        {
            **_HI, "temperature": 0.25, "top_p": 0.5, "n": 2, "max_completion_tokens": 64, "stop": ["a", "b"],
            "seed": 7, "presence_penalty": 0.5, "frequency_penalty": -0.5, "logprobs": True,
            "top_logprobs": 3, "modalities": ["text", "image"], "service_tier": "flex",
            "extra": {"top_k": 40, "safety_settings": [HARMLESS], "cached_content": "cachedContents/1"},
        },
        "hi",
        {
            "temperature": 0.25, "top_p": 0.5, "candidate_count": 2, "max_output_tokens": 64,
            "stop_sequences": ["a", "b"], "seed": 7, "presence_penalty": 0.5, "frequency_penalty": -0.5,
            "response_logprobs": True, "logprobs": 3, "response_modalities": ["TEXT", "IMAGE"],
            "service_tier": types.ServiceTier.FLEX, "top_k": 40, "safety_settings": [HARMLESS],  # type: ignore[typeddict-item]
            "cached_content": "cachedContents/1",
        },
    ),
    "tools": (
        {
            **_HI,
            "tools": [_function("f"), {"googleSearch": {}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
        "hi",
        {
            "tools": [
                types.Tool(function_declarations=[_DECLARED]),
                types.Tool(google_search=types.GoogleSearch()),
            ],
            "tool_config": types.ToolConfig(
                function_calling_config=types.FunctionCallingConfig(
                    mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["f"]
                )
            ),
        },
    ),
    "calls and results": (
        {
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {**_calls("f")[0], "extra_content": {"google": {"thought_signature": SIGNATURE}}},
                    *_calls("g"),
                ]},
                {"role": "tool", "tool_call_id": "id-f", "content": '{"snake_key": 1}'},
                {"role": "tool", "tool_call_id": "id-g", "content": "done"},
            ]
        },
        [
            _user(types.Part(text="go")),
            _model(
                types.Part(
                    function_call=types.FunctionCall(id="id-f", name="f", args={"deep_key": [1]}),
                    thought_signature=base64.b64decode(SIGNATURE),
                ),
                types.Part(function_call=types.FunctionCall(id="id-g", name="g", args={"deep_key": [1]})),
            ),
            _user(
                types.Part(
                    function_response=types.FunctionResponse(id="id-f", name="f", response={"snake_key": 1})
                ),
                types.Part(
                    function_response=types.FunctionResponse(id="id-g", name="g", response={"output": "done"})
                ),
            ),
        ],
        {},
    ),
    "a result with an image": (
        {
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "tool_calls": _calls("f")},
                {"role": "tool", "tool_call_id": "id-f", "content": [
                    {"type": "text", "text": '{"seen": 1}'},
                    {"type": "image_url", "image_url": {"url": PNG_URL}},
                ]},
            ]
        },
        [
            _user(types.Part(text="go")),
            _model(
                types.Part(function_call=types.FunctionCall(id="id-f", name="f", args={"deep_key": [1]}))
            ),
            _user(
                types.Part(
                    function_response=types.FunctionResponse(
                        id="id-f",
                        name="f",
                        response={"seen": 1},
                        parts=[
                            types.FunctionResponsePart(
                                inline_data=types.FunctionResponseBlob(data=PNG, mime_type="image/png")
                            )
                        ],
                    )
                )
            ),
        ],
        {},
    ),
    "images and files": (
        {
            "messages": [{"role": "user", "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": PNG_URL}},
                {"type": "image_url", "image_url": {"url": "https://example.com/cat.jpg"}},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            ]}]
        },
        [
            _user(
                types.Part(text="What is it?"),
                types.Part.from_bytes(data=PNG, mime_type="image/png"),
                types.Part.from_uri(file_uri="https://example.com/cat.jpg", mime_type="image/jpeg"),
                types.Part.from_bytes(data=b"RIFF", mime_type="audio/wav"),
            )
        ],
        {},
    ),
    "structured output": (
        {
            **_HI,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        },
        "hi",
        {"response_mime_type": "application/json", "response_json_schema": SCHEMA},
    ),
    "thinking by budget": (
        {**_HI, "reasoning_effort": "medium", "extra": {"thinkingConfig": {"includeThoughts": True}}},
        "hi",
        {"thinking_config": types.ThinkingConfig(thinking_budget=8192, include_thoughts=True)},
    ),
}  # fmt: skip
