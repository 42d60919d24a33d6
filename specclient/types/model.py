"""A model in ``models.list``, and the result of deleting a model."""

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
    """The result of deleting a fine-tuned model."""

    id: str
    deleted: bool
    object: str
