"""Uploads of large files in parts."""

from __future__ import annotations

import builtins
import io
import os
from functools import partial
from pathlib import Path
from typing import Any

from specclient.resources.step_methods import BlockingStep, Steps
from specclient.types.params import NOT_GIVEN

#: Bytes per part of a large upload (https://platform.openai.com/docs/api-reference/uploads/add-part).
PART_SIZE = 64 * 1024 * 1024


def upload_file_chunked(
    self: Any,
    *,
    file: os.PathLike[str] | bytes,
    mime_type: str,
    purpose: str,
    filename: str | None = None,
    bytes: int | None = None,  # noqa: A002  # the API's name
    part_size: int | None = None,
    md5: Any = NOT_GIVEN,
) -> Steps:
    """Upload a large file in parts, one after the other, and return the completed upload.

    Args:
        file: a path or the content; content requires ``filename`` and ``bytes``.
        bytes: the size of the whole file in bytes.
        part_size: the size of each part in bytes; None for 64 MiB.
    """
    opened: Any
    if isinstance(file, builtins.bytes):
        for name, value in (("filename", filename), ("bytes", bytes)):
            if value is None:
                raise TypeError(f"The `{name}` argument must be given for in-memory files")
        opened = io.BytesIO(file)
    else:
        path = Path(file)
        filename = filename or path.name
        if bytes is None:
            bytes = (yield BlockingStep(path.stat)).st_size  # noqa: A001
        opened = yield BlockingStep(partial(path.open, "rb"))
    with opened:
        upload = yield self.create(bytes=bytes, filename=filename, mime_type=mime_type, purpose=purpose)
        part_ids: list[str] = []
        while data := (yield BlockingStep(partial(opened.read, part_size or PART_SIZE))):
            part = yield self.parts.create(upload_id=upload.id, data=data)
            part_ids.append(part.id)
    return (yield self.complete(upload_id=upload.id, part_ids=part_ids, md5=md5))
