"""Token counts of images, by the rules that the models' vendors have published.

OpenAI: "Images and vision", calculating costs. Anthropic: "Vision", how images are resized and counted.
Google: "Image understanding", token calculation, and "Media resolution". An image of unknown size counts as
1024 × 1024 pixels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from specclient.tokens.text import TokenCount, bare_model_name

__all__ = ["count_image"]

_ASSUMED = (1024, 1024)

#: OpenAI, by prefix of the model's name: tokens of an image in low detail, and of each tile in high detail.
_TILES: Mapping[str, tuple[int, int]] = {
    "gpt-4": (85, 170),  # gpt-4-turbo, gpt-4o, gpt-4.1, gpt-4.5
    "chatgpt-4o": (85, 170),
    "gpt-4o-mini": (2833, 5667),
    "gpt-5": (70, 140),
    "gpt-5.1": (70, 140),
    "o1": (75, 150),
    "o3": (75, 150),
    "computer-use-preview": (65, 129),
}
#: Tokens per patch, from the guide. For the small GPT-5 models, users have been billed 1.2 and 1.5 tokens per
#: patch; for later models, which the guide does not list, 1.2.
_PATCHES: Mapping[str, float] = {
    "gpt-4.1-mini": 1.62,
    "gpt-4.1-nano": 2.46,
    "o4-mini": 1.72,
    "gpt-5-mini": 1.62,
    "gpt-5-nano": 2.46,
    "gpt-5.": 1.2,
    "gpt-6": 1.2,
}
_MOST_PATCHES = 1536
_LOW_EDGE = 512

#: Anthropic: one visual token per patch of 28 × 28 pixels. Maximum edge in pixels, and maximum of tokens.
_CLAUDE_PATCH = 28
_CLAUDE_STANDARD, _CLAUDE_HIGH = (1568, 1568), (2576, 4784)
_CLAUDE_HIGH_SINCE = (4, 7)
_VERSION = re.compile(r"(?<!\d)(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")

#: Google: tokens per tile; maximum edge, in pixels, of an image of one tile; tokens of any image since
#: Gemini 3, by default.
_GEMINI_TILE, _GEMINI_SMALL, _GEMINI_3 = 258, 384, 1120
_GEMINI_UNITS = (256, 768)


@dataclass(frozen=True, slots=True)
class _Image:
    width: int
    height: int

    def fitted(self, edge: int) -> _Image:
        """Return the image scaled down so that no edge is longer than ``edge`` pixels."""
        return self.scaled(min(1.0, edge / max(self.width, self.height)))

    def scaled(self, by: float) -> _Image:
        return _Image(max(round(self.width * by), 1), max(round(self.height * by), 1))

    def covered(self, edge: int) -> int:
        """Return the number of squares with edges of ``edge`` pixels that cover the image."""
        return math.ceil(self.width / edge) * math.ceil(self.height / edge)


def count_image(size: tuple[int, int] | None, model: str, *, detail: str | None = None) -> TokenCount:
    """Count the tokens of an image. Never raises.

    The count is exact for OpenAI's models that count tiles, if the size is known; otherwise an estimate.

    Args:
        size: width and height in pixels; None if unknown.
        model: the model's name, with or without a ``provider/`` prefix.
        detail: OpenAI's ``low``, ``high`` or ``auto``.
    """
    name = bare_model_name(model).lower()
    image = _Image(*(size or _ASSUMED))
    if "claude" in name:
        return TokenCount(_claude(image, name), estimated=True)
    if "gemini" in name:
        return TokenCount(_gemini(image, name), estimated=True)
    tiled, patched = (_closest(table, name) for table in (_TILES, _PATCHES))
    if len(patched) > len(tiled):
        resized = image.fitted(_LOW_EDGE) if detail == "low" else image
        return TokenCount(math.ceil(_patches(resized) * _PATCHES[patched]), estimated=True)
    low, tile = _TILES[tiled or "gpt-4"]
    known = bool(tiled) and (size is not None or detail == "low")
    return TokenCount(low if detail == "low" else low + tile * _tiles(image), estimated=not known)


def _closest(table: Mapping[str, object], name: str) -> str:
    return max((start for start in table if name.startswith(start)), key=len, default="")


def _tiles(image: _Image) -> int:
    """Fit into 2048 × 2048, scale the short side down to 768, and count tiles of 512 × 512 pixels."""
    image = image.fitted(2048)
    image = image.scaled(min(1.0, 768 / min(image.width, image.height)))
    return image.covered(512)


def _patches(image: _Image) -> int:
    """Count patches of 32 × 32 pixels. An image with too many is scaled down to whole patches."""
    patches = image.covered(32)
    if patches <= _MOST_PATCHES:
        return patches
    by = math.sqrt(32**2 * _MOST_PATCHES / (image.width * image.height))
    across, down = image.width * by / 32, image.height * by / 32
    by *= min(math.floor(across) / across, math.floor(down) / down) or 1.0
    across, down = image.width * by / 32, image.height * by / 32
    return min(math.ceil(round(across, 6)) * math.ceil(round(down, 6)), _MOST_PATCHES)


def _claude(image: _Image, name: str) -> int:
    found = _VERSION.search(name)
    version = (int(found[1]), int(found[2] or 0)) if found else _CLAUDE_HIGH_SINCE
    edge, most = _CLAUDE_HIGH if version >= _CLAUDE_HIGH_SINCE else _CLAUDE_STANDARD
    image = image.fitted(edge)
    least, longest = 1, max(image.width, image.height)
    while least < longest:  # binary search for the longest edge within the token limit
        middle = (least + longest + 1) // 2
        if image.fitted(middle).covered(_CLAUDE_PATCH) <= most:
            least = middle
        else:
            longest = middle - 1
    return image.fitted(least).covered(_CLAUDE_PATCH)


def _gemini(image: _Image, name: str) -> int:
    found = _VERSION.search(name)
    if found and int(found[1]) >= 3:
        return _GEMINI_3
    if max(image.width, image.height) <= _GEMINI_SMALL:
        return _GEMINI_TILE
    unit = min(max(math.floor(min(image.width, image.height) / 1.5), _GEMINI_UNITS[0]), _GEMINI_UNITS[1])
    return image.covered(unit) * _GEMINI_TILE
