"""crewai: ``LLM`` by its base URL, or with its client set."""

from typing import Any

from checks import PROMPT, TOOL, Case, City, run
from crewai import LLM
from crewai.events import LLMStreamChunkEvent, crewai_event_bus


def _model(case: Case, name: str, **options: Any) -> Any:
    made = LLM(
        model=name,
        provider="openai",
        base_url=case.base_url,
        api_key="any",
        temperature=0,
        max_tokens=64,
        **options,
    )
    if not case.own:
        made._client = case.client()
    return made


def whole(case: Case) -> Any:
    return _model(case, case.model).call(PROMPT)


def streamed(case: Case) -> Any:
    pieces: list[str] = []
    with crewai_event_bus.scoped_handlers():

        @crewai_event_bus.on(LLMStreamChunkEvent)
        def keep(_: Any, event: Any) -> None:
            pieces.append(event.chunk)

        answer = _model(case, case.model, stream=True).call(PROMPT)
        crewai_event_bus.flush(timeout=10)
    assert len(pieces) > 1, "the stream has one piece"
    return [answer[:1], answer[1:]]  # the bus delivers its events in threads, in any order


def tool(case: Case) -> Any:
    called: list[str] = []

    def weather(city: str) -> str:
        called.append(city)
        return f"sunny in {city}"

    made = _model(case, case.tool_model)
    prepared = made._prepare_completion_params
    # The library asks for no tool in particular, and the bundled model would not call one by itself.
    made._prepare_completion_params = lambda **given: prepared(**given) | {"tool_choice": "required"}
    made.call(PROMPT, tools=[TOOL], available_functions={"weather": weather})
    return "weather", {"city": called[0]}


def structured(case: Case) -> Any:
    made = _model(case, case.model).call(PROMPT, response_model=City)
    return made.city if isinstance(made, City) else City.model_validate_json(made).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
