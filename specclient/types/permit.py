"""The permit of a request: the routes that it may be sent to, checked where each attempt is sent."""

from __future__ import annotations

from typing import Protocol

__all__ = ["RoutePermit"]


class RoutePermit(Protocol):
    """The routes that one request may be sent to, whoever names them: the caller, a policy or a strategy."""

    def check(self, provider: str, model: str) -> None:
        """Refuse a route that the request may not be sent to.

        Raises:
            NotFoundError: the error of an unknown model.
        """
        ...

    def usable(self, routes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the routes (``provider/model``) that may be used; the same tuple if all of them may."""
        ...
