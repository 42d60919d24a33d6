"""The section of the requests that run or wait now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.serving.dashboard.elements import PageElement, element, nothing
from specclient.serving.dashboard.sections.section import (
    SectionValues,
    SectionView,
    ServerSection,
    ServerState,
)

__all__ = ["SECTION"]

#: Maximum number of listed requests.
_LISTED = 25


def _values(state: ServerState) -> SectionValues:
    return {
        "requests": [
            {
                "id": entry.id,
                "route": entry.route,
                "model": entry.model,
                "key": entry.key,
                "streamed": entry.streamed,
                "waiting": entry.waited_s is None,
                "seconds": state.clock_s - entry.begun,
            }
            for entry in state.entries[:_LISTED]
        ]
    }


def _view(values: SectionValues, state: ServerState) -> SectionView:
    requests = values["requests"]
    hidden = state.running + state.waiting - len(requests)
    return SectionView(
        [f"{hidden:,} more are not listed here"] if hidden > 0 else [],
        [
            element("ul", {"class": "running"}, *map(_line, requests))
            if requests
            else nothing("No request is running.")
        ],
    )


def _line(request: Mapping[str, Any]) -> PageElement:
    described = (request["route"], "stream" if request["streamed"] else None, request["key"])
    waiting = request["waiting"]
    return element(
        "li",
        {},
        element("span", {"class": "name"}, request["model"]),
        element("span", {"class": "soft"}, " · ".join(filter(None, described))),
        element(
            "span", {"class": "badge waits" if waiting else "badge"}, "waiting" if waiting else "running"
        ),
        element("span", {"class": "value"}, f"{request['seconds']:.1f} s"),
    )


SECTION = ServerSection(id="running", title="Running now", width=3, values=_values, view=_view)
