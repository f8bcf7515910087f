"""Undo several things, each attempted even when another fails.

Several things tried one after the other, none of them given up because another one failed: for undoing.

Clearing up after work that may have failed: what went wrong first is what is said first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cephfit.core.errors import CephfitError, ClusterError


class ErrorCollector:
    """Gathers what went wrong.

    Only errors that a person can act on are gathered; a fault of the program goes through at once.
    """

    def __init__(self) -> None:
        self._errors: list[CephfitError] = []

    def make(self, step: Callable[[], object]) -> bool:
        """Do ``step``; whether it went well."""
        before = len(self._errors)
        with self.trying():
            step()
        return len(self._errors) == before

    @contextmanager
    def trying(self) -> Iterator[None]:
        """The same for the block."""
        try:
            yield
        except CephfitError as error:
            self._errors.append(error)

    def end(self) -> None:
        """Raises:
        CephfitError: the one that there was; of several, one that names each.
        """
        if not self._errors:
            return
        first = self._errors[0]
        if len(self._errors) == 1:
            raise first
        # A caller that can deal with every one of them can deal with all of them together.
        kinds = {type(error) for error in self._errors}
        kind = type(first) if len(kinds) == 1 else ClusterError
        told = dict.fromkeys(f"{e.where}: {e.what}" if e.where else e.what for e in self._errors)
        remedies = dict.fromkeys(e.remedy for e in self._errors if e.remedy)
        raise kind(f"{len(told)} things went wrong: {'; '.join(told)}", remedy="; ".join(remedies))


@contextmanager
def cleaned_up_by(step: Callable[[], object]) -> Iterator[None]:
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
