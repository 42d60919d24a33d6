"""Turn a choice of what drafts into tables of ``specclient.toml``, the rest of it kept as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specclient.errors import ConfigurationError
from specclient_cli.config import rewrite

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def write_pair(file: Path, name: str, target: str, method: str, loading: dict[str, Any]) -> list[str]:
    """Set the tables of a choice; comments, order and all other tables stay.

    ``[local.models.NAME]`` is the target with what drafts for it, so that ``local/NAME`` runs it. For a draft
    model of its own there is also ``[pairs.NAME]``, which names target and draft as routes, and the draft's
    own table.

    Args:
        file: of the configuration; begun where there is none.
        name: of the tables.
        target: folder or hub id.
        method: what requests get that name none.
        loading: what drafts: ``draft``, ``heads`` or ``layer_skip``.

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
    written = [_set(document, ("local", "models"), name, {"path": target, **loading, "method": method})]
    if "draft" in loading:
        draft = f"{name}-draft"
        written.append(
            _set(document, ("local", "models"), draft, {"path": loading["draft"], "method": "plain"})
        )
        written.append(
            _set(document, ("pairs",), name, {"draft": f"local/{draft}", "target": f"local/{name}"})
        )
    try:
        rewrite(path, tomlkit.dumps(document))
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {file}: {error.strerror or error}; name another file."
        ) from None
    return written


def _set(document: TOMLDocument, tables: tuple[str, ...], name: str, values: dict[str, Any]) -> str:
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
        own[key] = value
    return f"[{'.'.join((*tables, name))}]"
