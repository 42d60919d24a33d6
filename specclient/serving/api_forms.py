"""The vendors' APIs that clients use: their form of errors, and their headers with the request's id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specclient.anthropic_http.errors import error_body as anthropic_error_body
from specclient.gemini_http.errors import error_body as gemini_error_body
from specclient.ollama_http.errors import error_body as ollama_error_body
from specclient.openai_http.errors import ServingError

__all__ = ["ANTHROPIC", "ANTHROPIC_HEADER", "GEMINI", "OLLAMA", "OPENAI", "ApiForm", "api_form"]


@dataclass(frozen=True, slots=True)
class ApiForm:
    """The form of one API.

    Attributes:
        error_body: returns the body of an error response, given the error and the request's id.
        id_headers: the response headers that have the request's id.
    """

    error_body: Callable[[ServingError, str], bytes]
    id_headers: tuple[str, ...]


OPENAI = ApiForm(lambda error, _: error.body(), ("x-request-id",))
GEMINI = ApiForm(gemini_error_body, ("x-request-id",))
ANTHROPIC = ApiForm(anthropic_error_body, ("x-request-id", "request-id"))
OLLAMA = ApiForm(lambda error, _: ollama_error_body(error), ("x-request-id",))

#: Sent by every client of Anthropic's API, and by no other; it distinguishes them on paths of both APIs.
ANTHROPIC_HEADER = "anthropic-version"
#: The beginning of the paths of Ollama's API.
OLLAMA_PREFIX = "/api/"
_SHARED = "/v1/models"


def api_form(path: str, headers: Mapping[str, str]) -> ApiForm:
    """Return the form of the API that a client uses.

    Args:
        path: the path of the request.
        headers: its headers, with names in lower case.
    """
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return ANTHROPIC
    if path.startswith("/v1beta/"):
        return GEMINI
    if path.startswith(_SHARED) and ANTHROPIC_HEADER in headers:
        return ANTHROPIC
    return OLLAMA if path.startswith(OLLAMA_PREFIX) else OPENAI
