"""Conversion of the parts of OpenAI's messages to content blocks of the Converse API.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html. A part that is a block
of the Converse API already (``{"guardContent": …}``, ``{"cachePoint": …}``, …) is passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from specclient.errors import BadRequestError, UnsupportedParameterError
from specclient.providers.data_urls import parts_of_data_url
from specclient.providers.validation import expect_kind

#: Rejects a parameter, given its name and the reason. Returns if parameters may be dropped.
RefuseConverseField = Callable[[str, str], None]
ConverseBlock = dict[str, Any]

#: Formats of media types whose second half is another word ("ImageBlock", "DocumentBlock").
_FORMATS = {
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "image/jpg": "jpeg",
    "text/markdown": "md",
    "text/plain": "txt",
    "video/3gpp": "three_gp",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
}
_IMAGES = ("png", "jpeg", "gif", "webp")
_DOCUMENTS = ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md")
_VIDEOS = ("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp")
_EXTENSIONS = {"jpg": "jpeg", "htm": "html", "3gp": "three_gp"}

#: The blocks of a message ("ContentBlock"), each with one of these as its only field.
_BLOCKS = frozenset(
    {
        *("audio", "cachePoint", "citationsContent", "document", "guardContent", "image", "reasoningContent"),
        *("searchResult", "text", "toolAddition", "toolRemoval", "toolResult", "toolUse", "video"),
    }
)
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9\s()\[\]-]+")
_LONGEST_NAME = 200
_MOST_SHOWN = 40

#: OpenAI's and Anthropic's ``ttl`` of a cache breakpoint, and the shortest ``ttl`` that is at least as long.
_TTL = {"5m": "5m", "30m": "1h", "1h": "1h"}


def is_block(value: Any) -> bool:
    """Return whether a value is a content block of the Converse API."""
    return (
        isinstance(value, dict) and "type" not in value and len(value) == 1 and not _BLOCKS.isdisjoint(value)
    )


def inexpressible(where: str, why: str) -> UnsupportedParameterError:
    """Return the error for content without an equivalent in the Converse API."""
    error = UnsupportedParameterError(f"Bedrock's Converse API does not take {where}: {why}")
    error.param = where
    return error


def cache_point(carrier: Mapping[str, Any], where: str, refuse: RefuseConverseField) -> list[ConverseBlock]:
    """Return the block for the cache breakpoint of a part, message or tool; an empty list without one.

    The breakpoint is OpenAI's ``prompt_cache_breakpoint`` or Anthropic's ``cache_control``.
    """
    for name in ("cache_control", "prompt_cache_breakpoint"):
        if carrier.get(name) is None:
            continue
        settings = carrier[name]
        expect_kind(settings, f"{where}.{name}", dict)
        ttl = settings.get("ttl")
        lifetime = _TTL.get(ttl) if isinstance(ttl, str) else None
        if ttl is not None and lifetime is None:
            refuse(f"{where}.{name}.ttl", f"it is {ttl!r}; Bedrock caches for 5m or 1h")
        return [{"cachePoint": {"type": "default", **({"ttl": lifetime} if lifetime else {})}}]
    return []


class ContentEncoder:
    """Encodes the contents of one request's messages.

    Args:
        refuse: called with each field without an equivalent in the Converse API.
    """

    def __init__(self, refuse: RefuseConverseField) -> None:
        self._refuse = refuse
        self._names: set[str] = set()  # of documents, which must differ

    def blocks(self, content: Any, where: str) -> list[ConverseBlock]:
        """Return the blocks of a message's content: text, parts, or None. Empty texts are left out.

        Raises:
            BadRequestError: a part is malformed. The error names its index.
            UnsupportedParameterError: the Converse API has no equivalent. Content is never dropped.
        """
        if content is None:
            return []
        if isinstance(content, str):
            return [{"text": content}] if content else []
        if not isinstance(content, list):
            raise BadRequestError(
                f"{where} is a {type(content).__name__}; it must be text or a list of parts"
            )
        found: list[ConverseBlock] = []
        for at, part in enumerate(content):
            place = f"{where}[{at}]"
            block = self._block(part, place)
            found += [] if block == {"text": ""} else [block]
            if isinstance(part, dict) and not is_block(part):
                found += cache_point(part, place, self._refuse)
        return found

    def _block(self, part: Any, where: str) -> ConverseBlock:
        if isinstance(part, str):
            return {"text": part}
        if is_block(part):
            own: ConverseBlock = part
            return own
        if not isinstance(part, dict):
            raise BadRequestError(f"{where} is a {type(part).__name__}; it must be a part with a type")
        match part.get("type"):
            case "text" | "refusal" as kind:
                expect_kind(part.get(kind), f"{where}.{kind}", str)
                return {"text": part[kind]}
            case "image_url":
                return {"image": self._image(part.get("image_url"), f"{where}.image_url")}
            case "file":
                return {"document": self._document(part.get("file"), f"{where}.file")}
            case "input_audio":
                return {"audio": _audio(part.get("input_audio"), f"{where}.input_audio")}
            case "video_url":
                url = _url_of(part.get("video_url"), f"{where}.video_url")
                return {"video": _medium(url, "", _VIDEOS, f"{where}.video_url")}
            case kind:
                raise inexpressible(where, f"its type is {kind!r}; write a block of the Converse API instead")

    def _image(self, image: Any, where: str) -> dict[str, Any]:
        if isinstance(image, dict) and image.get("detail") not in (None, "auto"):
            self._refuse(f"{where}.detail", "the Converse API has no setting for the detail of images")
        return _medium(_url_of(image, where), "", _IMAGES, where)

    def _document(self, file: Any, where: str) -> dict[str, Any]:
        expect_kind(file, where, dict)
        if file.get("file_id"):
            raise inexpressible(
                f"{where}.file_id", "Bedrock keeps no files; give file_data as a data: or s3:// URL"
            )
        data, name = file.get("file_data"), file.get("filename") or ""
        expect_kind(data, f"{where}.file_data", str)
        expect_kind(name, f"{where}.filename", str)
        return {**_medium(data, name, _DOCUMENTS, f"{where}.file_data"), "name": self._unique(name)}

    def _unique(self, filename: str) -> str:
        """Return a name that Bedrock accepts, and that no other document of the request has."""
        stem = filename.rpartition("/")[2].rpartition(".")
        words = " ".join(_NOT_IN_A_NAME.sub("-", stem[0] or stem[2]).split())[: _LONGEST_NAME - 8]
        name, number = words or "document", 1
        while name in self._names:
            number += 1
            name = f"{words or 'document'} {number}"
        self._names.add(name)
        return name


def _url_of(value: Any, where: str) -> str:
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str):
        raise BadRequestError(f"{where} has no url; it must be a data: or s3:// URL")
    return url


def _medium(url: str, filename: str, formats: tuple[str, ...], where: str) -> dict[str, Any]:
    """Return the format and source of a medium, which is in a ``data:`` URL or in a bucket of S3."""
    source: dict[str, Any]
    if url.lower().startswith("s3://"):
        media, source = "", {"s3Location": {"uri": url}}
        filename = filename or url
    elif url.lower().startswith(("http://", "https://")):
        raise inexpressible(where, "Bedrock fetches no web addresses; give a data: or s3:// URL")
    else:
        media, data = parts_of_data_url(url, where)
        source = {"bytes": data}
    extension = filename.rpartition(".")[2].lower()
    named = (_FORMATS.get(media, media.rpartition("/")[2]), _EXTENSIONS.get(extension, extension))
    found = next((name for name in named if name in formats), None)
    if found is None:
        raise BadRequestError(
            f"{where} has the media type {media[:_MOST_SHOWN]!r}, and its name ends in "
            f"{extension[:_MOST_SHOWN]!r}; the Converse API takes {', '.join(formats)}"
        )
    return {"format": found, "source": source}


def _audio(audio: Any, where: str) -> dict[str, Any]:
    expect_kind(audio, where, dict)
    expect_kind(audio.get("data"), f"{where}.data", str)
    expect_kind(audio.get("format"), f"{where}.format", str)
    return {"format": audio["format"], "source": {"bytes": audio["data"]}}
