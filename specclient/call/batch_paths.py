"""Which calls return a vendor's batch jobs, or the outputs of one."""

from __future__ import annotations

import re

from specclient.types.request import Request

__all__ = ["may_hold_batches", "output_id"]

_OUTPUT = re.compile(r"/(?:files/([^/]+)/content|messages/batches/([^/]+)/results)$")
#: The beginning of the names of the methods that return batch jobs.
JOBS = "batches."


def may_hold_batches(request: Request) -> bool:
    """Return whether an answer describes batch jobs, or may be an output of one."""
    return request.method.name.startswith(JOBS) or output_id(request) is not None


def output_id(request: Request) -> str | None:
    """Return the id of the file or the job that a request reads the output of; None for other requests."""
    if request.method.verb != "GET":
        return None
    path = request.method.path.partition("?")[0]
    for name, value in request.path_params.items():
        path = path.replace(f"{{{name}}}", str(value))
    found = _OUTPUT.search(path)
    return None if found is None else found[1] or found[2]
