"""A user's settings for a cloud provider, whose requests belong to a project or account in a location."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """A provider's settings for a cloud. None is read from the environment or the credentials.

    Attributes:
        project: the project that requests belong to, and are billed to.
        location: the region, or multi-region, that serves them.
        credentials: the path of a file with credentials, the name of a profile, or credentials of the cloud's
            own library.
    """

    project: str | None = None
    location: str | None = None
    credentials: Any = field(default=None, repr=False)

    def updated(self, changes: CloudSettings) -> CloudSettings:
        """Return these settings with those of ``changes`` that are set."""
        values = {each.name: getattr(changes, each.name) for each in fields(changes)}
        given = {name: value for name, value in values.items() if value is not None}
        return replace(self, **given) if given else self


NO_CLOUD = CloudSettings()
