"""A model as ``models.list`` reports it."""

from __future__ import annotations

from specclient.types.base import Whole, WireModel


class Model(WireModel):
    """One model that an endpoint serves."""

    id: str
    created: Whole = 0
    object: str = "model"
    owned_by: str = ""
