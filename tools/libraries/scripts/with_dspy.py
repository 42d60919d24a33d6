"""dspy: ``LM`` over litellm, with ``client`` given, by litellm's HTTP clients, or by its base URL.

The library copies a client that it is given (``copy.deepcopy``), which an official one cannot be.
"""

from typing import Any, Literal

import dspy
import httpx
import litellm
from checks import PROMPT, TOOL, Case, run, way

if way() == "transport":
    import specclient

    litellm.client_session = httpx.Client(transport=specclient.transport())
    litellm.aclient_session = httpx.AsyncClient(transport=specclient.async_transport())


class _LM(dspy.LM):
    """Has the capabilities of the checked models, which the library's tables do not list."""

    @property
    def supports_response_schema(self) -> bool:
        return True

    @property
    def supported_params(self) -> set[str]:
        return super().supported_params | {"response_format"}


def _lm(case: Case, name: str, *, streams: bool = False, **options: Any) -> Any:
    given: dict[str, Any] = {"api_base": case.base_url, "api_key": "any"}
    if case.way in ("object", "plain"):
        given = {"client": case.async_client() if streams else case.client()}
    return _LM(
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
    with dspy.context(lm=_lm(case, case.model, streams=True), adapter=_Unformatted()):
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
