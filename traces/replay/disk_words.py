"""Names of disks as words that may stand in fio's files and be names of files."""

import re
from collections.abc import Collection

_LENGTH = 80
"""fio cuts a section's name after 255 bytes, and two of them might be the same then."""


def word_of(disk: str, taken: Collection[str]) -> str:
    """The disk's name as a word without blanks or slashes that no other disk has.

    Args:
        disk: its name, which may be the path of a file.
        taken: words of other disks.
    """
    word = re.sub(r"[^A-Za-z0-9._-]", "_", disk)[:_LENGTH] or "_"
    number, found = 2, word
    while found in taken:
        number, found = number + 1, f"{word}-{number}"
    return found
