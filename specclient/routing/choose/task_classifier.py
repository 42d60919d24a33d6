"""Prompt classification: the kind of a prompt (chat, code, document, long context) and its size in bytes.

It runs for every routed call, so it reads a bounded sample: the two ends of the user's last message, or of
the prompt. The kind selects the predictions of a route (acceptance, length, depth). A wrong one costs some
speed, never the correctness of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from specclient.types.criterion import PromptTask
from specclient.types.request import Request

__all__ = ["BYTES_PER_TOKEN", "PromptSummary", "classify_task", "summarize_prompt"]

#: Bytes of UTF-8 per token until a route has shown its own ratio: English text and source code lie
#: between 3.5 and 4.5 with today's vocabularies, and most other scripts spend three bytes on a character.
BYTES_PER_TOKEN = 4.0

#: Prompts of at least this many bytes are long contexts, whatever they contain: about 8,000 tokens, from
#: where reading the KV cache, and no longer the weights, dominates the cost of a step.
LONG_BYTES = 32_000
#: Texts of at least this many bytes are documents: with a verb that says what to do with them, and without.
_GIVEN_BYTES, _TEXT_BYTES = 600, 2_400
#: Characters of the sample, from each end of a text.
_END = 600
#: The size of a picture or another file in a prompt, in bytes: about 750 tokens.
_FILE_BYTES = 3_000
#: Parts of a request that are read; the size of further ones is extrapolated.
_PARTS = 256
#: Further arguments that are a part of the prompt.
_FURTHER = frozenset({"instructions", "tools", "functions", "response_format"})
#: The size of the framing of a message, in bytes.
_FRAME_BYTES = 16

#: Marks of source code that are rare in prose; each counts once.
_MARKS = (
    "```", "def ", "#include", "import ", "();", "() {", "():", ") {", "=> ", "</", "SELECT ", "Traceback (",
    "function ", "fn ", "::", "/*", "){", "print(", "console.", "    return", "self.", " == ", "return ",
    "};", ";\n", "{\n", "):\n", ">>> ",
)  # fmt: skip


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: Words of requests for source code; one is enough with a second one, or with a verb of making.
_WORDS = _set("""
    python javascript typescript java c++ rust golang sql regex bash html css kotlin ruby php haskell
    function program script algorithm code codebase class method api debug refactor compile compiler bug
    unit-test test tests subroutine recursion dataframe json yaml array arrays variable numpy pandas
    django react stdin stdout traceback stacktrace segfault query leetcode runtime o(n)
""")
_MAKE = _set("""
    write implement develop create build fix debug refactor code design optimise optimize complete port
    explain review
""")
#: With a verb of making, one of these is enough.
_THINGS = _set("""
    function html css method algorithm subroutine compiler query api
""")
#: One of these words alone is enough.
_PLAIN = _set("""
    python javascript typescript c++ sql regex refactor codebase leetcode dataframe
""")
#: Words that say what to do with a text in the prompt.
_VERBS = _set("""
    summarize summarise summary summarizing tldr tl;dr extract extraction translate translation rewrite
    paraphrase proofread condense shorten classify evaluate identify analyze analyse cite quote article
    document report transcript passage contract paper chapter email reviews
""")
_BLANKS = str.maketrans(dict.fromkeys(",.:!?\"'()[]*`“”‘’", " "))


class PromptSummary(NamedTuple):
    """The size of a prompt and a sample of it.

    Attributes:
        size: bytes of its text in UTF-8, framing included.
        sample: the two ends of the last message.
        files: the number of pictures and other files.
    """

    size: int
    sample: str
    files: int


def summarize_prompt(request: Request) -> PromptSummary:
    """Return the summary of a request's prompt; malformed requests raise nothing."""
    params = request.params
    prompt = params.get("messages")
    if prompt is None:
        prompt = params.get("input")
    if prompt is None:
        prompt = params.get("prompt")
    size, last_text, files = _size(prompt)
    for name in _FURTHER & params.keys():
        size += _size(params[name])[0]
    return PromptSummary(
        size, last_text if len(last_text) <= 2 * _END else last_text[:_END] + "\n" + last_text[-_END:], files
    )


def classify_task(summary: PromptSummary) -> PromptTask:
    """Return the kind of a prompt, in a few microseconds for prompts of any length."""
    size, sample, files = summary
    if size >= LONG_BYTES:
        return "long_context"
    marks = 0
    if "(" in sample or "{" in sample or "`" in sample or ";" in sample or "<" in sample:
        for mark in _MARKS:
            if mark in sample:
                marks += 1
        if marks > 2 or (marks > 1 and "def " in sample) or (marks and "```" in sample):
            return "code"
    words = set(sample.translate(_BLANKS).lower().split())
    if size >= _GIVEN_BYTES and not _VERBS.isdisjoint(words):
        return "document"
    keywords = words & _WORDS
    if keywords and (marks > 1 or not _PLAIN.isdisjoint(keywords)):
        return "code"
    if keywords and not _MAKE.isdisjoint(words) and (len(keywords) > 1 or not _THINGS.isdisjoint(keywords)):
        return "code"
    if size >= _TEXT_BYTES or (files and not _VERBS.isdisjoint(words)):
        return "document"
    return "chat"


def _size(given: Any) -> tuple[int, str, int]:
    """Return the bytes, the user's last text, and the number of files of a prompt in any form."""
    if isinstance(given, str):
        return _bytes(given), given, 0
    if not isinstance(given, list | tuple):
        return (_spread(given)[0], "", 0) if given else (0, "", 0)
    if given and isinstance(given[0], int):  # token ids
        return int(len(given) * BYTES_PER_TOKEN), "", 0
    size = files = 0
    last_text = ""
    for message in given if len(given) <= _PARTS else given[-_PARTS:]:
        mapping = type(message) is dict or isinstance(message, Mapping)  # the latter takes ten times as long
        content = message.get("content") if mapping else getattr(message, "content", message)
        if isinstance(content, str):
            size += _bytes(content) + _FRAME_BYTES
            text = content
        else:
            inside, text, more = _spread(content if content is not None else message)
            size += inside + _FRAME_BYTES
            files += more
        if text and (not last_text or not mapping or message.get("role", "user") == "user"):
            last_text = text
    if len(given) > _PARTS:
        size = size * len(given) // _PARTS
    return size, last_text, files


def _spread(given: Any) -> tuple[int, str, int]:
    """Return the bytes of the texts in a structure, the longest text, and the number of files; bounded."""
    size = files = seen = 0
    longest = ""
    waiting = [given]
    while waiting and seen < _PARTS:
        seen += 1
        each = waiting.pop()
        if isinstance(each, str):
            size += _bytes(each)
            if len(each) > len(longest):
                longest = each
        elif isinstance(each, Mapping):
            kind = each.get("type")
            if isinstance(kind, str) and (
                "image" in kind or "file" in kind or "audio" in kind or kind == "document"
            ):
                files += 1
                size += _FILE_BYTES
            else:
                waiting += each.values()
                size += 4 * len(each)
        elif isinstance(each, list | tuple):
            waiting += each
    return size, longest, files


def _bytes(text: str) -> int:
    """Return the bytes of a text in UTF-8; for long texts that are not ASCII, extrapolated from the start."""
    length = len(text)
    if text.isascii():
        return length
    if length <= _END:
        return len(text.encode("utf-8", "replace"))
    return length * len(text[:_END].encode("utf-8", "replace")) // _END
