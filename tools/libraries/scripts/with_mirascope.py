"""mirascope: a registered provider by its base URL, or with its attribute ``client`` set."""

from typing import Any

from checks import PROMPT, Case, City, run
from mirascope import llm
from mirascope.llm.providers.openai.completions.provider import OpenAICompletionsProvider


class _Provider(OpenAICompletionsProvider):
    """Sends the model's name as it is; the original cuts the part before the slash."""

    id = "checked"
    default_scope = "checked/"

    def _model_name(self, model_id: str) -> str:
        return model_id.removeprefix("checked/")


def _model(case: Case, name: str) -> llm.Model:
    provider = _Provider(api_key="any", base_url=case.base_url)
    if not case.own:
        provider.client = case.client()
    llm.register_provider(provider, scope="checked/")
    return llm.Model(f"checked/{name}", temperature=0, max_tokens=64)


def whole(case: Case) -> Any:
    return _model(case, case.model).call(PROMPT).text()


def streamed(case: Case) -> Any:
    pieces = list(_model(case, case.model).stream(PROMPT).text_stream())
    return pieces[:-1] if pieces[-1] == "\n" else pieces  # the library ends each part with a line break


def tool(case: Case) -> Any:
    # Structured output by a tool: the library asks for a call only in this case.
    made = _model(case, case.tool_model).call(PROMPT, format=llm.format(City, mode="tool"))
    return "weather", {"city": made.parse().city}


def structured(case: Case) -> Any:
    return _model(case, case.model).call(PROMPT, format=llm.format(City, mode="strict")).parse().city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
