"""litellm: ``completion`` with ``client``, or by its base URL."""

from typing import Any

import litellm
from checks import FORM, PROMPT, TOOL, Case, City, run


def _ask(case: Case, name: str, **options: Any) -> Any:
    if case.own:
        options |= {"api_base": case.base_url, "api_key": "any"}
    else:
        options["client"] = case.client()
    return litellm.completion(
        model=f"openai/{name}",
        messages=[{"role": "user", "content": PROMPT}],
        temperature=0,
        max_tokens=64,
        max_retries=0,
        **options,
    )


def whole(case: Case) -> Any:
    return _ask(case, case.model).choices[0].message.content


def streamed(case: Case) -> Any:
    return [chunk.choices[0].delta.content for chunk in _ask(case, case.model, stream=True)]


def tool(case: Case) -> Any:
    made = _ask(case, case.tool_model, tools=[TOOL], tool_choice="required")
    function = made.choices[0].message.tool_calls[0].function
    return function.name, function.arguments


def structured(case: Case) -> Any:
    return City.model_validate_json(
        _ask(case, case.model, response_format=FORM).choices[0].message.content
    ).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
