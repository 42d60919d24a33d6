"""The families of models that the built-in decoder runs; each module of this package is one family or more.

A module has the classes of its families (:class:`~specclient_local.model.families.family.Family`), which say
how a ``config.json`` and the tensors of a checkpoint are read. They are found by their base class: a new
family is a new module, and nothing else changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specclient_local.model.families.family import Family


@cache
def families() -> dict[str, Family]:
    """Return the families by the ``model_type`` of ``config.json``, in alphabetical order."""
    from specclient_local.model.families.family import Family  # noqa: PLC0415 - imports this package

    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    found: dict[str, Family] = {}
    pending: list[type[Family]] = [Family]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        found |= {model_type: kind() for model_type in vars(kind).get("model_types", ())}
    return dict(sorted(found.items()))


def family_of(model_type: str) -> Family:
    """Return the family of a ``model_type``.

    Raises:
        KeyError: no family has it.
    """
    return families()[model_type]
