"""Turn local files into files of a hosted agent's environment: uploaded, and put where it looks for them."""

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
from specclient.types.params import NOT_GIVEN, Omit

_PURPOSE = "user_data"


@dataclass
class PreparedAgentFiles:
    """Uploads for a new environment; they are the caller's, who deletes them when they are no longer needed.

    Attributes:
        files: for the ``files`` of an environment: ``type``, ``file_id`` and ``path`` of each.
        uploaded_file_ids: of the Files API, in the same order.
    """

    files: list[dict[str, str]] = field(default_factory=list)
    uploaded_file_ids: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StagedAgentFile:
    """A file in an environment.

    Attributes:
        uploaded_file_id: of the upload it was copied from, which is the caller's to delete.
        file: as the environment has it.
    """

    uploaded_file_id: str
    file: Any


class AgentFilePreparationError(OpenAIError):
    """Not all files were uploaded; the cause says why.

    Attributes:
        prepared: the uploads that were made, for the caller to use or delete.
    """

    def __init__(self, prepared: PreparedAgentFiles) -> None:
        count = len(prepared.uploaded_file_ids)
        super().__init__(
            f"Could not prepare all agent files; {count} were uploaded, and are yours to use or to delete: "
            "see `prepared`"
        )
        self.prepared = prepared


class AgentFileStagingError(OpenAIError):
    """A file was uploaded, and could not be put into the environment; the cause says why.

    Attributes:
        uploaded_file_id: of the upload, for the caller to use or delete.
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
    """Upload local files for an environment that is yet to be made, one after the other.

    Args:
        files: local paths by the absolute path each is to have, below ``/workspace``.

    Returns:
        :class:`PreparedAgentFiles`; its ``files`` are those of ``environments.create``.

    Raises:
        ValueError: for a path that cannot be used, before anything is uploaded.
        AgentFilePreparationError: where an upload fails; it has those made before.
    """
    options = {
        "extra_headers": extra_headers,
        "extra_query": extra_query,
        "extra_body": extra_body,
        "timeout": timeout,
    }
    headers = [name for name, value in (extra_headers or {}).items() if not isinstance(value, Omit)]
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
    except BaseException as error:  # cancelled, or interrupted: what was uploaded must not be lost
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
    """Upload the files of a folder that patterns name, as they are now; see ``prepare``.

    Args:
        root: the folder.
        destination: the absolute path it is to have, ``/workspace`` or below.
        include: glob patterns relative to ``root``: ``["src/**/*.py"]``.

    Raises:
        ValueError: for a folder, pattern or file that cannot be used (no symlinks), or where none matches.
        AgentFilePreparationError: where an upload fails.
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
    """Upload a file and copy it into an environment that is running.

    Args:
        file: a path, content, an open file, or a tuple of a name and one of these.
        path: the absolute path it is to have, below ``/workspace``.

    Returns:
        :class:`StagedAgentFile`.

    Raises:
        ValueError: for an id or a path that cannot be used, before anything is uploaded.
        AgentFileStagingError: where the upload was made, and the copy fails.
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
