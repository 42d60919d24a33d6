"""Uploads local files for a hosted agent, and copies them into its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from specclient.errors import OpenAIError
from specclient.resources.agents.file_selection import (
    destination_of,
    read_upload,
    select_directory,
    select_files,
    upload_path,
)
from specclient.resources.step_methods import BlockingStep, Steps
from specclient.resources.table_resources import sibling_of
from specclient.types.params import NOT_GIVEN, is_given

_PURPOSE = "user_data"


@dataclass
class PreparedAgentFiles:
    """Uploads for a new environment. The caller deletes them when they are no longer needed.

    Attributes:
        files: the ``files`` argument of an environment: ``type``, ``file_id`` and ``path`` of each file.
        uploaded_file_ids: the ids in the Files API, in the same order.
    """

    files: list[dict[str, str]] = field(default_factory=list)
    uploaded_file_ids: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StagedAgentFile:
    """A file in an environment.

    Attributes:
        uploaded_file_id: the id of the upload that it was copied from; the caller deletes the upload.
        file: the file object of the environment.
    """

    uploaded_file_id: str
    file: Any


class AgentFilePreparationError(OpenAIError):
    """Not all files were uploaded; ``__cause__`` has the reason.

    Attributes:
        prepared: the uploads that succeeded, for the caller to use or delete.
    """

    def __init__(self, prepared: PreparedAgentFiles) -> None:
        count = len(prepared.uploaded_file_ids)
        super().__init__(
            f"Could not prepare all agent files; {count} were uploaded, and are yours to use or to delete: "
            "see `prepared`"
        )
        self.prepared = prepared


class AgentFileStagingError(OpenAIError):
    """A file was uploaded but could not be copied into the environment; ``__cause__`` has the reason.

    Attributes:
        uploaded_file_id: the id of the upload, for the caller to use or delete.
    """

    def __init__(self, uploaded_file_id: str) -> None:
        super().__init__(
            f"Could not put the agent's file into its environment; its upload {uploaded_file_id} is yours to "
            "use or to delete"
        )
        self.uploaded_file_id = uploaded_file_id


def prepare(
    self: Any,
    files: Mapping[str, str | os.PathLike[str]],
    *,
    extra_headers: Any = None,
    extra_query: Any = None,
    extra_body: Any = None,
    timeout: Any = NOT_GIVEN,
) -> Steps:
    """Upload local files for a new environment, one after the other.

    Args:
        files: local paths by their absolute path in the environment, below ``/workspace``.

    Returns:
        :class:`PreparedAgentFiles`; pass its ``files`` to ``environments.create``.

    Raises:
        ValueError: a path is invalid; nothing has been uploaded.
        AgentFilePreparationError: an upload failed; the error has the earlier uploads.
    """
    options = {
        "extra_headers": extra_headers,
        "extra_query": extra_query,
        "extra_body": extra_body,
        "timeout": timeout,
    }
    headers = [name for name, value in (extra_headers or {}).items() if is_given(value)]
    snapshots = yield BlockingStep(partial(select_files, files, headers))
    prepared = PreparedAgentFiles()
    try:
        for destination, snapshot in snapshots:
            content = yield BlockingStep(snapshot.read)
            upload = (snapshot.path.name, content)
            uploaded = yield sibling_of(self, "files").create(file=upload, purpose=_PURPOSE, **options)
            prepared.uploaded_file_ids.append(uploaded.id)
            prepared.files.append({"type": "file_id", "file_id": uploaded.id, "path": destination})
    except Exception as error:
        raise AgentFilePreparationError(prepared) from error
    except BaseException as error:  # cancelled or interrupted: keep the ids of the uploads
        vars(error)["prepared"] = prepared
        raise
    return prepared


def prepare_directory(
    self: Any,
    root: str | os.PathLike[str],
    *,
    destination: str,
    include: Sequence[str],
    extra_headers: Any = None,
    extra_query: Any = None,
    extra_body: Any = None,
    timeout: Any = NOT_GIVEN,
) -> Steps:
    """Upload the files of a folder that match patterns at the time of the call; see ``prepare``.

    Args:
        root: the local folder.
        destination: the folder's absolute path in the environment: ``/workspace`` or below.
        include: glob patterns relative to ``root``: ``["src/**/*.py"]``.

    Raises:
        ValueError: the folder, a pattern or a file is invalid (symlinks are), or no file matches.
        AgentFilePreparationError: an upload failed.
    """
    files = yield BlockingStep(partial(select_directory, root, destination, include))
    return (
        yield self.prepare(
            files,
            extra_headers=extra_headers,
            extra_query=extra_query,
            extra_body=extra_body,
            timeout=timeout,
        )
    )


def upload(
    self: Any,
    environment_id: str,
    *,
    file: Any,
    path: str,
    extra_headers: Any = None,
    extra_query: Any = None,
    extra_body: Any = None,
    timeout: Any = NOT_GIVEN,
) -> Steps:
    """Upload a file and copy it into a running environment.

    Args:
        file: a path, content, an open file, or a tuple of a name and one of these.
        path: the file's absolute path in the environment, below ``/workspace``.

    Returns:
        :class:`StagedAgentFile`.

    Raises:
        ValueError: the id or a path is invalid; nothing has been uploaded.
        AgentFileStagingError: the upload succeeded, but the copy failed.
    """
    if not environment_id:
        raise ValueError(f"Expected a non-empty value for `environment_id` but received {environment_id!r}")
    options = {
        "extra_headers": extra_headers,
        "extra_query": extra_query,
        "extra_body": extra_body,
        "timeout": timeout,
    }
    destination = destination_of(path)
    if upload_path(file) is not None:
        file = yield BlockingStep(partial(read_upload, file))
    uploaded = yield sibling_of(self, "files").create(file=file, purpose=_PURPOSE, **options)
    try:
        staged = yield self.create(
            environment_id, type="file_id", file_id=uploaded.id, path=destination, **options
        )
    except Exception as error:
        raise AgentFileStagingError(uploaded.id) from error
    except BaseException as error:  # as in `prepare`
        vars(error)["uploaded_file_id"] = uploaded.id
        raise
    return StagedAgentFile(uploaded_file_id=uploaded.id, file=staged)
