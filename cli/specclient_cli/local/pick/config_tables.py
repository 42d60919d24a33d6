"""Turn a choice of what drafts into tables of ``specclient.toml``, the rest of it kept as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specclient.errors import ConfigurationError
from specclient_cli.config.group import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tomlkit import TOMLDocument


def write_pair_tables(
    file: Path, name: str, target: str, drafting: Mapping[str, Any], measured: Mapping[str, Any]
) -> list[str]:
    """Set the tables of a choice; comments, order and all other tables stay.

    ``[local.models.NAME]`` is the target with what drafts for it and how, so that ``local/NAME`` runs it. For
    a draft model of its own there is also ``[pairs.NAME]``, which names target and draft as routes with what
    was measured of them, for the router to begin with, and the draft's own table.

    Args:
        file: of the configuration; begun where there is none.
        name: of the tables.
        target: folder or hub id.
        drafting: ``draft``, ``heads`` or ``layer_skip``, and ``method``, ``draft_length`` and ``draft_tree``
            of requests that name none.
        measured: ``acceptance`` and ``cost_ratio``.

    Returns:
        The tables that were written.

    Raises:
        ConfigurationError: a file that cannot be read or written.
    """
    import tomlkit  # noqa: PLC0415 - for this alone
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    path = file.expanduser().resolve()  # what a link leads to is replaced, not the link
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    except (OSError, UnicodeDecodeError, TOMLKitError) as error:
        raise ConfigurationError(
            f"{file} cannot be read ({error}); correct it, or name another file."
        ) from None
    models = ("local", "models")
    written = [_set(document, models, name, {"path": target, **drafting})]
    if "draft" in drafting:
        draft = f"{name}-draft"
        routes = {"draft": f"local/{draft}", "target": f"local/{name}"}
        written.append(_set(document, models, draft, {"path": drafting["draft"], "method": "plain"}))
        written.append(_set(document, ("pairs",), name, {**routes, **measured}))
    try:
        replace_file(path, tomlkit.dumps(document))
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {file}: {error.strerror or error}; name another file."
        ) from None
    return written


def _set(document: TOMLDocument, tables: tuple[str, ...], name: str, values: Mapping[str, Any]) -> str:
    """Make a table hold these values and nothing else; return its name as the file has it."""
    import tomlkit  # noqa: PLC0415

    parent: Any = document
    for each in tables:
        if each not in parent:
            parent[each] = tomlkit.table(is_super_table=True)
        parent = parent[each]
    own = parent.get(name)
    if own is None:
        own = parent[name] = tomlkit.table()
    for key in [key for key in own if key not in values]:
        del own[key]
    for key, value in values.items():
        own[key] = _inline(value) if isinstance(value, dict) else value
    return f"[{'.'.join((*tables, name))}]"


def _inline(values: dict[str, Any]) -> Any:
    """Return a table that stands on its key's line."""
    import tomlkit  # noqa: PLC0415

    table = tomlkit.inline_table()
    table.update(values)
    return table
