"""langsmith: ``wrap_openai`` of a client."""

from typing import Any

from checks import Case
from langsmith import Client, tracing_context
from langsmith.wrappers import wrap_openai
from traced_calls import run_traced

_RUNS: list[dict[str, Any]] = []


class _Recorder(Client):
    """Keeps the runs instead of sending them."""

    def create_run(self, name: str, *args: Any, **options: Any) -> None:
        _RUNS.append({"name": name, **options})

    def update_run(self, *args: Any, **options: Any) -> None:
        pass


_CLIENT = _Recorder(api_url="http://127.0.0.1:9", api_key="any", auto_batch_tracing=False)
tracing_context(enabled=True, client=_CLIENT).__enter__()  # for the whole process


def client(case: Case) -> Any:
    return wrap_openai(case.client(), tracing_extra={"client": _CLIENT})


def spans() -> int:
    return len(_RUNS)


run_traced(client, spans)
