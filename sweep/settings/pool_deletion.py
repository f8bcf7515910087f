"""Leave to delete pools: monitors give it by an option, which nobody is to find switched on afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

from cephfit.sweep.attempts import Attempts
from cephfit.sweep.journal import Journal
from cephfit.sweep.settings.ceph_settings import CONFIG
from cephfit.sweep.settings.daemon_options import DaemonOptions

_SECTION, _OPTION = "mon", "mon_allow_pool_delete"
_EARLIER = "allow deletion"
"""Kind of the entry in which earlier versions kept the option's value, in the journal of declared pools."""


class PoolDeletion:
    """Has the monitors allow that pools are deleted, for as long as it takes.

    Args:
        options: of the cluster's daemons.
        journal: of these options. After a kill, ``cephfit restore`` puts back what it says.
    """

    def __init__(self, options: DaemonOptions, journal: Journal) -> None:
        self._options = options
        self._journal = journal

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Pools can be deleted within the block; after it the option is as it was, whatever happened there.

        Raises:
            CephfitError: what ended the block, or that the option cannot be set or put back; both if both are so.
        """
        tried = Attempts()
        try:
            with tried.trying():
                self._options.put(_SECTION, _OPTION, "true")
                yield
        finally:
            tried.make(self.take_back)
        tried.end()

    def take_back(self) -> None:
        """What a process left that was killed within the block. Safe to call at any time."""
        self._options.take_back_one(_SECTION, _OPTION)

    def take_over(self, journal: Journal) -> None:
        """What an earlier version left in the journal of declared pools is taken back with the rest."""
        if (entry := journal.get(_EARLIER, _OPTION)) is not None:
            self._journal.note(CONFIG, f"{_SECTION} {_OPTION}", entry.was)
            journal.forget(_EARLIER, _OPTION)
