"""What a configuration changes on a Ceph cluster itself, behind one protocol: the whole cluster, or one pool."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cephfit.configuration import Configuration
from cephfit.measurement import PlannedSweep
from cephfit.sweep.declared_pools import DeclaredPools
from cephfit.sweep.journal import Journal
from cephfit.sweep.preview import Preview, Undoing
from cephfit.sweep.surroundings import ReadValues
from cephfit.sweep.volumes import Volume


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a configuration.

    Attributes:
        pool: where its images belong; empty if the cluster refused.
        restarted: OSDs that were restarted on the way.
        refused: the cluster's words against it; empty if it took everything.
    """

    pool: str
    restarted: tuple[int, ...] = ()
    refused: str = ""


class ClusterChanges(Protocol):
    """Everything is journalled before it is made. May be cut off at any instant; the next process goes on."""

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        """What speaks against a configuration whose settings all exist; empty if nothing. Changes nothing."""

    def declared_pools(self, journal: Journal) -> DeclaredPools:
        """The pools that people declare for the cluster.

        Args:
            journal: of these pools alone.

        Raises:
            InputError: no pools may be made here.
        """

    def clear_up(self) -> None:
        """Take away what a process that was killed left in the way of the cluster's health; at any time."""

    def give_up_pools(self) -> None:
        """Delete the pools made so far: the OSDs below them go."""

    def bring_about(self, configuration: Configuration) -> Made:
        """Make the configuration's options and pool; what was changed before and is not wanted now gets its
        original.

        Raises:
            ClusterError: the cluster did not become what it should for other reasons than a refusal.
        """

    def about_to_make(self, volume: Volume) -> None:
        """An image will be made now."""

    def room_in(self, pool: str) -> int | None:
        """Bytes that clients can still write into a pool, as Ceph reckons; None while it does not know."""

    def copies_in(self, pool: str) -> float:
        """Bytes that lie on disks for each byte written."""

    def read_back(self, configuration: Configuration) -> Iterable[ReadValues]:
        """What the daemons and the pool say."""

    def for_clients(self, configuration: Configuration) -> Configuration:
        """The configuration with all that its clients have to be told in their own ceph.conf."""

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        """Make good what daemons lost that restarted by themselves, one sentence each; empty if nothing was lost.

        Args:
            osd_map: gives ``osd dump`` as it is now.
        """

    def preview(self, sweep: PlannedSweep, configurations: Sequence[Configuration]) -> Preview:
        """What these configurations of a sweep would change on the cluster; its health is not asked here."""

    def undoings(self) -> Sequence[Undoing]:
        """What ``take_back`` would put back now, as far as it is of this kind. Changes nothing."""

    def take_back(self, *, pools: bool) -> None:
        """Everything as it was, as far as it can be; what could not be put back stays in the journal.

        Args:
            pools: delete pools and images, too; not while something works on the images still.

        Raises:
            CephfitError: names everything that was not put back.
        """
