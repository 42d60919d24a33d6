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
_TRACING = tracing_context(enabled=True, client=_CLIENT)
_TRACING.__enter__()  # for the whole process; its end would be that of the object


def client(case: Case) -> Any:
    return wrap_openai(case.client(), tracing_extra={"client": _CLIENT})


def spans() -> int:
    return len(_RUNS)


run_traced(client, spans)
