"""The base class of ``Response``: the record of the call as ``meta``, and the output text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specclient.types.call import MeteredModel


class Answer(MeteredModel):
    """The base of ``Response``, whose fields are generated."""

    if TYPE_CHECKING:
        output: list[Any]

    @property
    def output_text(self) -> str:
        """The concatenated text of all messages in ``output``; empty without messages."""
        return "".join(
            part.text
            for item in self.output or ()
            if item.type == "message"
            for part in item.content or ()
            if part.type == "output_text"
        )
