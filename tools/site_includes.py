"""Pages of the documentation that are files of the repository's root, such as ``SECURITY.md``.

MkDocs calls :func:`on_page_markdown` (``hooks`` of ``mkdocs.yml``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

_INCLUDE: Final = re.compile(r'--8<-- "(\w+\.md)"\s*')


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the text of a page; an included file's, with its links as they are in the folder of pages.

    The file's links begin with ``docs/``, so that they also lead somewhere where the repository is shown.
    MkDocs checks them as those of all pages.
    """
    found = _INCLUDE.fullmatch(markdown)
    if found is None:
        return markdown
    return (Path(__file__).parents[1] / found[1]).read_text(encoding="utf-8").replace("](docs/", "](")
