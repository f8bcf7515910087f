"""Where a captured trace goes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cephfit.errors import InputError


@contextmanager
def trace_place(text: str) -> Iterator[Path]:
    """An existing folder, the base name of the files, or with a slash at its end a folder that is made.

    A folder made here is removed again if nothing was written into it.

    Raises:
        InputError: the folder cannot be made.
    """
    place = Path(text)
    made = text.endswith(os.sep) and not place.is_dir()
    if made:
        try:
            place.mkdir(parents=True)
        except OSError as error:
            raise InputError(
                f"the folder cannot be created: {error.strerror}", where=text, remedy="choose another"
            ) from None
    try:
        yield place
    finally:
        if made:
            with suppress(OSError):
                place.rmdir()
