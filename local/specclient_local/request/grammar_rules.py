"""Measures Lark and GBNF grammars: rules, chains of rules, alternatives, repetitions."""

from __future__ import annotations

import re

from specclient.errors import BadRequestError
from specclient.types.request_limits import RequestLimits
from specclient_local.request.grammar_regex import GrammarLevels, measure_regex
from specclient_local.request.grammar_schema import JSON_TOKEN, measure_schema
from specclient_local.request.grammar_size import GrammarSize, check_limit, longest_chain

_COMMON_TOKENS = r"""
    (?P<string>"(?:\\.|[^"\\\n])*+"?i?)
  | (?P<define>::=)
  | (?P<define_lark>:)
  | (?P<name>[!?_]{0,3}[A-Za-z][\w\-]*+)
  | \{\s*+(?P<low>\d*+)\s*+,?\s*+(?P<high>\d*+)\s*+\}
  | (?P<open>[(\[{])
  | (?P<close>[)\]}])
  | (?P<bar>\|)
  | (?P<newline>\n)
"""
_LARK_TOKEN = re.compile(
    r"(?://|\#)[^\n]*+ | (?P<regex>/(?:\\.|[^/\\])++/?) | (?P<special><[^<>\s]++>)"
    r" | (?P<json>%(?:json|regex|llguidance)\b)"
    r" | ~\s*+(?P<from>\d++)(?:\s*+\.\.\s*+(?P<to>\d++))? |" + _COMMON_TOKENS,
    re.DOTALL | re.VERBOSE,
)
_GBNF_TOKEN = re.compile(
    r"\#[^\n]*+ | (?P<class>\[(?:\\.|[^\]\\])*+\]?) |" + _COMMON_TOKENS, re.DOTALL | re.VERBOSE
)
_LARK_MARK = re.compile(r"(?m)^[ \t]*(?:%llguidance\b|start[ \t]*:(?!:=))")
_SPACE = re.compile(r"\s*")


def is_gbnf(text: str) -> bool:
    """Return whether a grammar is GBNF (llama.cpp's notation) rather than Lark."""
    return "::=" in text and _LARK_MARK.search(text) is None


def measure_rules(name: str, text: str, limits: RequestLimits) -> GrammarSize:
    """Return the size of a Lark or GBNF grammar."""
    if text.lstrip()[:1] == "{":
        error = BadRequestError(f"{name} is JSON; allowed is a grammar in Lark or GBNF.")
        error.param = name
        raise error
    reader = _RuleReader(name, limits)
    reader.read(text, gbnf=is_gbnf(text))
    levels = reader.levels
    return GrammarSize(
        bytes=len(text.encode(errors="surrogatepass")),
        rules=len(reader.links) + reader.schema.rules,
        nesting=max(levels.nesting, reader.schema.nesting),
        chain=longest_chain(reader.links) + reader.schema.chain,
        alternatives=max(levels.alternatives, reader.schema.alternatives),
        repetitions=max(levels.repetitions, reader.schema.repetitions),
        weight=sum(map(text.count, ("(", "[", "{", "\n", "->", "%", "$ref"))),
        complements=sum(map(text.count, "&~")),
        patterns=reader.schema.patterns,
    )


class _RuleReader:
    """Reads the rules of a Lark or GBNF grammar, once.

    Attributes:
        links: the names that each rule's text contains.
        levels: groups, alternatives and repetitions.
        schema: the sizes of the JSON schemas in the grammar: sums of rules and patterns, else the greatest.
    """

    def __init__(self, name: str, limits: RequestLimits) -> None:
        self.links: dict[str, set[str]] = {}
        self.levels = GrammarLevels()
        self.schema = GrammarSize(0)
        self._name, self._limits = name, limits

    def read(self, text: str, *, gbnf: bool) -> None:
        """Read a grammar."""
        token = (_GBNF_TOKEN if gbnf else _LARK_TOKEN).search
        levels, names = self.levels, set[str]()
        starts, first = True, ""  # whether the next name begins a line, and the name that began this line
        position = 0
        while (match := token(text, position)) is not None:
            position = match.end()
            kind = match.lastgroup
            if kind == "newline":
                names.add(first)
                starts, first = starts or levels.depth == 0, ""
                continue
            if kind == "name":
                levels.item()
                written = match[0].lstrip("!?_")
                if starts:
                    first = written  # a definition, if a colon follows
                else:
                    names.add(written)
            elif kind in ("define", "define_lark"):
                if first and (levels.depth == 0 or kind == "define"):
                    levels.restart()
                    names = self.links.setdefault(first, set())
                    first = ""
            elif kind == "json":
                position = self._read_json(text, position)
            else:
                self._read_part(match)
            starts = starts and kind not in ("name", "bar") and kind is not None
        names.add(first)

    def _read_part(self, match: re.Match[str]) -> None:
        levels = self.levels
        if match.lastgroup in ("from", "to"):
            levels.repeat(match["from"], match["to"] or "")
        elif match.lastgroup == "regex":
            size = measure_regex(match[0])
            levels.item()
            levels.alternatives = max(levels.alternatives, size.alternatives)
            levels.repetitions = max(levels.repetitions, size.repetitions)
            levels.nesting = max(levels.nesting, levels.depth + size.nesting)
        else:
            levels.note(match)

    def _read_json(self, text: str, position: int) -> int:
        """Measure the JSON that begins here, if any; return its end."""
        begin = _SPACE.match(text, position)
        if begin is None or text[begin.end() : begin.end() + 1] not in ("[", "{"):
            return position
        end, depth, most = position, 0, 0
        for match in JSON_TOKEN.finditer(text, begin.end()):
            character = match[0][0]
            depth += 1 if character in "[{" else -1 if character in "]}" else 0
            most = max(most, depth)
            end = match.end()
            if depth == 0:
                break
        check_limit(self._name, "nesting", most, self._limits)
        try:
            size = measure_schema(text[position:end])
        except ValueError:
            return end  # the compiler reports the error
        known = self.schema
        self.schema = GrammarSize(
            bytes=0,
            rules=known.rules + size.rules,
            nesting=max(known.nesting, size.nesting),
            chain=max(known.chain, size.chain),
            alternatives=max(known.alternatives, size.alternatives),
            repetitions=max(known.repetitions, size.repetitions),
            patterns=known.patterns + size.patterns,
        )
        return end
