"""The check of a model's name in a request, before anything looks it up."""

from __future__ import annotations

from specclient.openai_http.errors import bad_request
from specclient.types.model_aliases import LONGEST_NAME

__all__ = ["check_name"]


def check_name(name: str, param: str = "model") -> None:
    """Check a name that appears in logs, the ledger and URLs, and that look-ups remember.

    Args:
        name: as the request has it.
        param: the field of the request.

    Raises:
        ServingError: 400, the name is too long, or has characters that cannot be printed.
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise bad_request(
            param, f"{param} must be the name of a model, with at most {LONGEST_NAME} printable characters"
        )
