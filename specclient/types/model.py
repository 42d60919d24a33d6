"""A model as ``models.list`` reports it, and what the API says of one deleted."""

from __future__ import annotations

from typing import Literal

from specclient.types.base import LenientInt, WireModel


class Model(WireModel):
    """One model that an endpoint serves; ``created`` is in Unix seconds."""

    vital = frozenset({("id",)})

    id: str
    created: LenientInt = 0
    object: Literal["model"] = "model"
    owned_by: str = ""
    shutdown_date: str | None = None


class ModelDeleted(WireModel):
    """That a model of one's own has been deleted."""

    id: str
    deleted: bool
    object: str
