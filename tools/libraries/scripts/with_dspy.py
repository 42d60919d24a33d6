"""dspy: ``LM`` over litellm, with ``client`` given or by its base URL."""

from typing import Any, Literal

import dspy
from checks import PROMPT, TOOL, Case, run


def _lm(case: Case, name: str, **options: Any) -> Any:
    given: dict[str, Any] = (
        {"api_base": case.base_url, "api_key": "any"} if case.own else {"client": case.client()}
    )
    return dspy.LM(
        f"openai/{name}",
        engine="litellm",
        temperature=0,
        max_tokens=64,
        cache=False,
        num_retries=0,
        **given,
        **options,
    )


class _Unformatted(dspy.ChatAdapter):
    """Takes the whole answer as the value of the one output field."""

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        return {next(iter(signature.output_fields)): completion}


def whole(case: Case) -> Any:
    (answer,) = _lm(case, case.model)(PROMPT)
    return answer if isinstance(answer, str) else answer["text"]


def streamed(case: Case) -> Any:
    class Say(dspy.Signature):
        question: str = dspy.InputField()
        answer: str = dspy.OutputField()

    program = dspy.streamify(dspy.Predict(Say), async_streaming=False)
    with dspy.context(lm=_lm(case, case.model), adapter=_Unformatted()):
        made = [piece for piece in program(question=PROMPT) if not isinstance(piece, dspy.Prediction)]
    return [piece.choices[0].delta.content for piece in made]


def tool(case: Case) -> Any:
    (answer,) = _lm(case, case.tool_model)(PROMPT, tools=[TOOL], tool_choice="required")
    function = answer["tool_calls"][0].function
    return function.name, function.arguments


def structured(case: Case) -> Any:
    class Ask(dspy.Signature):
        question: str = dspy.InputField()
        city: Literal["Ulm", "Bonn"] = dspy.OutputField()

    with dspy.context(lm=_lm(case, case.model), adapter=dspy.JSONAdapter()):
        return dspy.Predict(Ask)(question=PROMPT).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
