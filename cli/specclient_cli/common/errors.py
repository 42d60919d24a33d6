"""Exit codes, and one-line descriptions of errors."""

from __future__ import annotations

import errno

from specclient.errors import (
    APIStatusError,
    BudgetExceededError,
    ConfigurationError,
    LedgerError,
    NoRouteError,
    OpenAIError,
)

PROGRAM = "specclient"

#: Exit codes.
OK, FAILED, USAGE, CONFIGURATION, NO_ROUTE, BUDGET = 0, 1, 2, 3, 4, 5
INTERRUPTED, PIPE_CLOSED = 130, 141

#: Modules of the extra ``local``, which the engine needs.
ENGINE_MODULES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "jinja2")


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, NoRouteError):
        return NO_ROUTE
    if isinstance(error, BudgetExceededError):
        return BUDGET
    if isinstance(error, ConfigurationError | LedgerError) or _engine_missing(error):
        return CONFIGURATION
    return FAILED


def describe(error: BaseException) -> str:
    """Return one line with the cause of an error and, if known, the way out. It never contains a key."""
    if isinstance(error, APIStatusError):
        return _describe_status(error)
    if isinstance(error, OpenAIError):
        return str(error)
    if _engine_missing(error):
        return f"the local engine is not installed ({error}); pip install 'specclient[local]'"
    if isinstance(error, OSError):
        hint = "; make room on that disk, then run the command again" if error.errno == errno.ENOSPC else ""
        return f"{error}{hint}"
    return f"unexpected {type(error).__name__}: {error}; --debug shows the traceback"


def _describe_status(error: APIStatusError) -> str:
    """Return the status and the server's message, with a hint for common statuses."""
    message = error.body.get("message") if isinstance(error.body, dict) else None
    words = " ".join(str(message or error).split())
    if error.response is None:  # raised before anything was sent; the message is complete
        return words
    hints = {
        401: "check the key: `specclient models` lists the variable that each is read from",
        404: "`specclient models list PROVIDER` lists the available models",
        429: "wait, or choose another model with -m",
    }
    hint = hints.get(error.status_code, "")
    return f"{error.status_code} {type(error).__name__}: {words}" + (f" ({hint})" if hint else "")


def _engine_missing(error: BaseException) -> bool:
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return (name or "").partition(".")[0] in ENGINE_MODULES
