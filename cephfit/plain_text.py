"""Texts that every file and database takes: names of files need not be such."""

import re
from collections.abc import Mapping
from typing import Any

_LONE_HALVES = re.compile("[\ud800-\udfff]")
"""What Python puts in the place of bytes of a file's name that are not UTF-8; no text in UTF-8 can hold it."""


def plain(text: str) -> str:
    """The text, with a sign of replacement (U+FFFD) where it has a character that cannot be written."""
    return _LONE_HALVES.sub("\ufffd", text)


def plain_document(document: Any) -> Any:
    """The same for all texts and keys of JSON values, nested mappings and lists."""
    if isinstance(document, str):
        return plain(document)
    if isinstance(document, Mapping):
        return {plain_document(key): plain_document(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [plain_document(value) for value in document]
    return document
