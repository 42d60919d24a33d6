"""A model as ``models.list`` reports it."""

from __future__ import annotations

from typing import Literal

from specclient.types.base import WireModel


class Model(WireModel):
    """One model that an endpoint serves."""

    id: str
    created: int = 0
    object: Literal["model"] = "model"
    owned_by: str = ""
