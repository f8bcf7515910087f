"""Create and recreate OSDs: identity and key, disk layout, ``ceph-osd --mkfs``."""

import json
import uuid
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.environment.osd_store import FILESTORE, OsdStore
from cephfit.core.errors import ClusterError
from cephfit.lab.ceph_daemons import Daemons, keyring_entry, new_key, osd_name, write_secret
from cephfit.lab.ceph_programs import CephPrograms, CephVersion
from cephfit.lab.devices.throttle import Throttle
from cephfit.lab.osds.osd_disks import OsdDisks
from cephfit.lab.osds.osd_layout import lay_out, require_store, take_off

_JOURNAL_MIB = 512
"""Size of FileStore's journal if it is a file; Ceph's default of 5 GiB would fill the folder of a lab."""


class OsdMaker:
    """Creates the OSDs of one lab; does not start them.

    Args:
        folder: of the lab.
        conf: its ceph.conf.
        disks: attached.
        throttle: of the lab.
        admin: the monitor answers.
        programs: of the lab's release.
    """

    def __init__(
        self,
        folder: Path,
        conf: Path,
        disks: OsdDisks,
        throttle: Throttle,
        admin: RadosAdmin,
        programs: CephPrograms,
    ) -> None:
        self._folder = folder
        self._conf = conf
        self._disks = disks
        self._throttle = throttle
        self._admin = admin
        self._programs = programs

    def version(self) -> CephVersion:
        """Return the version of the lab's Ceph."""
        return self._programs.version()

    def register(self, osd: int, *, again: bool = False) -> tuple[str, str]:
        """Register the OSD with the monitor; return its UUID and key.

        Args:
            osd: the id; that of a new OSD must be the next free one.
            again: the id was in use; the previous OSD can no longer connect.

        Raises:
            ClusterError: the monitor assigns another id.
        """
        given: dict[str, object] = {}
        if again:
            self._admin.command("osd destroy-actual", id=osd, yes_i_really_mean_it=True)
            given["id"] = osd
        osd_uuid, key = str(uuid.uuid4()), new_key()
        payload = json.dumps({"cephx_secret": key}).encode()
        answer = json.loads(self._admin.exchange("osd new", payload, uuid=osd_uuid, format="json", **given))
        if answer["osdid"] != osd:
            raise ClusterError(f"the monitor gave id {answer['osdid']} to osd.{osd}", where="mon")
        return osd_uuid, key

    def make(self, osd: int, store: OsdStore, osd_uuid: str, key: str) -> None:
        """Lay out the OSD's empty disk, and create its object store.

        Raises:
            HostError: a program failed.
        """
        home = self._folder / osd_name(osd)
        side = self._disks.attach_side(osd, store, self._throttle, again=True)
        lay_out(home, store, self._disks.device(osd), side)
        write_secret(home / "keyring", keyring_entry(osd_name(osd), key, {}))
        argv = ["ceph-osd", "-c", str(self._conf), "-i", str(osd), "--mkfs", "--osd-uuid", osd_uuid]
        argv += ["--osd-objectstore", store.objectstore]
        if store.objectstore == FILESTORE:
            argv += ["--osd-journal-size", "0" if "journal" in side else str(_JOURNAL_MIB)]
        self._programs.run(argv, seconds=300)

    def take_off(self, osd: int) -> None:
        """Empty the disk of an OSD that does not run."""
        if not take_off(self._folder / osd_name(osd), self._disks.device(osd)):
            self._disks.renew(osd, self._throttle)


def recreate(
    maker: OsdMaker, admin: RadosAdmin, daemons: Daemons, stores: Mapping[int, OsdStore], keep: Collection[str]
) -> None:
    """Recreate existing OSDs; their data and all pools are lost. May be called again after a kill.

    Args:
        maker: of the lab.
        admin: of the lab.
        daemons: the OSDs run afterwards; they may not have come up yet when this returns.
        stores: by OSD.
        keep: pools that may be lost if they have no objects; any other pool is an error.

    Raises:
        ClusterError: a pool would be lost.
        HostError: this machine cannot create such a store.
    """
    for store in stores.values():
        require_store(store, maker.version)
    for pool in admin.command("df")["pools"]:
        if pool["name"] not in keep or pool["stats"]["objects"]:
            raise ClusterError(
                f"the OSDs would be recreated, and pool {pool['name']} would be lost",
                where=f"pool {pool['name']}",
                remedy="delete the pool, or use a separate lab",
            )
    for pool in keep:
        if pool in {entry["poolname"] for entry in admin.command("osd lspools")}:
            admin.command("osd pool delete", pool=pool, pool2=pool, yes_i_really_really_mean_it=True)
    daemons.stop_all([osd_name(osd) for osd in stores])
    ids = [str(osd) for osd in stores]
    # Out first: Pacific's monitor counts a destroyed OSD that is in once per CRUSH root, and aborts.
    admin.command("osd out", ids=ids)
    admin.command("osd down", ids=ids)
    identities = {osd: maker.register(osd, again=True) for osd in stores}

    def make(osd: int) -> None:
        daemons.kill_strays(osd_name(osd))
        maker.take_off(osd)
        maker.make(osd, stores[osd], *identities[osd])
        daemons.start(osd_name(osd))

    with ThreadPoolExecutor(max_workers=len(stores)) as pool_of_threads:
        list(pool_of_threads.map(make, stores))
    admin.command("osd in", ids=ids)
