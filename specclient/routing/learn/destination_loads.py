"""The measured loads of destinations, each valid for some seconds after its reading."""

from __future__ import annotations

from specclient.types.server_load import ServerLoad

__all__ = ["LOAD_S", "DestinationLoads"]

#: Seconds for which a measured load of a destination is valid.
LOAD_S = 30.0


class DestinationLoads:
    """The newest load of each destination, ``provider``, or ``provider/model`` if models have their own."""

    __slots__ = ("_readings",)

    def __init__(self) -> None:
        self._readings: dict[str, tuple[float, ServerLoad]] = {}

    def note(self, place: str, load: ServerLoad | None, now: float) -> bool:
        """Note a load, None if it is no longer known; return whether it differs from the one before."""
        earlier = self._readings.pop(place, None)
        if load is not None:
            self._readings[place] = now, load
        return load != (None if earlier is None else earlier[1])

    def of(self, route: str, now: float) -> ServerLoad | None:
        """Return the load of a route's destination, None without a recent reading."""
        readings = self._readings
        at, load = readings.get(route) or readings.get(route.partition("/")[0]) or (0.0, None)
        return None if load is None or now - at > LOAD_S else load

    def expire(self, place: str, now: float) -> float:
        """Forget a load that is too old; return the seconds for which it is still valid, 0 if for none."""
        reading = self._readings.get(place)
        if reading is None:
            return 0.0
        left = reading[0] + LOAD_S - now
        if left <= 0:
            del self._readings[place]
        return max(left, 0.0)
