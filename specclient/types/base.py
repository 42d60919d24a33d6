"""The common ground of wire objects: pydantic models that keep unknown fields and forgive missing ones."""

from __future__ import annotations

from typing import Any

import pydantic


class WireModel(pydantic.BaseModel):
    """An object as it came over the wire.

    Unknown fields are kept (``model_extra``, and in every dump); schemas are built on first use, so
    importing the package stays cheap.
    """

    model_config = pydantic.ConfigDict(extra="allow", defer_build=True, protected_namespaces=())

    def to_dict(self, *, exclude_unset: bool = True) -> dict[str, Any]:
        """Return the fields that were in the answer, as plain Python objects."""
        return self.model_dump(mode="json", exclude_unset=exclude_unset)

    def to_json(self, *, indent: int | None = 2, exclude_unset: bool = True) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return self.model_dump_json(indent=indent, exclude_unset=exclude_unset)
