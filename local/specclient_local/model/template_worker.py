"""The program of the helper process that renders chat templates.

A checkpoint's template is a Jinja program. It can loop, recurse and take memory without end, even within one
operation that no code of the same process could interrupt. The transformers library runs it in Jinja's
sandbox. The file imports nothing of the package; see :mod:`specclient_local.model.helper_worker`.
"""

from __future__ import annotations

from typing import Any


def prepare(_settings: dict[str, Any]) -> None:
    """Import the library, before memory and time are limited."""
    from transformers.utils import chat_template_utils  # noqa: F401, PLC0415 - after the path is set


def answer(message: dict[str, Any]) -> dict[str, str]:
    """Render a chat; return ``{"text": …}``, or ``{"error": …}`` with the exception's class and message."""
    from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415 - as above

    try:
        found: Any = render_jinja_template(
            conversations=[message["messages"]],
            tools=message["tools"],
            chat_template=message["template"],
            add_generation_prompt=True,
            **message["special"],
        )
        text: str = found[0][0]
        if len(text) > message["most_characters"]:
            return {"error": f"the text has {len(text)} characters; at most {message['most_characters']}"}
        text.encode()  # a template may cut a character in two
    except Exception as error:  # noqa: BLE001 - a template may raise any exception
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"text": text}
