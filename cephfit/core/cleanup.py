"""Cleanup: run every step even when one fails, and keep the first error in front."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cephfit.core.errors import CephfitError, ClusterError


class ErrorCollector:
    """Collects the errors of several steps, so that one failed step does not prevent the next.

    Only errors that a user can fix (``CephfitError``) are collected; a bug is raised at once.
    """

    def __init__(self) -> None:
        self._errors: list[CephfitError] = []

    def make(self, step: Callable[[], object]) -> bool:
        """Run ``step``, collect its error, and return whether it succeeded."""
        before = len(self._errors)
        with self.trying():
            step()
        return len(self._errors) == before

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Collect the error of the block."""
        try:
            yield
        except CephfitError as error:
            self._errors.append(error)

    def end(self) -> None:
        """Raise what was collected; return if there was no error.

        Raises:
            CephfitError: the collected error; with several, one that names each.
        """
        if not self._errors:
            return
        first = self._errors[0]
        if len(self._errors) == 1:
            raise first
        # Errors of one class stay in that class, so that a caller which handles each also handles their sum.
        kinds = {type(error) for error in self._errors}
        kind = type(first) if len(kinds) == 1 else ClusterError
        faults = dict.fromkeys(f"{e.where}: {e.what}" if e.where else e.what for e in self._errors)
        remedies = dict.fromkeys(e.remedy for e in self._errors if e.remedy)
        raise kind(f"{len(faults)} steps failed: {'; '.join(faults)}", remedy="; ".join(remedies))


@contextmanager
def cleaned_up_by(step: Callable[[], object]) -> Iterator[None]:
    """Run ``step`` when the block ends, also after an error.

    The block's error is raised; an error of ``step`` is appended to its message.

    Raises:
        CephfitError: of ``step``, if the block succeeded.
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
    sentence = f"Then cleanup failed: {what}"
    if isinstance(first, CephfitError):  # the command line prints its message, not its notes
        first.what = f"{first.what}. {sentence}"
    else:
        first.add_note(sentence)
