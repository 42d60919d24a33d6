"""The classes of the `openai` package that correspond to ours: those of the same path."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final

from specclient.openai_api.homes import DEEP, RENAMED

_THEIRS: Final = "openai.types"


def namesakes(kind: type) -> list[Any]:
    """Return the official classes of one of ours, of the modules that the program has loaded.

    They are found by the path of an open class, and by the generated tables for a class that is declared in
    one of our files. A class of ours may stand for several equal ones of different modules.

    Args:
        kind: a class in ``specclient.types``; any other class has no namesakes.
    """
    package, _, place = kind.__module__.partition(".types")
    if package != "specclient":
        return []
    modules = _modules().get(place.removeprefix("."), {_THEIRS + place: {}})
    found = []
    for module, names in modules.items():
        name = names.get(kind.__name__, kind.__name__)
        official = vars(sys.modules.get(module, object)).get(name)
        if isinstance(official, type) and (not names or official.__module__ == module):
            found.append(official)
    return list(dict.fromkeys(found))


@cache
def _modules() -> dict[str, dict[str, dict[str, str]]]:
    """Return the official modules of each of our files, with their names of our classes that differ."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for package, homes in DEEP.items():
        for home, modules in homes.items():
            for place in (".".join(filter(None, (package, module))) for module in modules.split()):
                renamed = {ours: theirs for theirs, ours in RENAMED.get(place, {}).items()}
                found.setdefault(home, {})[f"{_THEIRS}.{place}"] = renamed
    return found
