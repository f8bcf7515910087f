"""Files that a command writes: whole or not at all, so that what stood there before is not lost."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cephfit.errors import CephfitError, HostError


@contextmanager
def written_whole(path: Path, *, what: str) -> Iterator[Path]:
    """Gives a place beside the wanted one to write at; what is there at the end is moved to where it is wanted.

    Args:
        path: where it is wanted.
        what: is written, as in ``the report``.

    Raises:
        HostError: it cannot be written; what was at this place is as it was.
    """
    is_ours = path.is_file() or not path.exists()
    place = path.with_name(f".{path.name}.part") if is_ours else path  # a pipe, /dev/stdout: nothing to replace
    try:
        yield place
        if is_ours:
            place.replace(path)
    except BaseException as error:
        if is_ours:
            with suppress(OSError):
                place.unlink(missing_ok=True)
        if isinstance(error, CephfitError) and error.where == str(place):
            raise type(error)(error.what, where=str(path), remedy=error.remedy) from None
        if isinstance(error, OSError):
            raise HostError(
                f"{what} cannot be written: {error.strerror}", where=str(path), remedy="give another place with -o"
            ) from None
        raise


def write_whole(path: Path, text: str, *, what: str) -> None:
    """Write a text; folders on the way are made.

    Raises:
        HostError: it cannot be written; what was at this place is as it was.
    """
    with written_whole(path, what=what) as place:
        path.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
