"""Options shared by the commands of ``specclient local train``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def target_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--target``."""
    return click.option(
        "--target", "-m", default="demo", show_default=True, help="'demo', a folder, or a hub id."
    )(function)


def folder_option(name: str, text: str, *, required: bool = False) -> Callable[[Any], Any]:
    """Return an option for a folder that is written."""
    kind = click.Path(file_okay=False, path_type=Path)
    return click.option(f"--{name}", type=kind, required=required, help=text)


def count_option(name: str, default: int | None, text: str, low: int = 1) -> Callable[[Any], Any]:
    """Return an option for a whole number of at least ``low``."""
    kind = click.IntRange(min=low)
    return click.option(f"--{name}", type=kind, default=default, show_default=default is not None, help=text)


def device_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--device``."""
    return click.option("--device", default="auto", show_default=True, help="Device: cpu, cuda or cuda:N.")(
        function
    )
