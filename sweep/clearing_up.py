"""Clearing up after work that may have failed: what went wrong first is what is said first."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cephfit.errors import CephfitError


@contextmanager
def cleared_up_by(step: Callable[[], object]) -> Iterator[None]:
    """Do ``step`` when the block is over, however it ended.

    The block's own error goes on; one of ``step`` after it is added to what it says.

    Raises:
        CephfitError: of ``step``, where the block went well.
    """
    try:
        yield
    except BaseException as first:
        try:
            step()
        except Exception as second:
            _add(first, second)
        raise
    step()


def _add(first: BaseException, second: Exception) -> None:
    what = str(second).partition("\n")[0] or repr(second)
    if what == str(first).partition("\n")[0]:
        return
    sentence = f"Then clearing up failed: {what}"
    if isinstance(first, CephfitError):  # people see its words, and no notes
        first.what = f"{first.what}. {sentence}"
    else:
        first.add_note(sentence)
