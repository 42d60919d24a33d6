"""Which calls return what is booked later: batch jobs, their outputs, fine-tuning jobs, containers."""

from __future__ import annotations

import re

from specclient.types.request import Request

__all__ = ["CONTAINER", "may_hold_batches", "output_id", "output_name", "shows_objects"]

_OUTPUT = re.compile(r"/(?:files/([^/]+)/content|messages/batches/([^/]+)/results)$")
#: The beginning of the names of the methods that return batch jobs.
JOBS = "batches."
_TRAININGS = "fine_tuning.jobs."
#: The method that makes a container.
CONTAINER = "containers.create"


def may_hold_batches(request: Request) -> bool:
    """Return whether an answer describes batch jobs, or may be an output of one."""
    return request.method.name.startswith(JOBS) or output_id(request) is not None


def shows_objects(request: Request) -> bool:
    """Return whether an answer may show a fine-tuning job, or a container that was made."""
    return request.method.name.startswith(_TRAININGS) or request.method.name == CONTAINER


def output_id(request: Request) -> str | None:
    """Return the id of the file or the job that a request reads the output of; None for other requests."""
    if request.method.verb != "GET":
        return None
    path = request.method.path.partition("?")[0]
    for name, value in request.path_params.items():
        path = path.replace(f"{{{name}}}", str(value))
    found = _OUTPUT.search(path)
    return None if found is None else found[1] or found[2]


def output_name(provider: str, scope: str) -> str:
    """Return the name of an output for :meth:`specclient.budgets.late_charges.LateCharges.charge`.

    Args:
        scope: the id of the file or the job that it is read from.
    """
    return f"{provider}\0{scope}"
