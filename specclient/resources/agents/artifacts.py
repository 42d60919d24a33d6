"""Reads and downloads, by path, the files that a turn of a hosted agent created."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from specclient.resources.agents.results import AgentTurnResult
from specclient.resources.step_methods import Steps, run_steps, run_steps_async


def for_result(self: Any, result: AgentTurnResult[Any]) -> Any:
    """Return an object that reads the files of a turn by their paths.

    Args:
        result: the result of the turn.
    """
    return (AsyncAgentResultArtifacts if self.is_async else AgentResultArtifacts)(self, result)


class _TurnArtifacts:
    """The steps that the synchronous and the asynchronous class share."""

    def __init__(self, artifacts: Any, result: AgentTurnResult[Any]) -> None:
        self._artifacts = artifacts
        self._session_id = result.session_id
        self._turn_id = result.turn_id

    def _find(self, path: str, options: Mapping[str, Any]) -> Steps:
        page = yield self._artifacts.list(self._session_id, **options)
        found: list[Any] = []
        while True:
            found += [one for one in page.data if self._is_ours(one) and one.path == path]
            if len(found) > 1:
                raise ValueError(
                    f"turn {self._turn_id} has several artifacts at {path!r}; read one by its id"
                )
            if not page.has_next_page():
                break
            page = yield page.get_next_page()
        if not found:
            raise ValueError(f"turn {self._turn_id} has no artifact at {path!r}; list them to see its paths")
        return found[0]

    def _is_ours(self, artifact: Any) -> bool:
        return (artifact.session_id, artifact.turn_id) == (self._session_id, self._turn_id)

    def _content(self, path: str, options: Mapping[str, Any]) -> Steps:
        found = yield from self._find(path, options)
        return (yield self._artifacts.content(found.id, session_id=self._session_id, **options))

    def _download(self, path: str, to: str | os.PathLike[str], options: Mapping[str, Any]) -> Steps:
        found = yield from self._find(path, options)
        unread = type(self._artifacts)(self._artifacts.caller.streaming())
        body = yield unread.content(found.id, session_id=self._session_id, **options)
        try:
            yield body.stream_to_file(to)
        finally:
            yield body.close()
        return found


class AgentResultArtifacts(_TurnArtifacts):
    """The files of one turn; ``options`` are those of every call (``extra_headers``, ``timeout``, …).

    Raises:
        ValueError: the turn has no file with the path, or several.
    """

    def content(self, path: str, **options: Any) -> Any:
        """Return the file at a path: ``.content``, ``.text``, ``.stream_to_file(…)``."""
        return run_steps(self._content(path, options))

    def download(self, path: str, *, to: str | os.PathLike[str], **options: Any) -> Any:
        """Write the file at a path to a local file as it is received, and return its artifact object."""
        return run_steps(self._download(path, to, options))


class AsyncAgentResultArtifacts(_TurnArtifacts):
    """The asynchronous version of :class:`AgentResultArtifacts`."""

    async def content(self, path: str, **options: Any) -> Any:
        """Return the file at a path: ``.content``, ``.text``, ``.stream_to_file(…)``."""
        return await run_steps_async(self._content(path, options))

    async def download(self, path: str, *, to: str | os.PathLike[str], **options: Any) -> Any:
        """Write the file at a path to a local file as it is received, and return its artifact object."""
        return await run_steps_async(self._download(path, to, options))
