"""Turn a request into what kind of prompt it is, and into how many bytes of text it holds.

Both are told for every routed call, so they look at a bounded sample: the ends of the last message of the
user, or of the prompt. What kind of prompt it is steers what is predicted of a route (acceptance, length,
depth), and a wrong guess costs a little speed and never an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from specclient.types.request import Request
from specclient.types.route import PromptTask

__all__ = ["BYTES_PER_TOKEN", "PromptSummary", "classify_task", "summarize_prompt"]

#: Bytes of UTF-8 that a token stands for until a route has shown its own: English text and source code lie
#: between 3.5 and 4.5 with today's vocabularies, and most other scripts spend three bytes on a character.
BYTES_PER_TOKEN = 4.0

#: Prompts of at least so many bytes are of a long context whatever they hold: about 8,000 tokens, from
#: where reading the cache of the prompt, and no longer the weights, decides what a step costs.
LONG_BYTES = 32_000
#: Texts of at least so many bytes are documents: where a verb says what is to be done with them, and where
#: none does.
_GIVEN_BYTES, _TEXT_BYTES = 600, 2_400
#: Characters of a sample, from either end of a text.
_END = 600
#: What a picture or another file in a prompt counts as, in bytes: some 750 tokens.
_FILE_BYTES = 3_000
#: Parts of a request that are looked at; what more there is counts as long as those were.
_PARTS = 256
#: What the frame around a message counts as.
_FRAME_BYTES = 16

#: What stands in source code and hardly in prose; each counts once.
_MARKS = (
    "```", "def ", "#include", "import ", "();", "() {", "():", ") {", "=> ", "</", "SELECT ", "Traceback (",
    "function ", "fn ", "::", "/*", "){", "print(", "console.", "    return", "self.", " == ", "return ",
    "};", ";\n", "{\n", "):\n", ">>> ",
)  # fmt: skip


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: Words by which people ask for source code; one is enough with a second, or with a verb of making.
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
#: Of these words one is enough, wherever it stands.
_PLAIN = _set("""
    python javascript typescript c++ sql regex refactor codebase leetcode dataframe
""")
#: What is to be done with a text that is given.
_VERBS = _set("""
    summarize summarise summary summarizing tldr tl;dr extract extraction translate translation rewrite
    paraphrase proofread condense shorten classify evaluate identify analyze analyse cite quote article
    document report transcript passage contract paper chapter email reviews
""")
_BLANKS = str.maketrans(dict.fromkeys(",.:!?\"'()[]*`“”‘’", " "))


class PromptSummary(NamedTuple):
    """What is known of a prompt at a glance.

    Attributes:
        size: bytes of its text, as UTF-8, with what frames it.
        sample: the ends of what was said last.
        files: pictures and other files in it.
    """

    size: int
    sample: str
    files: int


def summarize_prompt(request: Request) -> PromptSummary:
    """Look at a request's prompt; never raises, whatever the request holds."""
    params = request.params
    given = params.get("messages")
    if given is None:
        given = params.get("input")
    if given is None:
        given = params.get("prompt")
    size, said, files = _size(given)
    for name in ("instructions", "tools", "functions", "response_format"):
        more = params.get(name)
        if more:
            size += _size(more)[0]
    return PromptSummary(size, said if len(said) <= 2 * _END else said[:_END] + "\n" + said[-_END:], files)


def classify_task(gist: PromptSummary) -> PromptTask:
    """Tell what kind of prompt it is: a few microseconds for a short one, and hardly more for a long one."""
    size, sample, files = gist
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
    asked = words & _WORDS
    if asked and (marks > 1 or not _PLAIN.isdisjoint(asked)):
        return "code"
    if asked and not _MAKE.isdisjoint(words) and (len(asked) > 1 or not _THINGS.isdisjoint(asked)):
        return "code"
    if size >= _TEXT_BYTES or (files and not _VERBS.isdisjoint(words)):
        return "document"
    return "chat"


def _size(given: Any) -> tuple[int, str, int]:
    """Return bytes, what was said last by the user, and files of a prompt in any of its forms."""
    if isinstance(given, str):
        return _bytes(given), given, 0
    if not isinstance(given, list | tuple):
        return (_spread(given)[0], "", 0) if given else (0, "", 0)
    if given and isinstance(given[0], int):  # token ids
        return int(len(given) * BYTES_PER_TOKEN), "", 0
    size = files = 0
    said = ""
    for message in given[-_PARTS:]:
        content = (
            message.get("content") if isinstance(message, Mapping) else getattr(message, "content", message)
        )
        if isinstance(content, str):
            size += _bytes(content) + _FRAME_BYTES
            text = content
        else:
            inside, text, more = _spread(content if content is not None else message)
            size += inside + _FRAME_BYTES
            files += more
        if text and (not said or not isinstance(message, Mapping) or message.get("role", "user") == "user"):
            said = text
    if len(given) > _PARTS:
        size = size * len(given) // _PARTS
    return size, said, files


def _spread(given: Any) -> tuple[int, str, int]:
    """Return bytes of the texts in a structure, its longest one, and its files; looks at a bounded part."""
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
    """Return the bytes of a text as UTF-8; of a long one that is not ASCII, as its beginning has them."""
    length = len(text)
    if text.isascii():
        return length
    if length <= _END:
        return len(text.encode("utf-8", "replace"))
    return length * len(text[:_END].encode("utf-8", "replace")) // _END
