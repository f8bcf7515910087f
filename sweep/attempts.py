"""Several things tried one after the other, none of them given up because another one failed: for undoing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cephfit.errors import CephfitError, ClusterError


class Attempts:
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
