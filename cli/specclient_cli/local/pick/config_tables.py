"""Writes a chosen draft to ``specclient.toml``. The rest of the file is not changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specclient.errors import ConfigurationError
from specclient_cli.config.toml_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tomlkit import TOMLDocument


def write_pair_tables(
    file: Path, name: str, target: str, drafting: Mapping[str, Any], measured: Mapping[str, Any]
) -> list[str]:
    """Write the tables of a target and its draft. Comments, order and other tables stay.

    ``[local.models.NAME]`` configures the target with its draft, so that ``local/NAME`` runs it. For a draft
    model, there is also its own table, and ``[pairs.NAME]``, which has the routes of target and draft and
    their measured figures, from which the router starts.

    Args:
        file: the configuration file; created if it does not exist.
        name: NAME of the tables.
        target: folder or hub id.
        drafting: ``draft``, ``heads`` or ``layer_skip``, and the defaults of requests for ``method``,
            ``draft_length`` and ``draft_tree``.
        measured: ``acceptance`` and ``cost_ratio``.

    Returns:
        The names of the written tables.

    Raises:
        ConfigurationError: the file cannot be read or written.
    """
    import tomlkit  # noqa: PLC0415 - used only here
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    path = file.expanduser().resolve()  # replace the target of a link, not the link
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    except (OSError, UnicodeDecodeError, TOMLKitError) as error:
        raise ConfigurationError(
            f"{file} cannot be read ({error}); correct it, or choose another file."
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
            f"cannot write {file}: {error.strerror or error}; choose another file."
        ) from None
    return written


def _set(document: TOMLDocument, tables: tuple[str, ...], name: str, values: Mapping[str, Any]) -> str:
    """Replace the content of a table; return its header."""
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
    """Return an inline table."""
    import tomlkit  # noqa: PLC0415

    table = tomlkit.inline_table()
    table.update(values)
    return table
