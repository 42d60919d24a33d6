"""The four checks by a client itself, for libraries that record spans of its calls."""

from collections.abc import Callable
from typing import Any

from checks import FORM, PROMPT, TOOL, Case, City, run

_MESSAGES: Any = [{"role": "user", "content": PROMPT}]


def run_traced(client: Callable[[Case], Any], spans: Callable[[], int]) -> None:
    """Run the checks, each of which needs one more span.

    Args:
        client: returns the traced client.
        spans: returns how many spans have been recorded until now.
    """

    def ask(case: Case, read: Callable[[Any], Any], **options: Any) -> Any:
        before = spans()
        sent = {"model": case.model, "messages": _MESSAGES, "temperature": 0, "max_tokens": 64, **options}
        got = read(client(case).chat.completions.create(**sent))
        if spans() <= before:
            raise AssertionError("no span was recorded")
        return got

    def pieces(stream: Any) -> list[Any]:
        return [chunk.choices[0].delta.content for chunk in stream if chunk.choices]

    def whole(case: Case) -> Any:
        return ask(case, lambda made: made.choices[0].message.content)

    def streamed(case: Case) -> Any:
        return ask(case, pieces, stream=True)

    def tool(case: Case) -> Any:
        options = {"model": case.tool_model, "tools": [TOOL], "tool_choice": "required"}
        function = ask(case, lambda made: made.choices[0].message.tool_calls[0].function, **options)
        return function.name, function.arguments

    def structured(case: Case) -> Any:
        text = ask(case, lambda made: made.choices[0].message.content, response_format=FORM)
        return City.model_validate_json(text).city

    run(whole=whole, streamed=streamed, tool=tool, structured=structured)
