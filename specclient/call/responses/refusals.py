"""Errors about a request of the Responses API that is refused before it is sent."""

from __future__ import annotations

from typing import TypeVar

from specclient.errors import APIStatusError, BadRequestError, UnsupportedParameterError

__all__ = ["invalid", "refusal", "unsupported"]

E = TypeVar("E", bound=APIStatusError)


def refusal(kind: type[E], message: str, *, param: str | None = None, code: str | None = None) -> E:
    """Return an error with the fields of OpenAI's error object.

    Args:
        kind: the class, which states the status.
        param: the field of the request; None without one.
        code: identifier for programs.
    """
    error = kind(message)
    error.param, error.code, error.type = param, code, "invalid_request_error"
    return error


def invalid(param: str, message: str, code: str | None = None) -> BadRequestError:
    """Return the error for a field that is invalid for every provider."""
    return refusal(BadRequestError, message, param=param, code=code)


def unsupported(param: str, message: str) -> UnsupportedParameterError:
    """Return the error for a field that chat completions cannot express; another route may support it."""
    return refusal(UnsupportedParameterError, message, param=param)
