"""Log output by ``OPENAI_LOG``, as in the OpenAI client."""

from __future__ import annotations

import logging
from collections.abc import Mapping

_FORMAT = "[%(asctime)s - %(name)s:%(lineno)d - %(levelname)s] %(message)s"


def setup_logging(env: Mapping[str, str]) -> None:
    """Show this package's log messages if ``OPENAI_LOG`` is ``debug`` or ``info``; else change nothing."""
    level = {"debug": logging.DEBUG, "info": logging.INFO}.get(env.get("OPENAI_LOG", "").lower())
    if level is not None:
        logging.basicConfig(format=_FORMAT, datefmt="%Y-%m-%d %H:%M:%S")
        logging.getLogger("specclient").setLevel(level)
