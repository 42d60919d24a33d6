"""Turn whatever went wrong into one line for a person and an exit code for a script."""

from __future__ import annotations

from specclient.errors import (
    APIStatusError,
    BudgetExceededError,
    ConfigurationError,
    LedgerError,
    NoRouteError,
    OpenAIError,
)

PROGRAM = "specclient"

#: What the exit code means.
OK, FAILED, USAGE, CONFIGURATION, NO_ROUTE, BUDGET = 0, 1, 2, 3, 4, 5
INTERRUPTED, PIPE_CLOSED = 130, 141

#: Modules of the extra ``local``; without them the engine cannot be loaded.
ENGINE_MODULES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "jinja2")


def exit_code(error: BaseException) -> int:
    """Return the exit code of a failure."""
    if isinstance(error, NoRouteError):
        return NO_ROUTE
    if isinstance(error, BudgetExceededError):
        return BUDGET
    if isinstance(error, ConfigurationError | LedgerError) or _engine_missing(error):
        return CONFIGURATION
    return FAILED


def describe(error: BaseException) -> str:
    """Say in one line what failed and, where it is known, the way out. No key is ever in it."""
    if isinstance(error, APIStatusError):
        return _of_status(error)
    if isinstance(error, OpenAIError):
        return str(error)
    if _engine_missing(error):
        return f"the local engine is not installed ({error}); pip install 'specclient[local]'"
    if isinstance(error, OSError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}; --debug shows where"


def _of_status(error: APIStatusError) -> str:
    """Name the status and the server's own words; add a way out where the words have none."""
    told = error.body.get("message") if isinstance(error.body, dict) else None
    words = " ".join(str(told or error).split())
    if error.response is None:  # refused here, before anything was sent: the words say it all
        return words
    hints = {
        401: "check the key: `specclient models` lists where each is read from",
        404: "`specclient models list PROVIDER` lists what there is",
        429: "wait a little, or choose another model with -m",
    }
    hint = hints.get(error.status_code, "")
    return f"{error.status_code} {type(error).__name__}: {words}" + (f" ({hint})" if hint else "")


def _engine_missing(error: BaseException) -> bool:
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return (name or "").partition(".")[0] in ENGINE_MODULES
