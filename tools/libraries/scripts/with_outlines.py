"""outlines: ``from_openai``; the library has no tools of its own, so its client calls them."""

from typing import Any

import outlines
from checks import PROMPT, TOOL, Case, City, run


def _model(case: Case, name: str) -> Any:
    return outlines.from_openai(case.client(), name)


def whole(case: Case) -> Any:
    return _model(case, case.model)(PROMPT, temperature=0, max_tokens=64)


def streamed(case: Case) -> Any:
    return list(_model(case, case.model).stream(PROMPT, temperature=0, max_tokens=64))


def tool(case: Case) -> Any:
    made = _model(case, case.tool_model).client.chat.completions.create(
        model=case.tool_model,
        messages=[{"role": "user", "content": PROMPT}],
        tools=[TOOL],
        tool_choice="required",
    )
    function = made.choices[0].message.tool_calls[0].function
    return function.name, function.arguments


def structured(case: Case) -> Any:
    return City.model_validate_json(_model(case, case.model)(PROMPT, City, temperature=0, max_tokens=64)).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
